/**
 * What this page knows of the cluster: snapshots and frames in, one consistent state and the names of what changed out.
 *
 * Pure: no requests, no clock, no text. Nodes, readings and jobs are replaced and never changed in place, so that a view can tell by
 * identity whether it must draw.
 */
import type { Cluster, Job, Node, QueueFrame, SamplesFrame, StreamEventsFrame } from '../api/types.gen';

export const ENDED_KEPT = 500;
const FINAL = new Set(['completed', 'failed', 'cancelled', 'timeout']);

/** Busy in percent, memory in MiB, °C, W. */
export type GpuReading = readonly [number | null, number | null, number | null, number | null];

/** The newest readings of one node. */
export interface IReading {
  readonly cpu: number | null;
  readonly memoryAvailableMib: number | null;
  readonly gpus: ReadonlyMap<number, GpuReading>;
}

/** What a frame or a snapshot changed. */
export interface IChanges {
  readonly nodes: Set<string>;
  readonly readings: Set<string>;
  readonly jobs: Set<string>;
  queue: boolean;
  cluster: boolean;
}

export function noChanges(): IChanges {
  return { nodes: new Set(), readings: new Set(), jobs: new Set(), queue: false, cluster: false };
}

export function isFinal(job: Job): boolean {
  return FINAL.has(job.state);
}

export class Store {
  cluster: Cluster | null = null;
  readonly nodes = new Map<string, Node>();
  readonly readings = new Map<string, IReading>();
  readonly jobs = new Map<string, Job>();
  /** Ids of the jobs in the queue, the next one first. */
  queue: readonly string[] = [];
  /** Resume the stream from here. */
  seq = -1;
  queueVersion: number | null = null;
  /** Ask for cluster, nodes and jobs again: the stream cannot be continued. */
  needsSnapshot = true;
  private readonly _reasons = new Map<string, readonly [string, string]>();
  private readonly _why = new Map<string, number>();
  private readonly _expected = new Map<string, number | null>();
  private readonly _places = new Map<string, number>();

  /** The place of a job in the queue, 1 for the next one; null for one that is not in it. */
  place(id: string): number | null {
    return this._places.get(id) ?? null;
  }

  /** When a job is expected to start, if that is known. */
  expectedStart(job: Job): number | null {
    const told = this._expected.get(job.id);
    return told === undefined ? job.expected_start_at : told;
  }

  /** Why a job waits, as code and text. */
  reason(job: Job): readonly [string, string] {
    const number = this._why.get(job.id);
    const told = number === undefined ? undefined : this._reasons.get(String(number));
    return told ?? [job.reason_code, job.reason];
  }

  /** Start over from the server's lists. */
  reset(cluster: Cluster, nodes: readonly Node[], jobs: readonly Job[], ended: readonly Job[] = []): IChanges {
    const changes = noChanges();
    for (const id of this.nodes.keys()) {
      changes.nodes.add(id);
    }
    for (const id of this.jobs.keys()) {
      changes.jobs.add(id);
    }
    this.cluster = cluster;
    this.seq = cluster.seq;
    this.needsSnapshot = false;
    this.nodes.clear();
    this.readings.clear();
    this.jobs.clear();
    for (const node of nodes) {
      this._setNode(node);
      changes.nodes.add(node.id);
      changes.readings.add(node.id);
    }
    for (const job of [...ended, ...jobs]) {
      this.jobs.set(job.id, job);
      changes.jobs.add(job.id);
    }
    changes.cluster = true;
    return changes;
  }

  /** Take one frame of the stream. */
  apply(frame: StreamEventsFrame, changes: IChanges = noChanges()): IChanges {
    switch (frame.type) {
      case 'job':
        this.seq = Math.max(this.seq, frame.seq);
        this._setJob(frame.job);
        changes.jobs.add(frame.job.id);
        break;
      case 'node':
        this.seq = Math.max(this.seq, frame.seq);
        this._setNode(frame.node);
        changes.nodes.add(frame.node.id);
        changes.readings.add(frame.node.id);
        break;
      case 'samples':
        this._samples(frame, changes);
        break;
      case 'queue':
        this._queue(frame);
        changes.queue = true;
        break;
      case 'gone':
        this.seq = Math.max(this.seq, frame.seq);
        for (const id of frame.nodes ?? []) {
          this.nodes.delete(id);
          this.readings.delete(id);
          changes.nodes.add(id);
        }
        for (const id of frame.jobs ?? []) {
          this.jobs.delete(id);
          changes.jobs.add(id);
        }
        break;
      case 'reset':
        this.seq = frame.seq;
        this.needsSnapshot = true;
        break;
      case 'ready':
        this.seq = Math.max(this.seq, frame.seq);
        break;
      case 'ping':
        break;
    }
    return changes;
  }

  private _setJob(job: Job): void {
    this.jobs.delete(job.id); // the newest change is last, so that the oldest ended jobs are found first
    this.jobs.set(job.id, job);
    if (isFinal(job)) {
      this._forgetOldest();
    }
  }

  private _forgetOldest(): void {
    let ended = 0;
    for (const job of this.jobs.values()) {
      ended += isFinal(job) ? 1 : 0;
    }
    for (const job of this.jobs.values()) {
      if (ended <= ENDED_KEPT) {
        return;
      }
      if (isFinal(job)) {
        this.jobs.delete(job.id);
        ended -= 1;
      }
    }
  }

  private _setNode(node: Node): void {
    this.nodes.set(node.id, node);
    this.readings.set(node.id, {
      cpu: node.cpu_percent,
      memoryAvailableMib: node.memory_available_bytes === null ? null : Math.round(node.memory_available_bytes / 2 ** 20),
      gpus: new Map(
        node.gpus.map((gpu) => [
          gpu.index,
          [
            gpu.utilisation_percent,
            gpu.memory_used_bytes === null ? null : Math.round(gpu.memory_used_bytes / 2 ** 20),
            gpu.temperature_c,
            gpu.power_w,
          ] as const,
        ]),
      ),
    });
  }

  private _samples(frame: SamplesFrame, changes: IChanges): void {
    for (const [id, told] of Object.entries(frame.nodes)) {
      const before = this.readings.get(id);
      const gpus = new Map(before?.gpus);
      for (const [index, reading] of Object.entries(told.gpus ?? {})) {
        gpus.set(Number(index), reading);
      }
      this.readings.set(id, {
        cpu: told.cpu === undefined ? (before?.cpu ?? null) : told.cpu,
        memoryAvailableMib: told.memory_available_mib === undefined ? (before?.memoryAvailableMib ?? null) : told.memory_available_mib,
        gpus,
      });
      changes.readings.add(id);
    }
  }

  private _queue(frame: QueueFrame): void {
    const whole = frame.base === undefined || frame.base === null;
    if (whole) {
      this._reasons.clear();
      this._why.clear();
      this._expected.clear();
    }
    const removed = new Set(frame.removed ?? []);
    const order = whole ? [] : this.queue.filter((id) => !removed.has(id));
    const again = new Set<string>();
    for (const [index, ids] of frame.inserted ?? []) {
      order.splice(index, 0, ...ids);
      for (const id of ids) {
        again.add(id);
      }
    }
    for (const id of removed) {
      if (!again.has(id)) {
        this._why.delete(id);
        this._expected.delete(id);
      }
    }
    for (const [number, reason] of Object.entries(frame.reasons ?? {})) {
      this._reasons.set(number, reason);
    }
    for (const [id, number] of Object.entries(frame.why ?? {})) {
      this._why.set(id, number);
    }
    for (const [id, at] of Object.entries(frame.expected ?? {})) {
      this._expected.set(id, at);
    }
    this.queue = order;
    this.queueVersion = frame.version;
    this._places.clear();
    order.forEach((id, index) => {
      this._places.set(id, index + 1);
    });
  }
}
