/** What happens until a job starts, as lanes of bars: a lane for each node, from now on. Pure. */
import type { Explanation, Job, Planned } from '../api/types.gen';
import type { Store } from './store';

export interface IBar {
  readonly kind: 'held' | 'this' | 'waiting';
  readonly from: number;
  readonly to: number;
  /** Its end is unknown. */
  readonly open: boolean;
  readonly jobs: readonly string[];
}

export interface ILane {
  readonly node: string;
  readonly bars: readonly IBar[];
}

export interface IPlan {
  readonly from: number;
  readonly to: number;
  readonly start: number;
  readonly lanes: readonly ILane[];
}

const LEAST_S = 60;

/** The job's own entry; the server puts it first, and a request that is not submitted has no id. */
export function ownOf(answer: Explanation): Planned | null {
  const id = answer.job_id ?? '';
  return answer.plan.find((one) => one.job_id === id && one.start_at !== null) ?? null;
}

export function planOf(answer: Explanation, now: number): IPlan | null {
  const own = ownOf(answer);
  if (own === null || own.start_at === null) {
    return null;
  }
  const start = Math.max(own.start_at, now);
  const known = answer.plan.flatMap((one) => [one.start_at, one.end_at]).filter((at): at is number => at !== null);
  // bars that end long after are cut: what matters is the time before the start and a while after it
  const to = Math.min(Math.max(start + LEAST_S, ...known), now + Math.max(LEAST_S, (start - now) * 5));
  const nodes = [...new Set([...own.nodes, ...answer.plan.flatMap((one) => one.nodes)])].sort(byName);
  return { from: now, to, start, lanes: nodes.map((node) => ({ node, bars: barsOf(answer, own, node, now, start, to) })) };
}

const { compare: byName } = new Intl.Collator('en', { numeric: true });

function barsOf(answer: Explanation, own: Planned, node: string, now: number, start: number, to: number): IBar[] {
  const here = answer.plan.filter((one) => one.nodes.includes(node));
  const bars: IBar[] = [];
  const held = here.filter((one) => one.start_at === null);
  if (held.length) {
    const mine = own.nodes.includes(node);
    const open = held.some((one) => one.end_at === null);
    const last = open ? to : Math.max(...held.map((one) => one.end_at ?? to));
    // one bar for all who have it: where this job follows, up to its start
    bars.push({ kind: 'held', from: now, to: Math.min(mine ? start : to, Math.max(last, now)), open, jobs: held.map((one) => one.job_id) });
  }
  for (const one of here) {
    if (one.start_at !== null && one.start_at < to) {
      const from = Math.max(one.start_at, now);
      bars.push({
        kind: one === own ? 'this' : 'waiting',
        from,
        to: Math.min(to, Math.max(from, one.end_at ?? to)),
        open: one.end_at === null || one.end_at > to,
        jobs: [one.job_id],
      });
    }
  }
  return bars.sort((a, b) => a.from - b.from);
}

/** Round times between two, about this many. */
export function ticksOf(from: number, to: number, most = 6): number[] {
  const steps = [60, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 7 * 86_400];
  const step = steps.find((one) => (to - from) / one <= most) ?? 30 * 86_400;
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const out: number[] = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at < to; at += step) {
    out.push(at);
  }
  return out;
}

/** The last job that must end first on the nodes of a job, and when. */
export function lastInTheWay(answer: Explanation): Planned | null {
  const own = ownOf(answer);
  const inTheWay = answer.plan.filter(
    (one) =>
      one.start_at === null &&
      one.end_at !== null &&
      own !== null &&
      one.end_at <= (own.start_at ?? 0) + 1 &&
      one.nodes.some((node) => own.nodes.includes(node)),
  );
  return latest(inTheWay);
}

/** The one that ends last. */
export function latest(planned: readonly Planned[]): Planned | null {
  return planned.reduce<Planned | null>((last, one) => (last === null || (one.end_at ?? 0) > (last.end_at ?? 0) ? one : last), null);
}

/** Jobs in the way without a limit: their end is a guess. */
export function guessed(answer: Explanation, store: Store): Job[] {
  return answer.plan.flatMap((one) => {
    const job = store.jobs.get(one.job_id);
    return one.start_at === null && job !== undefined && job.time_limit_s === null ? [job] : [];
  });
}
