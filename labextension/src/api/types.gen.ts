// Generated from the server's OpenAPI document by `make ui`. Do not edit.

export const PREFIX = 'mgpu/api/v1';

/** A job that is ahead in the queue. */
export interface Ahead {
  job_id: string;
  user: string;
  gpus: number;
  priority: number;
}

/** One attempt at running it; the last one may still wait for its nodes. */
export interface AttemptTrace {
  attempt: number;
  epoch: number;
  queued_at: number;
  planned_at: number | null;
  started_at: number | null;
  ended_at: number | null;
  reason: string;
  waits: Wait[];
  steps: Step[];
  ranks: RankTrace[];
}

/** One job of a bulk, with its own idempotency key. */
export interface BulkItem {
  spec: JobSpec;
  key?: string | null;
}

/** Many jobs, accepted all or none. */
export interface BulkSubmit {
  jobs: BulkItem[];
}

/** Their ids, in the order of the request. */
export interface BulkSubmitted {
  jobs: Submitted[];
}

/** The job when it was cancelled; the end follows by itself. */
export interface CancelAnswer {
  job_id: string;
  state: JobState;
  job_ids?: string[];
}

/** What was assigned to a rank, compared with what is there. */
export interface Check {
  rank: number;
  what: 'address' | 'gpus' | 'host' | 'node' | 'pid' | 'ports';
  assigned: string;
  actual: string;
  ok: boolean;
  text: string;
}

/** The pool in numbers, and the requesting user. */
export interface Cluster {
  name: string;
  user: string;
  admin: boolean;
  nodes: number;
  nodes_online: number;
  gpus: number;
  gpus_free: number;
  simulated: boolean;
  jobs: { [name: string]: number };
  notice: string;
  seq: number;
  partitions: { [name: string]: PartitionInfo };
  accounts: string[];
  qos: { [name: string]: QosInfo };
  strategies: string[];
  strategy: string;
  preemption: boolean;
  quota: QuotaInfo;
  privacy: 'full' | 'names' | 'none';
}

/** The history of the cluster. `ended` and the jobs survive restarts, `gpus` and `busy` begin with this master. */
export interface ClusterHistory {
  step_s: number;
  times: number[];
  gpus: (number | null)[];
  in_use: number[];
  mine: number[];
  busy: (number | null)[];
  waiting: number[];
  wanted: number[];
  ended: { [name: string]: number[] };
  waits: Waits[];
  median_wait_s: number | null;
  p95_wait_s: number | null;
  ended_total: number;
  succeeded_percent: number | null;
  busy_mean_percent: number | null;
  message: string;
}

/** Names of pieces: SHA-256 in hexadecimal. */
export interface Digests {
  digests: string[];
}

/** The job is over and its output complete; nothing follows. */
export interface EndFrame {
  type: 'end';
  job: Job;
}

/** One job that is over, as `[id, state, exit code]`. */
export type EndedJob = [string, JobState, number | null];

/** Every error answer: `code` is stable, `message` says what to do. */
export interface ErrorBody {
  code: string;
  message: string;
  details: { [name: string]: unknown };
}

/** Nodes that fail one check for a unit, and what is missing there. */
export interface Excluded {
  check: string;
  text: string;
  never: boolean;
  count: number;
  nodes: string[];
  passed: string[];
}

/** A machine that the cluster's file lists and that never joined. */
export interface ExpectedNode {
  id: string;
  state: 'expected';
  host: string;
  address: string;
  port: number | null;
  gpu_count: number | null;
  gpu_type: string;
}

/** Why a job waits, or what would happen to a request. */
export interface Explanation {
  verdict: 'never' | 'not_now' | 'now' | 'over' | 'started';
  code: string;
  text: string;
  job_id: string | null;
  where: Where[];
  units: UnitAnswer[];
  place: number | null;
  ahead_count: number;
  ahead: Ahead[];
  terms: Term[];
  priority: number | null;
  expected: Forecast;
  plan: Planned[];
  offers: Offer[];
  history: Record[];
}

/** The process that failed first, not those that failed because of it. */
export interface Failure {
  rank: number;
  node: string;
  exit_code: number | null;
  signal: number | null;
  last_lines: string[];
}

/** When a job is expected to start, if all others end as expected; nothing is set when that is unknown. */
export interface Forecast {
  at: number | null;
  promised: boolean;
  later_than: number | null;
}

/** Output that is lost (with its node). */
export interface GapFrame {
  type: 'gap';
  rank: number;
  message: string;
}

/** These nodes and jobs were removed or purged. */
export interface GoneFrame {
  type: 'gone';
  seq: number;
  nodes?: string[];
  jobs?: string[];
}

/** A GPU, who holds it, and its newest reading. */
export interface Gpu {
  index: number;
  uuid: string;
  name: string;
  memory_bytes: number;
  simulated: boolean;
  job_id: string | null;
  user: string | null;
  rank: number | null;
  utilisation_percent: number | null;
  memory_used_bytes: number | null;
  temperature_c: number | null;
  power_w: number | null;
  state: 'free' | 'held' | 'outside' | 'settling' | 'unhealthy';
  reason: string;
  processes: GpuProcess[];
  mig_parent: string;
  nvlinks: { [name: string]: number };
}

/** The readings of one GPU. */
export interface GpuHistory {
  index: number;
  uuid: string;
  busy: (number | null)[];
  memory_mib: (number | null)[];
  temperature: (number | null)[];
  power: (number | null)[];
}

/** A process on a GPU. */
export interface GpuProcess {
  pid: number;
  user: string | null;
  memory_bytes: number | null;
  outside: boolean;
  name: string;
}

/** How a job used one of its GPUs. */
export interface GpuUsage {
  node: string;
  index: number;
  uuid: string;
  rank: number | null;
  busy_mean: number | null;
  busy_max: number | null;
  memory_peak_mib: number | null;
  memory_mib: number;
  idle: boolean;
  busy: (number | null)[];
  memory: (number | null)[];
}

/** Whether the master works, and if not, why. */
export interface Health {
  status: 'degraded' | 'failed' | 'ok' | 'starting';
  version: string;
  cluster: string;
  master_epoch: number;
  message: string;
  warnings: string[];
  link_address: string;
  link_addresses: string[];
  relays_to: string;
}

/** A job as everyone may see it in the queue. */
export interface Job {
  id: string;
  state: JobState;
  user: string;
  name: string;
  command: string;
  nodes: string[];
  gpus: number;
  exit_code: number | null;
  attempt: number;
  submitted_at: number;
  started_at: number | null;
  ended_at: number | null;
  reason: string;
  reason_code: string;
  priority: number;
  time_limit_s: number | null;
  nodes_wanted: number;
  place: number | null;
  expected_start_at: number | null;
  placements: Placement[];
  seq: number;
  array_id: string | null;
  array_index: number | null;
  preempted: number;
  partition: string;
  account: string;
  qos: string;
  pty: boolean;
  mismatches: string[];
  warnings: string[];
  failure: Failure | null;
  origin: Origin | null;
  sweep: { [name: string]: string };
  distributed: boolean;
  master_node: string | null;
  kill_at: number | null;
}

/** The changes of a job; what is left out stays. */
export interface JobChange {
  priority?: number | null;
  time_limit_s?: number | null;
  hold?: boolean;
  release?: boolean;
}

/** The job changed. */
export interface JobFrame {
  type: 'job';
  seq: number;
  job: Job;
  display_key: string;
}

/** A page of jobs, newest first; `next_cursor` continues it. */
export interface JobList {
  jobs: Job[];
  next_cursor: string | null;
}

/** A request, as `mgpu_srun` and the magics spell it: one field per flag. */
export interface JobSpec {
  command?: string[];
  script?: string | null;
  name?: string;
  gpus?: number | null;
  nodes?: number | null;
  gpus_per_node?: number | null;
  nodelist?: string[];
  exclude?: string[];
  cpus?: number;
  time_limit_s?: number | null;
  priority?: number;
  env?: { [name: string]: string };
  cwd?: string | null;
  python?: string | null;
  kernel_python?: string | null;
  kernel_python_version?: string | null;
  requeue?: boolean;
  on_disconnect?: '' | 'fence' | 'keep';
  wait_for_nodes?: boolean;
  parts?: Part[];
  prefer?: string[];
  partition?: string;
  gpu_ids?: number[];
  node_gpu_ids?: { [name: string]: number[] };
  gpu_type?: string;
  gpu_mem_bytes?: number;
  constraint?: string;
  arch?: string;
  mem_per_node_bytes?: number;
  exclusive?: boolean;
  policy?: string;
  qos?: string;
  account?: string;
  begin_at?: number;
  hold?: boolean;
  dependency?: string;
  array?: string;
  stdin?: boolean;
  pty?: boolean;
  terminal?: [number, number];
  interactive_kill?: boolean;
  signal?: string;
  env_setup_cmd?: string;
  mpi?: boolean;
  home?: string;
  distributed?: boolean;
  ntasks_per_node?: number | null;
  sweep?: { [name: string]: string[] };
  debug?: boolean;
  sync?: string;
  results?: string[];
  prolog?: string;
  epilog?: string;
  retries?: number;
  image?: string;
  stdout_file?: string;
  stderr_file?: string;
  open_mode?: '' | 'append' | 'truncate';
  origin?: Origin | null;
  inputs?: string;
  outputs?: string[];
  outputs_limit_bytes?: number;
}

/** The state of a job; the last four are final. */
export type JobState = 'cancelled' | 'completed' | 'failed' | 'queued' | 'running' | 'starting' | 'stopping' | 'timeout';

/** What a job asked for and what it used, over the run time of its newest attempt. */
export interface JobUsage {
  job_id: string;
  state: JobState;
  attempt: number;
  asked: number;
  used: number | null;
  energy_wh: number | null;
  hint: string;
  readings: number;
  step_s: number;
  times: number[];
  gpus: GpuUsage[];
  message: string;
}

/** The line to paste. It holds a secret that works once. */
export interface JoinToken {
  command: string;
  line: string;
  expires_at: number;
  addresses: string[];
  node_id: string | null;
  message: string;
}

/** A request for a join line for one new machine. */
export interface JoinTokenRequest {
  node_id?: string | null;
  ttl_s?: number;
  listen?: string[];
}

/** What the line asks for. Nothing was submitted. */
export interface LineAnswer {
  spec: JobSpec;
  inputs: string[];
  background: boolean;
}

/** A line as typed or as a form shows it, and the body of its cell. */
export interface LineRequest {
  line: string;
  cell?: string | null;
}

/** Who may use something. An empty `allow` admits everybody; `deny` takes precedence over `allow`. */
export interface Lists {
  allow_users?: string[];
  deny_users?: string[];
  allow_accounts?: string[];
  deny_accounts?: string[];
}

/** Which of them the server does not have from you. */
export interface Missing {
  missing: string[];
  tray: Nearby | null;
}

/** A file or directory of the server. A program that finds it on its own machine, by device and inode, need not transfer its bytes. */
export interface Nearby {
  path: string;
  device: number;
  inode: number;
}

/** A new user and the line to log in with, which is shown only here. */
export interface NewLogin {
  user: User;
  line: string;
}

/** A new user of this master. */
export interface NewUser {
  name: string;
  role?: 'admin' | 'user';
  ttl_s?: number | null;
}

/** A machine of the pool. */
export interface Node {
  id: string;
  state: NodeState;
  reason: string;
  host: string;
  address: string;
  arch: string;
  cpus: number;
  memory_bytes: number;
  gpus: Gpu[];
  gpu_note: string;
  labels: { [name: string]: string };
  rack: string;
  switch: string;
  agent_version: string;
  last_seen_at: number | null;
  address_method: string;
  port: number;
  orders: NodeOrders;
  failures: number;
  failures_total: number;
  probe_at: number | null;
  cpu_percent: number | null;
  memory_available_bytes: number | null;
  runs: string;
  warnings: string[];
}

/** What an administrator does to a node, and why. */
export interface NodeAction {
  action: 'allow' | 'clear-lists' | 'deny' | 'drain' | 'label' | 'maintenance' | 'only' | 'remove' | 'resume' | 'revoke';
  reason?: string;
  users?: string[];
  accounts?: string[];
  labels?: { [name: string]: string | null };
}

/** The result of an order about a node. */
export interface NodeActionAnswer {
  node_id: string;
  action: string;
  message: string;
}

/** The node or the readings of its GPUs changed. */
export interface NodeFrame {
  type: 'node';
  seq: number;
  node: Node;
}

/** The readings of one node over a time; the older, the coarser. */
export interface NodeHistory {
  node: string;
  step_s: number;
  times: number[];
  cpu: (number | null)[];
  memory_available_mib: (number | null)[];
  gpus: GpuHistory[];
  message: string;
}

/** All nodes, and those that are expected. */
export interface NodeList {
  nodes: Node[];
  expected: ExpectedNode[];
}

/** What administrators ordered about a node, who did, and when. */
export interface NodeOrders {
  state: NodeState | null;
  reason: string;
  by: string;
  at: number | null;
  lists: Lists;
  lists_reason: string;
  lists_by: string;
  lists_at: number | null;
  labels: { [name: string]: string };
  labels_reason: string;
  labels_by: string;
  labels_at: number | null;
}

/** The waiting jobs that are expected on a node, if all others end as expected and no new ones come; as far as the forecast goes. */
export interface NodeOutlook {
  node: string;
  jobs: Planned[];
}

/** The answer of a node's agent through its link. */
export interface NodePing {
  node_id: string;
  seconds: number;
  host: string;
  address: string;
  agent_version: string;
  master_version: string;
  python: string;
  pid: number;
  started_at: number;
  clock_skew_s: number;
  link: string;
  warnings: string[];
}

/** The interpreter that a cell would get on a node. */
export interface NodePython {
  node: string;
  path: string;
  version: string;
}

/** The changed readings of one node; those left out are as before. */
export interface NodeReading {
  cpu?: number | null;
  memory_available_mib?: number | null;
  gpus?: { [name: string]: [number | null, number | null, number | null, number | null] };
}

/** Whether a node takes work, and if not, why in a word. */
export type NodeState = 'draining' | 'maintenance' | 'offline' | 'online' | 'suspect' | 'unhealthy';

/** What a job had on one node, and what it used of that; None where its GPUs do not report it. */
export interface NodeUse {
  node: string;
  gpus: number;
  gpu_indices: number[];
  gpu_memory_peak_bytes: number | null;
  gpu_utilisation_percent: number | null;
}

/** A change of the request with which it would start now. For a job that waits: cancel it and submit the changed request. */
export interface Offer {
  text: string;
  flags: string[];
  patch: { [name: string]: unknown };
  where: Where[];
}

/** The job after the order. */
export interface OrderAnswer {
  job_id: string;
  state: JobState;
  job_ids?: string[];
}

/** The notebook, the cell and its text; what is not known is empty. */
export interface Origin {
  notebook?: string;
  cell?: string;
  source?: string;
}

/** Bytes of one rank, base64 in JSON; `offset` is their position in that rank's output. */
export interface OutputFrame {
  type: 'output';
  rank: number;
  stream: 'stderr' | 'stdout';
  offset: number;
  data: string;
  attempt: number;
}

/** One part of a job that asks for something else than its other parts. */
export interface Part {
  gpus?: number;
  cpus?: number;
  mem_bytes?: number;
  arch?: string;
}

/** Nodes that are used together, and what one job may have of them; None for no limit. */
export interface PartitionInfo {
  nodes: string[];
  default: boolean;
  policy: string;
  max_time_s: number | null;
  max_nodes: number | null;
  max_gpus: number | null;
}

/** Content of files, and the list of a folder, in base64; the answer names each by its digest. */
export interface Pieces {
  pieces: string[];
}

/** Nothing happened; the connection is alive. */
export interface PingFrame {
  type: 'ping';
}

/** Where a rank was assigned, or where it ran. A node is named by its key, a host by what runs there. */
export interface Place {
  node: string;
  host: string;
  address: string;
  gpus: string[];
  pid: number | null;
}

/** One process of a job: what its node gives to the job, and what really ran there. */
export interface Placement {
  node: string;
  rank: number;
  gpus: string[];
  gpu_indices: number[];
  simulated: boolean;
  host: string | null;
  address: string | null;
  pid: number | null;
  started_at: number | null;
  ended_at: number | null;
  exit_code: number | null;
  signal: number | null;
  cwd: string | null;
  python: string | null;
  note: string;
  local_rank: number;
  step: '' | 'asked' | 'launching' | 'meeting' | 'ready' | 'started';
}

/** A job that has nodes, or is expected to get them, as far as it is planned. */
export interface Planned {
  job_id: string;
  nodes: string[];
  start_at: number | null;
  end_at: number | null;
}

/** The progress of the jobs that are waited for, and which of them ended since the frame before. */
export interface ProgressFrame {
  type: 'progress';
  waiting: number;
  running: number;
  ended: EndedJob[];
}

/** What was forgotten, or would be. */
export interface PurgeAnswer {
  jobs: number;
  output_bytes: number;
  dry_run: boolean;
}

/** Which ended jobs to forget, with their output. */
export interface PurgeRequest {
  older_than_s?: number;
  user?: string | null;
  everybody?: boolean;
  dry_run?: boolean;
}

/** The answers of nodes; those that are away, did not answer soon, or have none are left out. */
export interface PythonAnswers {
  nodes: NodePython[];
}

/** Which interpreter a cell asks for, as in a request for a job. */
export interface PythonQuestion {
  python?: string | null;
  kernel_python?: string | null;
  kernel_python_version?: string | null;
}

/** A class of service. */
export interface QosInfo {
  priority: number;
  preemptible: boolean;
  quota: QuotaInfo;
}

/** The changes of the queue since the version `base`; the whole queue when there is no `base`. To apply: remove `removed`, then insert each of `inserted` at its index, in the order given (a job that moved is in both); delete all jobs of `removed` that are not inserted again from `why` and `expected`, then set the values that are named. */
export interface QueueFrame {
  type: 'queue';
  version: number;
  base?: number | null;
  removed?: string[];
  inserted?: [number, string[]][];
  reasons?: { [name: string]: Why };
  why?: { [name: string]: number };
  expected?: { [name: string]: number | null };
}

/** Most that one user may have at once; None for no limit. */
export interface QuotaInfo {
  gpus: number | null;
  running: number | null;
  queued: number | null;
}

/** What one process did. */
export interface RankSummary {
  rank: number;
  node: string;
  gpus: number;
  started_at: number;
  ended_at: number | null;
  exit_code: number | null;
  signal: number | null;
}

/** One rank of an attempt. */
export interface RankTrace {
  rank: number;
  assigned: Place;
  actual: Place | null;
  gpu_indices: number[];
  cwd: string;
  python: string;
  note: string;
  prepared_at: number | null;
  started_at: number | null;
  output_at: number | null;
  ended_at: number | null;
  collected_at: number | null;
  exit_code: number | null;
  signal: number | null;
  reason: string;
}

/** All that was asked for up to `seq` has been sent; from here on it is live. */
export interface ReadyFrame {
  type: 'ready';
  seq: number;
}

/** What a job was told from some time on. */
export interface Record {
  at: number;
  code: string;
  text: string;
  never: boolean;
  units: UnitAnswer[];
}

/** The changes of a waiting job's request. */
export interface ReplaceRequest {
  patch: { [name: string]: unknown };
}

/** What happened since `since` is not known completely: ask for cluster, nodes and jobs again. The connection continues from `seq`. */
export interface ResetFrame {
  type: 'reset';
  seq: number;
  message: string;
}

/** One file. */
export interface Result {
  node: string;
  number: number;
  path: string;
  size: number;
  sha256: string;
  mode: number;
  problem: string;
  tries: number;
}

/** All files of the newest attempt. */
export interface ResultList {
  job_id: string;
  attempt: number;
  complete: boolean;
  files: Result[];
  problems: string[];
}

/** Readings that changed since the last such frame; the first after a connect has all. At most one a second. */
export interface SamplesFrame {
  type: 'samples';
  at: number;
  nodes: { [name: string]: NodeReading };
}

/** The job has read what you sent up to `offset`; the first one says that it runs and accepts input. */
export interface StdinAckFrame {
  type: 'stdin_ack';
  offset: number;
  attempt?: number;
  again?: boolean;
  closed?: boolean;
}

/** One step, in the order of time. */
export interface Step {
  step: 'collected' | 'ended' | 'output' | 'planned' | 'prepared' | 'queued' | 'started' | 'submitted';
  at: number;
  seconds: number;
  text: string;
  rank: number | null;
}

/** The job is saved; it will not be lost. For an array, `job_id` and `state` are those of its first job. */
export interface Submitted {
  job_id: string;
  state: JobState;
  array_id?: string | null;
  job_ids?: string[];
}

/** A job on one page. */
export interface Summary {
  job_id: string;
  name: string;
  user: string;
  state: JobState;
  attempt: number;
  exit_code: number | null;
  reason: string;
  submitted_at: number;
  started_at: number | null;
  ended_at: number | null;
  waited_s: number | null;
  ran_s: number | null;
  gpus_requested: number;
  nodes_requested: number;
  time_limit_s: number | null;
  time_used_percent: number | null;
  gpu_memory_requested_bytes: number;
  gpu_memory_peak_bytes: number | null;
  gpu_utilisation_percent: number | null;
  gpu_s: number;
  nodes: NodeUse[];
  ranks: RankSummary[];
}

/** One summand of a priority: what it counts, how much of it there is, and its value in hours of waiting. */
export interface Term {
  name: string;
  amount: number;
  points: number;
}

/** The whole trace of a job. */
export interface Trace {
  job_id: string;
  name: string;
  user: string;
  command: string;
  state: JobState;
  submitted_at: number;
  now: number;
  attempts: AttemptTrace[];
  left_out: number;
  ok: boolean;
  mismatches: string[];
  checks: Check[];
}

/** Units of a job that need the same (a unit is what one node must give), and the nodes' answers. */
export interface UnitAnswer {
  first: number;
  count: number;
  needs: string;
  missing: number;
  would_do: number;
  given: string[];
  excluded: Excluded[];
}

/** A user of this master. */
export interface User {
  name: string;
  role: string;
  created_at: number;
  expires_at: number | null;
}

/** All users by name. */
export interface UserList {
  users: User[];
}

/** The variables of one rank, as one file: `GET jobs/{id}/result` returns it. */
export interface ValueFile {
  rank: number;
  node: string;
  number: number;
  size: number;
  sha256: string;
  problem: string;
  near: Nearby | null;
}

/** The variables that the newest attempt of a job returned. */
export interface ValueList {
  job_id: string;
  attempt: number;
  state: JobState;
  outputs: string[];
  ranks: number;
  complete: boolean;
  files: ValueFile[];
}

/** A time in the queue, and why. */
export interface Wait {
  since: number;
  until: number | null;
  seconds: number;
  code: string;
  text: string;
}

/** Jobs to wait for. */
export interface WaitRequest {
  job_ids: string[];
}

/** How long jobs of one size waited until they started. */
export interface Waits {
  gpus: string;
  jobs: number;
  least_s: number;
  quarter_s: number;
  median_s: number;
  three_quarters_s: number;
  p95_s: number;
}

/** What one node gives: GPUs by index. */
export interface Where {
  node: string;
  gpus: number[];
}

/** Why jobs wait, as `[code, text]`. */
export type Why = [string, string];

export type StreamJobFrame = OutputFrame | JobFrame | GapFrame | EndFrame | PingFrame | StdinAckFrame;

export type StreamEventsFrame = JobFrame | NodeFrame | SamplesFrame | QueueFrame | GoneFrame | ResetFrame | ReadyFrame | PingFrame;
