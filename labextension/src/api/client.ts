/** The requests to the server, one method for each operation that a view uses. No state, no text. */
import type { Rest } from './request';
import type {
  CancelAnswer,
  Cluster,
  ClusterHistory,
  Explanation,
  Health,
  Job,
  JobChange,
  JobList,
  JobSpec,
  JobUsage,
  JoinToken,
  JoinTokenRequest,
  LineAnswer,
  LineRequest,
  Node,
  NodeAction,
  NodeActionAnswer,
  NodeHistory,
  NodeList,
  NodeOutlook,
  OrderAnswer,
  ResultList,
  Submitted,
  Summary,
  Trace,
} from './types.gen';

const PAGE = 1000;
export const ENDED_STATES = 'completed,failed,cancelled,timeout';

export class Client {
  constructor(readonly rest: Rest) {}

  health = (): Promise<Health> => this.rest.get('health');
  cluster = (): Promise<Cluster> => this.rest.get('cluster');
  nodes = (): Promise<NodeList> => this.rest.get('nodes');
  node = (id: string): Promise<Node> => this.rest.get(`nodes/${encodeURIComponent(id)}`);
  job = (id: string): Promise<Job> => this.rest.get(`jobs/${encodeURIComponent(id)}`);
  explain = (id: string): Promise<Explanation> => this.rest.get(`jobs/${encodeURIComponent(id)}/explain`);
  trace = (id: string): Promise<Trace> => this.rest.get(`jobs/${encodeURIComponent(id)}/trace`);
  summary = (id: string): Promise<Summary> => this.rest.get(`jobs/${encodeURIComponent(id)}/summary`);
  results = (id: string): Promise<ResultList> => this.rest.get(`jobs/${encodeURIComponent(id)}/results`);
  usage = (id: string, points = 120): Promise<JobUsage> => this.rest.get(`jobs/${encodeURIComponent(id)}/usage`, { points });
  clusterHistory = (span: number, points = 300): Promise<ClusterHistory> => this.rest.get('cluster/history', { span, points });
  nodeHistory = (id: string, span = 600, points = 300): Promise<NodeHistory> =>
    this.rest.get(`nodes/${encodeURIComponent(id)}/history`, { span, points });
  nodeOutlook = (id: string): Promise<NodeOutlook> => this.rest.get(`nodes/${encodeURIComponent(id)}/outlook`);

  /** All jobs that are not over. */
  async active(): Promise<Job[]> {
    const jobs: Job[] = [];
    let cursor: string | undefined;
    do {
      const page: JobList = await this.rest.get<JobList>('jobs', { state: 'active', limit: PAGE, cursor });
      jobs.push(...page.jobs);
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
    return jobs;
  }

  /** The newest jobs that are over. */
  async ended(limit = 100): Promise<Job[]> {
    return (await this.rest.get<JobList>('jobs', { state: ENDED_STATES, limit })).jobs;
  }

  submit = (spec: JobSpec, key: string): Promise<Submitted> =>
    this.rest.ask('POST', 'jobs', { body: spec, headers: { 'Idempotency-Key': key } });
  /** The request of a line; a mistake is the error's sentence. */
  parse = (line: LineRequest): Promise<LineAnswer> => this.rest.ask('POST', 'jobs/parse', { body: line });
  dryRun = (spec: JobSpec): Promise<Explanation> => this.rest.ask('POST', 'jobs/dry-run', { body: spec });
  change = (id: string, change: JobChange): Promise<OrderAnswer> =>
    this.rest.ask('PATCH', `jobs/${encodeURIComponent(id)}`, { body: change });
  cancel = (id: string): Promise<CancelAnswer> => this.rest.ask('POST', `jobs/${encodeURIComponent(id)}/cancel`);
  requeue = (id: string): Promise<OrderAnswer> => this.rest.ask('POST', `jobs/${encodeURIComponent(id)}/requeue`);
  rerun = (id: string, key: string): Promise<Submitted> =>
    this.rest.ask('POST', `jobs/${encodeURIComponent(id)}/rerun`, { headers: { 'Idempotency-Key': key } });
  /** Take an offer: a changed job in place of a waiting one. */
  replace = (id: string, patch: { [name: string]: unknown }, key: string): Promise<Submitted> =>
    this.rest.ask('POST', `jobs/${encodeURIComponent(id)}/replace`, { body: { patch }, headers: { 'Idempotency-Key': key } });
  /** The output of one rank, as bytes. */
  output = async (id: string, rank: number): Promise<Blob> =>
    (await this.rest.raw('GET', `jobs/${encodeURIComponent(id)}/output`, { query: { rank, limit: 64 * 1024 * 1024 } })).blob();
  changeNode = (id: string, action: NodeAction): Promise<NodeActionAnswer> =>
    this.rest.ask('PATCH', `nodes/${encodeURIComponent(id)}`, { body: action });
  joinToken = (request: JoinTokenRequest = {}): Promise<JoinToken> => this.rest.ask('POST', 'join-tokens', { body: request });
}
