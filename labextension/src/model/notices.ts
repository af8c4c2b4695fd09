/** What a person is told of their jobs: that they started and how they ended. Pure; once for each job and event. */
import type { Job } from '../api/types.gen';
import { duration, moment } from '../text/format';
import { type ITrans, jobName, nodeList } from '../text/words';
import { isFinal, type Store } from './store';
import type { Wishes } from './wishes';

export interface INotice {
  readonly kind: 'started' | 'ended' | 'moved';
  readonly bad: boolean;
  readonly title: string;
  readonly text: string;
  /** The job to open; empty when it is about several. */
  readonly job: string;
}

const SEVERAL = 3;

/** Tell of jobs whose expected start moved, for those who asked for that. */
export function moved(store: Store, wishes: Wishes, now: number, trans: ITrans): INotice[] {
  return wishes.watched().flatMap((id) => {
    const job = store.jobs.get(id);
    const at = job?.state === 'queued' ? store.expectedStart(job) : null;
    const before = at === null ? null : wishes.moved(id, at);
    if (job === undefined || at === null || before === null) {
      return [];
    }
    const title = trans.__('%1 is expected at %2', jobName(job), moment(at, now));
    const text = at > before ? trans.__('%1 later', duration(at - before)) : trans.__('%1 sooner', duration(before - at));
    return [{ kind: 'moved' as const, bad: false, title, text, job: id }];
  });
}

export class Notices {
  private readonly _known = new Map<string, string>();
  private _user = '';

  /** What is to be told now; nothing about what was so when the page was opened. */
  look(store: Store, ids: Iterable<string>, fresh: boolean, trans: ITrans): INotice[] {
    const user = store.cluster?.user ?? '';
    const first = fresh || user !== this._user;
    this._user = user;
    const started: Job[] = [];
    const ended: Job[] = [];
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
        ended.push(job);
      } else if (job.state === 'running' && was !== 'running' && was !== 'stopping') {
        started.push(job);
      }
    }
    return [...gathered(started, 'started', trans), ...gathered(ended, 'ended', trans)];
  }
}

const FINAL = new Set(['completed', 'failed', 'cancelled', 'timeout']);

function gathered(jobs: readonly Job[], kind: INotice['kind'], trans: ITrans): INotice[] {
  if (jobs.length < SEVERAL) {
    return jobs.map((job) => (kind === 'started' ? startNotice(job, trans) : endNotice(job, trans)));
  }
  const failed = jobs.filter((job) => job.state === 'failed' || job.state === 'timeout').length;
  const title =
    kind === 'started'
      ? trans.__('%1 jobs started', jobs.length)
      : trans.__('%1 jobs ended', jobs.length) + (failed ? trans.__(', %1 failed', failed) : '');
  return [{ kind, bad: failed > 0, title, text: '', job: '' }];
}

function startNotice(job: Job, trans: ITrans): INotice {
  const waited = job.started_at === null ? '' : trans.__(', after %1', duration(job.started_at - job.submitted_at));
  return {
    kind: 'started',
    bad: false,
    title: trans.__('%1 started', jobName(job)),
    text: trans.__('on %1', nodeList(job.nodes)) + waited,
    job: job.id,
  };
}

function endNotice(job: Job, trans: ITrans): INotice {
  const name = jobName(job);
  const ran = job.started_at === null || job.ended_at === null ? '' : trans.__('after %1', duration(job.ended_at - job.started_at));
  const exit =
    job.exit_code === null
      ? ''
      : trans.__('exit %1', job.exit_code) + (job.failure === null ? '' : trans.__(' on rank %1', job.failure.rank));
  const text = [exit, ran].filter(Boolean).join(', ');
  switch (job.state) {
    case 'completed':
      return { kind: 'ended', bad: false, title: trans.__('%1 is done', name), text, job: job.id };
    case 'cancelled':
      return { kind: 'ended', bad: false, title: trans.__('%1 was cancelled', name), text: ran, job: job.id };
    case 'timeout':
      return { kind: 'ended', bad: true, title: trans.__('%1 reached its time limit', name), text: ran, job: job.id };
    default:
      return { kind: 'ended', bad: true, title: trans.__('%1 failed', name), text, job: job.id };
  }
}
