/**
 * Rows of jobs, as in `mgpu_jupyter/client/queue_columns.py`: what a row is, and the text of each of its columns. Pure. A new column is a
 * new line of COLUMNS; lists draw all of them.
 */
import type { Job } from '../api/types.gen';
import { plain, size } from '../text/format';
import { endedLine, type ITrans, jobLine, jobName, jobTime } from '../text/words';
import { isFinal, type Store } from './store';

/** What is known in addition to the job itself. */
interface IAround {
  readonly store: Store;
  readonly now: number;
  readonly trans: ITrans;
  /** For a job that is over: how many GPUs were busy on average. */
  readonly used: number | null;
}

export interface IColumn {
  readonly name: string;
  /** After the name, at the right, or on the second line. */
  readonly at: 'head' | 'end' | 'below';
  readonly words: (job: Job, around: IAround) => string;
  /** Digits of one width. */
  readonly number?: boolean;
  /** Only where jobs of several users are shown. */
  readonly amongUsers?: boolean;
}

/** The first is the job's own name, by which a row is opened. */
export const COLUMNS: readonly IColumn[] = [
  { name: 'name', at: 'head', words: (job) => jobName(job) },
  { name: 'size', at: 'head', number: true, words: (job) => size(job.nodes_wanted, job.gpus) },
  { name: 'user', at: 'head', amongUsers: true, words: (job) => plain(job.user) },
  {
    name: 'line',
    at: 'below',
    words: (job, { store, now, trans, used }) => (isFinal(job) ? endedLine(job, used, trans) : jobLine(job, store, now, trans)),
  },
  { name: 'time', at: 'end', number: true, words: (job, { store, now, trans }) => jobTime(job, store, now, trans) },
];

export interface IJobRow {
  readonly job: Job;
  readonly held: boolean;
  readonly mine: boolean;
  /** Text by the name of its column. */
  readonly cells: Readonly<Record<string, string>>;
}

function made(job: Job, around: IAround, held: boolean): IJobRow {
  const cells = Object.fromEntries(COLUMNS.map((column) => [column.name, column.words(job, around)]));
  return { job, held, mine: job.user === around.store.cluster?.user, cells };
}

interface IKnown {
  readonly place: number | null;
  readonly code: string;
  readonly reason: string;
  readonly expected: number | null;
  readonly now: number;
  readonly row: IJobRow;
}

const known = new WeakMap<Job, IKnown>(); // the store replaces a job that changes

/**
 * The row of a waiting or running job. Those of waiting ones are made again only when something in them changed: there are thousands, and
 * few change in a second.
 */
export function activeRow(job: Job, store: Store, now: number, trans: ITrans): IJobRow {
  const around = { store, now, trans, used: null };
  if (job.state !== 'queued') {
    return made(job, around, false);
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
  const row = made(job, around, code === 'held');
  known.set(job, { place, code, reason, expected, now, row });
  return row;
}

/** The row of a job that is over. */
export function endedRow(job: Job, used: number | null, store: Store, now: number, trans: ITrans): IJobRow {
  return made(job, { store, now, trans, used }, false);
}
