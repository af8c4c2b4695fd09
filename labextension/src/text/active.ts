/** Rows of jobs that wait or run. Those that wait are made again only when something in them changed: there are thousands, and a second changes few. */
import type { Job } from '../api/types.gen';
import type { Store } from '../model/store';
import { type ITrans, jobLine, jobTime } from './words';

export interface IActiveRow {
  readonly job: Job;
  readonly line: string;
  readonly time: string;
  readonly held: boolean;
}

interface IKnown {
  readonly place: number | null;
  readonly code: string;
  readonly reason: string;
  readonly expected: number | null;
  readonly now: number;
  readonly row: IActiveRow;
}

const known = new WeakMap<Job, IKnown>(); // the store replaces a job that changes

export function activeRow(job: Job, store: Store, now: number, trans: ITrans): IActiveRow {
  if (job.state !== 'queued') {
    return { job, line: jobLine(job, store, now, trans), time: jobTime(job, store, now, trans), held: false };
  }
  const place = store.place(job.id);
  const [code, reason] = store.reason(job);
  const expected = store.expectedStart(job);
  const last = known.get(job);
  if (
    last !== undefined &&
    last.place === place &&
    last.code === code &&
    last.reason === reason &&
    last.expected === expected &&
    last.now === now
  ) {
    return last.row;
  }
  const row = { job, line: jobLine(job, store, now, trans), time: jobTime(job, store, now, trans), held: code === 'held' };
  known.set(job, { place, code, reason, expected, now, row });
  return row;
}
