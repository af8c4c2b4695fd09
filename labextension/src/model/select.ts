/** What views show, made from the store: tiles, totals, rows in their order. Pure; no text but names. */
import type { Gpu, GpuUsage, Job, Node } from '../api/types.gen';
import { type GpuReading, type IReading, isFinal, type Store } from './store';

export type TileState = 'free' | 'mine' | 'others' | 'outside' | 'unhealthy' | 'closed';
export const TILE_STATES: readonly TileState[] = ['free', 'mine', 'others', 'outside', 'unhealthy', 'closed'];

/** One GPU as it is drawn. */
export interface ITile {
  readonly node: string;
  readonly index: number;
  readonly state: TileState;
  /** 0 to 1. */
  readonly busy: number;
  readonly memory: number;
  readonly simulated: boolean;
  readonly gpu: Gpu;
  readonly reading: GpuReading;
  /** MIG instances of this GPU, drawn as fields of its tile. */
  readonly parts: readonly ITile[];
}

export interface INodeRow {
  readonly node: Node;
  readonly tiles: readonly ITile[];
  readonly free: number;
  readonly mine: number;
}

export type Totals = Record<TileState, number> & { gpus: number; nodes: number; busyPercent: number | null };

const NOTHING: GpuReading = [null, null, null, null];
const rows = new WeakMap<Node, { reading: IReading | undefined; user: string; row: INodeRow }>();

export function tileState(node: Node, gpu: Gpu, user: string): TileState {
  if (gpu.state === 'unhealthy') {
    return 'unhealthy';
  }
  if (gpu.job_id !== null || gpu.state === 'held') {
    return gpu.user === user ? 'mine' : 'others';
  }
  if (gpu.state === 'outside') {
    return 'outside';
  }
  return gpu.state === 'settling' || node.state !== 'online' ? 'closed' : 'free';
}

/** The row of a node; the same object as long as neither node nor readings changed. */
export function nodeRow(node: Node, reading: IReading | undefined, user: string): INodeRow {
  const known = rows.get(node);
  if (known !== undefined && known.reading === reading && known.user === user) {
    return known.row;
  }
  const tiles = node.gpus.map((gpu) => tile(node, gpu, reading, user));
  const row = { node, tiles: grouped(tiles), free: count(tiles, 'free'), mine: count(tiles, 'mine') };
  rows.set(node, { reading, user, row });
  return row;
}

function tile(node: Node, gpu: Gpu, reading: IReading | undefined, user: string): ITile {
  const now = reading?.gpus.get(gpu.index) ?? NOTHING;
  const total = gpu.memory_bytes / 2 ** 20;
  const state = tileState(node, gpu, user);
  return {
    node: node.id,
    index: gpu.index,
    state,
    busy: Math.min(1, Math.max(0, (now[0] ?? 0) / 100)),
    memory: total > 0 ? Math.min(1, Math.max(0, (now[1] ?? 0) / total)) : 0,
    simulated: gpu.simulated,
    gpu,
    reading: now,
    parts: [],
  };
}

/** MIG instances are drawn in the tile of their GPU. */
function grouped(tiles: readonly ITile[]): readonly ITile[] {
  if (tiles.every((one) => one.gpu.mig_parent === '')) {
    return tiles;
  }
  const out: ITile[] = [];
  const places = new Map<string, number>();
  for (const one of tiles) {
    const parent = one.gpu.mig_parent;
    const place = parent === '' ? undefined : places.get(parent);
    if (place === undefined) {
      places.set(parent, out.length);
      out.push(parent === '' ? one : { ...one, parts: [one] });
    } else {
      const first = out[place] as ITile;
      out[place] = { ...first, parts: [...first.parts, one] };
    }
  }
  return out;
}

function count(tiles: readonly ITile[], state: TileState): number {
  return tiles.reduce((sum, one) => sum + (one.state === state ? 1 : 0), 0);
}

export interface IHolder {
  readonly state: TileState;
  readonly job: string | null;
  readonly user: string;
  readonly reason: string;
  readonly gpus: readonly number[];
}

/** Who has the GPUs of a node: equal ones together, in the order of the first. */
export function holders(row: INodeRow): IHolder[] {
  const out = new Map<string, IHolder & { gpus: number[] }>();
  for (const one of row.tiles.flatMap((tile) => (tile.parts.length ? tile.parts : [tile]))) {
    const { job_id: job, user, reason } = one.gpu;
    const key = JSON.stringify([one.state, job, reason]);
    const known = out.get(key) ?? { state: one.state, job, user: user ?? '', reason, gpus: [] };
    known.gpus.push(one.index);
    out.set(key, known);
  }
  return [...out.values()];
}

export function allRows(store: Store): INodeRow[] {
  const user = store.cluster?.user ?? '';
  return [...store.nodes.values()].map((node) => nodeRow(node, store.readings.get(node.id), user));
}

export function totals(all: readonly INodeRow[]): Totals {
  const sums: Totals = { free: 0, mine: 0, others: 0, outside: 0, unhealthy: 0, closed: 0, gpus: 0, nodes: all.length, busyPercent: null };
  let busy = 0;
  let told = 0;
  for (const row of all) {
    for (const outer of row.tiles) {
      for (const one of outer.parts.length ? outer.parts : [outer]) {
        sums[one.state] += 1;
        sums.gpus += 1;
        if (one.reading[0] !== null && row.node.state !== 'offline') {
          told += 1;
          busy += one.reading[0];
        }
      }
    }
  }
  sums.busyPercent = told ? busy / told : null;
  return sums;
}

export type NodeSort = 'name' | 'free' | 'mine';

/** Every word of a filter must occur in the node's names, or in those of its jobs and users. */
export function filterRows(all: readonly INodeRow[], filter: string, store: Store): INodeRow[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) {
    return [...all];
  }
  return all.filter(({ node }) => {
    const holders = node.gpus.map(
      (gpu) => `${gpu.user ?? ''} ${gpu.name} ${gpu.job_id === null ? '' : (store.jobs.get(gpu.job_id)?.name ?? '')}`,
    );
    const text = [node.id, node.host, node.state, node.rack, node.switch, ...Object.values(node.labels), ...holders]
      .join(' ')
      .toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

const collator = new Intl.Collator('en', { numeric: true });

export function sortRows(all: readonly INodeRow[], sort: NodeSort): INodeRow[] {
  const byName = (a: INodeRow, b: INodeRow): number =>
    (sort === 'name' ? collator.compare(a.node.rack, b.node.rack) || collator.compare(a.node.switch, b.node.switch) : 0) ||
    collator.compare(a.node.id, b.node.id);
  const key = (row: INodeRow): number => (sort === 'free' ? -row.free : sort === 'mine' ? -row.mine : 0);
  return [...all].sort((a, b) => key(a) - key(b) || byName(a, b));
}

// --- jobs ---------------------------------------------------------------------------------------------

const ORDER: Record<string, number> = { running: 0, stopping: 0, starting: 0, queued: 1 };

/** Jobs that are not over: running ones first, then the queue in its order, then those that wait outside it. */
export function queueRows(store: Store, mine: boolean, filter = ''): Job[] {
  const user = store.cluster?.user ?? '';
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const jobs = [...store.jobs.values()].filter((job) => !isFinal(job) && (!mine || job.user === user) && matches(job, words));
  const place = (job: Job): number => store.place(job.id) ?? Number.MAX_SAFE_INTEGER;
  return jobs.sort(
    (a, b) =>
      (ORDER[a.state] ?? 2) - (ORDER[b.state] ?? 2) ||
      (a.state === 'queued' ? place(a) - place(b) : (a.started_at ?? 0) - (b.started_at ?? 0)) ||
      a.submitted_at - b.submitted_at ||
      (a.id < b.id ? -1 : 1),
  );
}

/** Jobs that are over, the newest first. */
export function historyRows(store: Store, mine: boolean, filter = ''): Job[] {
  const user = store.cluster?.user ?? '';
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return [...store.jobs.values()]
    .filter((job) => isFinal(job) && (!mine || job.user === user) && matches(job, words))
    .sort((a, b) => (b.ended_at ?? 0) - (a.ended_at ?? 0) || (a.id < b.id ? -1 : 1));
}

function matches(job: Job, words: readonly string[]): boolean {
  if (!words.length) {
    return true;
  }
  const text = [job.id, job.name, job.user, job.state, job.command, ...job.nodes].join(' ').toLowerCase();
  return words.every((word) => text.includes(word));
}

export interface IJobCounts {
  waiting: number;
  running: number;
  myWaiting: number;
  myRunning: number;
}

export function jobCounts(store: Store): IJobCounts {
  const user = store.cluster?.user ?? '';
  const counts = { waiting: 0, running: 0, myWaiting: 0, myRunning: 0 };
  for (const job of store.jobs.values()) {
    if (isFinal(job)) {
      continue;
    }
    const mine = job.user === user ? 1 : 0;
    if (job.state === 'queued') {
      counts.waiting += 1;
      counts.myWaiting += mine;
    } else {
      counts.running += 1;
      counts.myRunning += mine;
    }
  }
  return counts;
}

const BUSY = 0;
const POWER = 3;

/** One reading of all GPUs of a job that report it; ranks may share a GPU. */
function readingsOf(store: Store, job: Job, which: typeof BUSY | typeof POWER): number[] {
  const seen = new Map<string, number>();
  for (const placement of job.placements) {
    const reading = store.readings.get(placement.node);
    for (const index of placement.gpu_indices) {
      const value = reading?.gpus.get(index)?.[which] ?? null;
      if (value !== null) {
        seen.set(`${placement.node} ${index}`, value);
      }
    }
  }
  return [...seen.values()];
}

/** How many GPUs the waiting jobs ask for. */
export function wantedGpus(store: Store): number {
  return [...store.jobs.values()].reduce((sum, job) => sum + (job.state === 'queued' ? job.gpus : 0), 0);
}

/** How busy the GPUs of a job are now, in percent; null when none of them reports it. */
export function jobBusy(store: Store, job: Job): number | null {
  const told = readingsOf(store, job, BUSY);
  return told.length ? told.reduce((sum, one) => sum + one, 0) / told.length : null;
}

/** The power of all GPUs of a job now, in watts; null when none of them reports it. */
export function jobPower(store: Store, job: Job): number | null {
  const told = readingsOf(store, job, POWER);
  return told.length ? told.reduce((sum, one) => sum + one, 0) : null;
}

/** A GPU that is much less busy than the median delays the others. */
export function isSlow(gpu: GpuUsage, all: readonly GpuUsage[]): boolean {
  const told = all.flatMap((one) => (one.busy_mean === null ? [] : [one.busy_mean])).sort((a, b) => a - b);
  const middle = told[Math.floor(told.length / 2)] ?? 0;
  return told.length > 2 && gpu.busy_mean !== null && gpu.busy_mean < middle * 0.75;
}
