/** Values for tests; the only place where they are made. */
import type { Cluster, Gpu, Job, Node } from '../src/api/types.gen';

export const NOW = new Date(2026, 10, 17, 14, 14, 0).getTime() / 1000;
const GIB = 2 ** 30;

export function aGpu(index: number, more: Partial<Gpu> = {}): Gpu {
  return {
    index,
    uuid: `GPU-${index}`,
    name: 'NVIDIA H100 80GB HBM3',
    memory_bytes: 80 * GIB,
    simulated: false,
    job_id: null,
    user: null,
    rank: null,
    utilisation_percent: 0,
    memory_used_bytes: 0,
    temperature_c: 30,
    power_w: 50,
    state: 'free',
    reason: '',
    processes: [],
    mig_parent: '',
    nvlinks: {},
    ...more,
  };
}

export function aNode(id: string, gpus: readonly Gpu[] = [aGpu(0), aGpu(1)], more: Partial<Node> = {}): Node {
  return {
    id,
    state: 'online',
    reason: '',
    host: id,
    address: '10.0.0.1',
    arch: 'x86_64',
    cpus: 8,
    memory_bytes: 64 * GIB,
    gpus: [...gpus],
    gpu_note: '',
    labels: {},
    rack: '',
    switch: '',
    agent_version: '0.1.0',
    last_seen_at: NOW,
    address_method: '',
    port: 0,
    orders: {
      state: null,
      reason: '',
      by: '',
      at: null,
      lists: {},
      lists_reason: '',
      lists_by: '',
      lists_at: null,
      labels: {},
      labels_reason: '',
      labels_by: '',
      labels_at: null,
    },
    failures: 0,
    failures_total: 0,
    probe_at: null,
    cpu_percent: 1,
    memory_available_bytes: 60 * GIB,
    runs: '',
    warnings: [],
    ...more,
  } as Node;
}

export function aJob(id: string, more: Partial<Job> = {}): Job {
  return {
    id,
    state: 'queued',
    user: 'me',
    name: id.toLowerCase(),
    command: 'python train.py',
    nodes: [],
    gpus: 1,
    exit_code: null,
    attempt: 1,
    submitted_at: NOW - 100,
    started_at: null,
    ended_at: null,
    reason: '',
    reason_code: '',
    priority: 0,
    time_limit_s: null,
    nodes_wanted: 1,
    place: null,
    expected_start_at: null,
    placements: [],
    seq: 0,
    array_id: null,
    array_index: null,
    preempted: 0,
    partition: '',
    account: '',
    qos: '',
    pty: false,
    mismatches: [],
    warnings: [],
    failure: null,
    ...more,
  } as Job;
}

export function aCluster(more: Partial<Cluster> = {}): Cluster {
  return {
    name: 'lab',
    user: 'me',
    admin: true,
    nodes: 1,
    nodes_online: 1,
    gpus: 2,
    gpus_free: 2,
    simulated: false,
    jobs: {},
    notice: '',
    privacy: 'full',
    seq: 10,
    partitions: {},
    accounts: [],
    qos: {},
    strategies: [],
    strategy: '',
    preemption: false,
    quota: {} as Cluster['quota'],
    ...more,
  };
}
