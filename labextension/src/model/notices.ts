/** What happens to somebody's jobs, once for each job and event, and what is said of it. Pure. */
import type { Job } from '../api/types.gen';
import { duration, middle, moment, plain } from '../text/format';
import { exitText, type ITrans, jobName, nodeList, withoutStop } from '../text/words';
import { isFinal, type Store } from './store';
import type { Wishes } from './wishes';

/** A job of one's own has started, or is over. */
export interface IEvent {
  readonly kind: 'started' | 'ended';
  readonly job: Job;
}

export interface INotice {
  readonly kind: 'started' | 'ended' | 'moved';
  readonly bad: boolean;
  readonly title: string;
  readonly text: string;
  /** The job to open; empty when it is about several. */
  readonly job: string;
}

/** What happens within this time is added to the notification that is there. */
export const GATHER_S = 300;
const NAMED = 3;
const NAME_CHARS = 60;
const NAME_CHARS_OF_SEVERAL = 24;

export function isBad(job: Job): boolean {
  return job.state === 'failed' || job.state === 'timeout';
}

/** Notify about jobs whose expected start moved, for users who asked for that. */
export function moved(store: Store, wishes: Wishes, now: number, trans: ITrans): INotice[] {
  return wishes.watched().flatMap((id) => {
    const job = store.jobs.get(id);
    const at = job?.state === 'queued' ? store.expectedStart(job) : null;
    const before = at === null ? null : wishes.moved(id, at);
    if (job === undefined || at === null || before === null) {
      return [];
    }
    const title = trans.__('“%1” is expected at %2', middle(jobName(job), NAME_CHARS), moment(at, now));
    const text = at > before ? trans.__('%1 later', duration(at - before)) : trans.__('%1 sooner', duration(before - at));
    return [{ kind: 'moved' as const, bad: false, title, text, job: id }];
  });
}

export class Notices {
  private readonly _known = new Map<string, string>();
  private _user = '';

  /** What has happened since the last look; nothing of what was so when the page was opened. */
  look(store: Store, ids: Iterable<string>, fresh: boolean): IEvent[] {
    const user = store.cluster?.user ?? '';
    const first = fresh || user !== this._user;
    this._user = user;
    const events: IEvent[] = [];
    for (const id of ids) {
      const job = store.jobs.get(id);
      if (job === undefined || job.user !== user) {
        this._known.delete(id);
        continue;
      }
      const before = this._known.get(id);
      const key = `${job.state} ${job.attempt}`;
      this._known.set(id, key);
      if (first && before === undefined) {
        continue;
      }
      const was = before?.split(' ')[0] ?? 'queued';
      if (isFinal(job) && !FINAL.has(was)) {
        events.push({ kind: 'ended', job });
      } else if (job.state === 'running' && was !== 'running' && was !== 'stopping') {
        events.push({ kind: 'started', job });
      }
    }
    return events;
  }
}

const FINAL = new Set(['completed', 'failed', 'cancelled', 'timeout']);

/** The one notification about jobs: what happens while it is there is added to it. */
export class Told {
  private readonly _events = new Map<string, IEvent>();
  private _at = Number.NEGATIVE_INFINITY;

  /** Return what it says from now on; `isThere` tells whether nobody has closed it. */
  say(events: readonly IEvent[], now: number, isThere: boolean, trans: ITrans): INotice {
    if (!isThere || now - this._at > GATHER_S) {
      this._events.clear();
    }
    this._at = now;
    for (const event of events) {
      this._events.delete(event.job.id);
      this._events.set(event.job.id, event);
    }
    return noticeOf([...this._events.values()].reverse(), trans);
  }

  /** Whether what happens now is added to what was told last. */
  goesOn(now: number): boolean {
    return now - this._at <= GATHER_S;
  }
}

/** The words for one event, or for several, of which the first is the newest. */
export function noticeOf(events: readonly IEvent[], trans: ITrans): INotice {
  const [first] = events;
  if (events.length === 1 && first !== undefined) {
    return first.kind === 'started' ? startNotice(first.job, trans) : endNotice(first.job, trans);
  }
  const starts = events.filter((event) => event.kind === 'started').length;
  const failed = events.filter((event) => event.kind === 'ended' && isBad(event.job)).length;
  return {
    kind: starts === events.length ? 'started' : 'ended',
    bad: failed > 0,
    title: countText(events.length, starts, failed, trans),
    text: names(events, trans),
    job: '',
  };
}

function countText(all: number, starts: number, failed: number, trans: ITrans): string {
  if (starts === all) {
    return trans._n('%1 job started', '%1 jobs started', all);
  }
  if (starts === 0) {
    return failed
      ? trans._n('%1 job ended, %2 failed', '%1 jobs ended, %2 failed', all, failed)
      : trans._n('%1 job ended', '%1 jobs ended', all);
  }
  return failed
    ? trans._n('%1 job started or ended, %2 failed', '%1 jobs started or ended, %2 failed', all, failed)
    : trans._n('%1 job started or ended', '%1 jobs started or ended', all);
}

function names(events: readonly IEvent[], trans: ITrans): string {
  const shown = events.slice(0, NAMED).map((event) => trans.__('“%1”', middle(jobName(event.job), NAME_CHARS_OF_SEVERAL)));
  return events.length > NAMED ? `${shown.join(', ')} + ${events.length - NAMED}` : shown.join(', ');
}

function startNotice(job: Job, trans: ITrans): INotice {
  const nodes = nodeList(job.nodes);
  return {
    kind: 'started',
    bad: false,
    title: trans.__('“%1” started', middle(jobName(job), NAME_CHARS)),
    text:
      job.started_at === null ? trans.__('on %1', nodes) : trans.__('on %1, after %2', nodes, duration(job.started_at - job.submitted_at)),
    job: job.id,
  };
}

function endNotice(job: Job, trans: ITrans): INotice {
  const name = middle(jobName(job), NAME_CHARS);
  const ran = job.started_at === null || job.ended_at === null ? null : duration(job.ended_at - job.started_at);
  const after = ran === null ? '' : trans.__('after %1', ran);
  const reason = withoutStop(plain(job.reason));
  const of = (bad: boolean, title: string, text: string): INotice => ({ kind: 'ended', bad, title, text, job: job.id });
  switch (job.state) {
    case 'completed':
      return of(false, trans.__('“%1” is done', name), exitText(job, ran, trans) || after);
    case 'cancelled':
      return of(false, trans.__('“%1” was cancelled', name), reason || after);
    case 'timeout':
      return of(true, trans.__('“%1” reached its time limit', name), after);
    default:
      return of(true, trans.__('“%1” failed', name), exitText(job, ran, trans) || after || reason);
  }
}
