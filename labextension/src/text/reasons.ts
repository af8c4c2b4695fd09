/** Why a job waits and what would change that, in sentences. Pure. */
import type { Explanation, Job, Node, Offer, Where } from '../api/types.gen';
import { guessed, lastInTheWay, latest, ownOf } from '../model/plan';
import type { Store } from '../model/store';
import { clock, duration, moment, plain, ranges } from './format';
import { gpuKind, type ITrans, jobName } from './words';

/** gpu-03 (GPUs 6, 7) and gpu-04 (GPUs 5, 6). */
export function whereText(where: readonly Where[], trans: ITrans): string {
  return listed(
    where.map(({ node, gpus }) => {
      const which = gpus.length === 0 ? '' : gpus.length === 1 ? trans.__(' (GPU %1)', ranges(gpus)) : trans.__(' (GPUs %1)', ranges(gpus));
      return plain(node) + which;
    }),
    trans,
  );
}

/** a, b and c. */
export function listed(names: readonly string[], trans: ITrans): string {
  return names.length < 2 ? (names[0] ?? '') : trans.__('%1 and %2', names.slice(0, -1).join(', '), names[names.length - 1]);
}

/** 38 minutes; below two minutes in seconds, from two hours on short. */
export function spoken(seconds: number, trans: ITrans): string {
  if (seconds < 120) {
    return trans._n('%1 second', '%1 seconds', Math.max(1, Math.round(seconds)));
  }
  return seconds < 7200 ? trans._n('%1 minute', '%1 minutes', Math.round(seconds / 60)) : duration(seconds);
}

/** The first line: when, and where. */
export function headline(answer: Explanation, now: number, trans: ITrans): string {
  const on = (nodes: readonly string[]): string => (nodes.length ? trans.__(' on %1', listed(nodes.map(plain), trans)) : '');
  const there = on(answer.where.map((one) => one.node));
  switch (answer.verdict) {
    case 'now':
      return trans.__('Starts now%1.', there);
    case 'never':
      return trans.__('Can never start here.');
    case 'not_now': {
      const { at, later_than: later } = answer.expected;
      if (at !== null) {
        const place = on(ownOf(answer)?.nodes ?? []);
        return trans.__('Starts at about %1, in %2%3.', moment(at, now), spoken(at - now, trans), place && `,${place}`);
      }
      return later === null ? trans.__('Start not known.') : trans.__('Starts later than %1.', moment(later, now));
    }
    case 'started':
      return trans.__('It started%1.', there);
    case 'over':
      return trans.__('It is over.');
  }
}

/** The reason without what the first line already says. */
export function reasonText(answer: Explanation): string {
  const text = plain(answer.text).replace(/^(Not now|Never on the nodes that are known): /, '');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Who ends last before the job starts: the name for a link, and the text around it. */
export function inTheWay(
  answer: Explanation,
  store: Store,
  now: number,
  trans: ITrans,
): { before: string; job: Job; after: string } | null {
  const last = lastInTheWay(answer);
  const job = last === null ? undefined : store.jobs.get(last.job_id);
  if (last === null || last.end_at === null || job === undefined) {
    return null;
  }
  const end = job.time_limit_s === null ? trans.__('is expected to end') : trans.__('reaches its time limit');
  return {
    before: trans.__('At %1 the last job in the way, ', moment(Math.max(last.end_at, now), now)),
    job,
    after: trans.__(' of %1, %2.', plain(job.user), end),
  };
}

/** Why a job further behind may start before those ahead; empty when none is overtaken. */
export function backfill(answer: Explanation, store: Store, now: number, trans: ITrans): string {
  const own = ownOf(answer);
  const first = answer.ahead[0];
  const ahead = first === undefined ? undefined : store.jobs.get(first.job_id);
  const then = ahead === undefined ? null : store.expectedStart(ahead);
  if (first === undefined || ahead === undefined || then === null || own === null || own.start_at === null || own.start_at >= then) {
    return '';
  }
  if (own.end_at === null || own.end_at > then) {
    return trans.__('Starts before place 1: it takes nothing that %1 waits for.', jobName(ahead));
  }
  return trans.__(
    'Starts before place 1: it ends by %1, before %2 can have its %3 GPUs at %4.',
    moment(own.end_at, now),
    jobName(ahead),
    first.gpus,
    moment(then, now),
  );
}

/** How sure the expected start is. */
export function howSure(answer: Explanation, store: Store, trans: ITrans): string {
  if (answer.expected.at === null) {
    return answer.expected.later_than === null
      ? trans.__('Nothing that is known now says when: jobs in the way have no end that is planned, or nodes are away.')
      : trans.__('It was looked ahead as far as that; those ahead are many.');
  }
  const loose = guessed(answer, store);
  const guess = loose.length
    ? ` ${trans.__('%1 has no time limit: its end is a guess.', listed(loose.slice(0, 2).map(jobName), trans))}`
    : '';
  return answer.expected.promised
    ? trans.__(
        'It is the latest start if jobs keep to their limits; they may end sooner. Nobody who comes later may delay it; a node that fails may.',
      ) + guess
    : trans.__(
        'It is the latest start if jobs keep to their limits; they may end sooner. It moves if a job with higher priority comes or a node fails.',
      ) + guess;
}

/** What an offer is and what it costs, based on where it would start; the server's own words where the size does not change. */
export function offerWords(offer: Offer, job: Job, nodes: ReadonlyMap<string, Node>, trans: ITrans): { title: string; cost: string } {
  const counts = offer.where.map((one) => one.gpus.length);
  const sum = counts.reduce((all, one) => all + one, 0);
  const even = counts.length > 0 && counts.every((one) => one === counts[0]) && sum > 0;
  const changesSize = ['nodes', 'gpus', 'gpus_per_node', 'gpu_type'].some((field) => field in offer.patch);
  const names = listed(
    offer.where.map((one) => plain(one.node)),
    trans,
  );
  if (!even || !changesSize) {
    return { title: plain(offer.text), cost: names ? `${names}.` : '' };
  }
  const kinds = new Set(offer.where.flatMap(({ node, gpus }) => gpus.map((index) => kindAt(nodes.get(node), index))));
  const kind = kinds.size === 1 && !kinds.has('sim') ? [...kinds][0] : trans.__('GPUs');
  const loss = sum === job.gpus ? '' : sum * 2 === job.gpus ? trans.__(' Half the GPUs.') : trans.__(' %1 of %2 GPUs.', sum, job.gpus);
  return { title: `${counts.length} × ${counts[0]} ${kind}`, cost: `${names}.${loss}` };
}

function kindAt(node: Node | undefined, index: number): string {
  return gpuKind(node?.gpus.find((gpu) => gpu.index === index)?.name ?? '');
}

/** What is no longer available of an offer: the first of its nodes. */
export function goneText(offer: Offer, trans: ITrans): string {
  const node = offer.where[0]?.node;
  return node === undefined
    ? trans.__('This does not hold any more. Here are the offers that hold now.')
    : trans.__('%1 was taken meanwhile. Here are the offers that hold now.', plain(node));
}

/** When a node that is excluded now would do: `14:52, when eval-sweep ends`; empty when the plan does not reach it. */
export function nodeWhen(answer: Explanation, node: string, store: Store, now: number, trans: ITrans): string {
  const own = ownOf(answer);
  const until = own?.start_at != null && own.nodes.includes(node) ? own.start_at + 1 : Number.POSITIVE_INFINITY;
  const held = answer.plan.filter((one) => one.start_at === null && one.end_at !== null && one.end_at <= until && one.nodes.includes(node));
  const last = latest(held);
  const job = last === null ? undefined : store.jobs.get(last.job_id);
  return last === null || job === undefined ? '' : trans.__('%1, when %2 ends', clock(Math.max(last.end_at ?? 0, now)), jobName(job));
}
