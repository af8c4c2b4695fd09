/**
 * Which news of their jobs somebody would otherwise miss, and when it is time to tell them. Pure: sight, clock and settings are arguments.
 *
 * What a cell in sight shows needs no words. Ends that follow each other are told together, and of a short job only the end.
 */
import { type IEvent, isBad } from './notices';
import { isFinal, type Store } from './store';

/** Where a job is shown: in sight, in a cell or view that is out of sight, or in none. */
export type Place = 'seen' | 'unseen' | 'nowhere';

/** What people set. */
export interface IRules {
  /** Starts of jobs that had to wait. */
  readonly start: boolean;
  readonly end: boolean;
  /** Jobs that fail or reach their time limit. */
  readonly failure: boolean;
  readonly background: boolean;
  /** Cells that are out of sight. */
  readonly unseen: boolean;
  /** Jobs that took long, wherever they are shown. */
  readonly long: boolean;
  /** What is long. */
  readonly seconds: number;
}

/** Nothing more happens for so long: what has happened is told. */
export const QUIET_S = 2;
/** It is told after so long even if more happens all the time. */
export const LATEST_S = 20;
/** A job that ends within this time is not told to have started. */
export const SHORT_S = 10;

export function isMissed(event: IEvent, place: Place, rules: IRules, user: string): boolean {
  const { job } = event;
  const isLong = (until: number | null): boolean => until !== null && until - job.submitted_at >= rules.seconds;
  if (event.kind === 'started') {
    return rules.start && isLong(job.started_at);
  }
  if (job.state === 'cancelled' && job.reason === `Cancelled by ${user}.`) {
    return false; // they know
  }
  if (!(isBad(job) ? rules.failure : rules.end)) {
    return false;
  }
  const isAway = (place === 'nowhere' && rules.background) || (place === 'unseen' && rules.unseen);
  return isAway || (rules.long && isLong(job.ended_at));
}

/** An event that waits to be told. */
export interface IHeld {
  readonly event: IEvent;
  /** It was in sight when it happened. */
  readonly seen: boolean;
  /** Somebody wants to be told of this very job. */
  readonly asked: boolean;
}

/** What has happened and is not told yet. */
export class Held {
  private readonly _starts = new Map<string, IHeld & { readonly at: number }>();
  private readonly _ends = new Map<string, IHeld>();
  private _quietAt: number | null = null;
  private _latestAt = 0;

  /** Take an event; a start that somebody asked for does not wait for the job to last. */
  add(held: IHeld, now: number): void {
    const { id } = held.event.job;
    this._starts.delete(id); // an end makes it old
    if (held.event.kind === 'started') {
      this._starts.set(id, { ...held, at: now + (held.asked ? QUIET_S : SHORT_S) });
      return;
    }
    this._ends.set(id, held);
    this._latestAt = this._quietAt === null ? now + LATEST_S : this._latestAt;
    this._quietAt = now + QUIET_S;
  }

  /** When to ask next; null while there is nothing to wait for. */
  next(): number | null {
    const times = [...this._starts.values()].map((one) => one.at);
    if (this._quietAt !== null) {
      times.push(Math.min(this._quietAt, this._latestAt));
    }
    return times.length ? Math.min(...times) : null;
  }

  /** What is to be told now, oldest first; jobs of an array only when none of it goes on. */
  due(now: number, store: Store): IHeld[] {
    const out: IHeld[] = [...this._starts.values()].filter((one) => one.at <= now);
    for (const one of out) {
      this._starts.delete(one.event.job.id);
    }
    if (this._quietAt === null || now < Math.min(this._quietAt, this._latestAt)) {
      return out;
    }
    this._quietAt = null;
    const going = new Set([...store.jobs.values()].filter((job) => !isFinal(job)).map((job) => job.array_id));
    for (const [id, one] of this._ends) {
      const array = one.event.job.array_id;
      if (array === null || array === undefined || !going.has(array)) {
        this._ends.delete(id);
        out.push(one);
      }
    }
    return out;
  }
}
