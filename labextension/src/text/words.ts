/** The sentences of the views, from values. Pure: the clock and the translator are arguments. Names of users are only ever parts of text. */
import type { Failure, Job, Node } from '../api/types.gen';
import type { IConnection } from '../model/live';
import { type INodeRow, type ITile, jobBusy, type TileState, type Totals } from '../model/select';
import type { Store } from '../model/store';
import { clock, duration, minutes, moment, ordinal, percent, plain, usedOf } from './format';

/** The part of JupyterLab's translator that is used. */
export interface ITrans {
  __(text: string, ...args: unknown[]): string;
  _n(one: string, many: string, n: number, ...args: unknown[]): string;
}

/** English, for tests and where there is no translator. */
export const english: ITrans = {
  __: (text, ...args) => fill(text, args),
  _n: (one, many, n, ...args) => fill(n === 1 ? one : many, [n, ...args]),
};

function fill(text: string, args: readonly unknown[]): string {
  return text.replace(/%(\d+)/g, (whole, number: string) => String(args[Number(number) - 1] ?? whole));
}

export function stateWord(state: TileState, trans: ITrans): string {
  switch (state) {
    case 'free':
      return trans.__('free');
    case 'mine':
      return trans.__('mine');
    case 'others':
      return trans.__('others’');
    case 'outside':
      return trans.__('outside');
    case 'unhealthy':
      return trans.__('unhealthy');
    case 'closed':
      return trans.__('closed');
  }
}

/** `live`, `connecting`, `42 s old`, `stopped`. */
export function liveMark(connection: IConnection, now: number, trans: ITrans): string {
  switch (connection.state) {
    case 'live':
      return trans.__('live');
    case 'connecting':
      return trans.__('connecting');
    case 'stale':
      return connection.heardAt === null ? trans.__('no connection') : trans.__('%1 old', duration(now - connection.heardAt));
    case 'stopped':
      return trans.__('stopped');
    case 'signed-out':
      return trans.__('signed out');
  }
}

/** The item of the status bar. */
export function statusText(connection: IConnection, sums: Totals, running: number, waiting: number, trans: ITrans): string {
  if (connection.state !== 'live' && connection.state !== 'connecting') {
    return trans.__('GPUs: no connection');
  }
  if (connection.state === 'connecting' && sums.nodes === 0) {
    return trans.__('GPUs: connecting');
  }
  if (sums.gpus === 0) {
    return trans.__('GPUs: none yet');
  }
  return trans.__('%1 free · %2 running · %3 waiting', sums.free, running, waiting);
}

/** The note below a node's name, and the glyph before it. */
export function nodeNote(row: INodeRow, now: number, trans: ITrans): { glyph: '' | 'warn' | 'bad'; text: string } {
  const { node } = row;
  switch (node.state) {
    case 'draining':
      return { glyph: 'warn', text: trans.__('draining') };
    case 'maintenance':
      return { glyph: 'warn', text: trans.__('maintenance') };
    case 'suspect':
      return {
        glyph: 'warn',
        text: node.last_seen_at === null ? trans.__('not heard') : trans.__('not heard for %1', duration(now - node.last_seen_at)),
      };
    case 'offline':
      return {
        glyph: 'bad',
        text: node.last_seen_at === null ? trans.__('offline') : trans.__('offline since %1', moment(node.last_seen_at, now)),
      };
    case 'unhealthy':
      return { glyph: 'bad', text: trans.__('unhealthy') };
    case 'online': {
      const kind = node.gpus.length ? shortName(node) : '';
      const left = node.gpus.length === 0 ? '' : row.free ? trans.__('%1 free', row.free) : trans.__('full');
      return { glyph: '', text: [kind, left].filter(Boolean).join(' · ') };
    }
  }
}

/** `gpu-06: “kernel update” by admin, since 13:50`; empty when nobody gave a reason. */
export function nodeReason(node: Node, now: number, trans: ITrans): string {
  const { reason, by, at, state } = node.orders;
  if (state !== null && reason !== '') {
    const what = [plain(node.id), plain(reason)];
    if (by === '') {
      return at === null ? trans.__('%1: “%2”', ...what) : trans.__('%1: “%2”, since %3', ...what, moment(at, now));
    }
    return at === null
      ? trans.__('%1: “%2” by %3', ...what, plain(by))
      : trans.__('%1: “%2” by %3, since %4', ...what, plain(by), moment(at, now));
  }
  return node.state !== 'online' && node.reason !== '' ? `${plain(node.id)}: ${plain(node.reason)}` : '';
}

/** `H100` of `NVIDIA H100 80GB HBM3`; several kinds are counted. */
export function shortName(node: Node): string {
  const kinds = [...new Set(node.gpus.map((gpu) => gpuKind(gpu.name)))];
  return kinds.length === 1 ? (kinds[0] as string) : kinds.join(', ');
}

export function gpuKind(name: string): string {
  if (name.startsWith('Simulated GPU')) {
    return 'sim';
  }
  const words = plain(name)
    .replace(/^(NVIDIA|Tesla|GeForce|Simulated)\s+/gi, '')
    .replace(/^(NVIDIA|Tesla|GeForce|Simulated)\s+/gi, '')
    .split(/[\s-]/);
  return words[0] === 'RTX' || words[0] === 'GTX' ? words.slice(0, 2).join(' ') : words[0] || plain(name);
}

/** What a screen reader says of a tile. */
export function tileLabel(tile: ITile, job: Job | undefined, trans: ITrans): string {
  const parts = [plain(tile.node), trans.__('GPU %1', tile.index), stateWord(tile.state, trans)];
  if (tile.gpu.job_id !== null) {
    const name = plain(job?.name || tile.gpu.job_id);
    parts.push(tile.gpu.rank === null ? name : trans.__('%1 rank %2', name, tile.gpu.rank));
  }
  if (tile.state === 'others' && tile.gpu.user !== null) {
    parts.push(plain(tile.gpu.user));
  }
  if (tile.reading[0] !== null) {
    parts.push(trans.__('%1 percent busy', Math.round(tile.reading[0])));
  }
  if (tile.reading[1] !== null) {
    parts.push(trans.__('%1 of %2', ...usedOf(tile.reading[1], tile.gpu.memory_bytes / 2 ** 20)));
  }
  if (tile.simulated) {
    parts.push(trans.__('simulated'));
  }
  return parts.join(', ');
}

/** The sentence on a GPU's card. */
export function tileSentence(tile: ITile, node: Node, trans: ITrans): string {
  const sentences = [stateSentence(tile, node, trans), tile.simulated ? trans.__('Simulated GPU.') : ''];
  return sentences.filter(Boolean).join(' ');
}

function stateSentence(tile: ITile, node: Node, trans: ITrans): string {
  const reason = plain(tile.gpu.reason);
  switch (tile.state) {
    case 'outside':
      return trans.__('In use outside mgpu; not handed out.');
    case 'free':
      return trans.__('Free.');
    case 'unhealthy':
      return reason || trans.__('Unhealthy; gets no more jobs.');
    case 'closed':
      return (tile.gpu.state === 'settling' && reason) || trans.__('Its node takes no new jobs: %1.', node.state);
    default:
      return '';
  }
}

// --- jobs ---------------------------------------------------------------------------------------------

export function jobName(job: Job): string {
  return plain(job.name || job.command || job.id);
}

/** The second line of a job that is not over. */
export function jobLine(job: Job, store: Store, now: number, trans: ITrans): string {
  switch (job.state) {
    case 'running': {
      const parts = [nodeList(job.nodes)];
      const busy = jobBusy(store, job);
      if (busy !== null) {
        parts.push(trans.__('%1 busy', percent(busy)));
      }
      if (job.time_limit_s !== null && job.started_at !== null) {
        parts.push(trans.__('%1 left', minutes(job.started_at + job.time_limit_s - now)));
      }
      return parts.filter(Boolean).join(' · ');
    }
    case 'starting':
      return plain(store.reason(job)[1]) || trans.__('Starting on %1', nodeList(job.nodes));
    case 'stopping':
      return plain(store.reason(job)[1]) || trans.__('Stopping');
    default:
      return queuedLine(job, store, now, trans);
  }
}

function queuedLine(job: Job, store: Store, now: number, trans: ITrans): string {
  const [code, text] = store.reason(job);
  if (code === 'held') {
    return trans.__('Held; starts only when released');
  }
  const place = store.place(job.id);
  const at = store.expectedStart(job);
  const why = withoutStop(plain(text));
  if (place === null) {
    return why || trans.__('Waits');
  }
  const where =
    at === null
      ? trans.__('%1 in queue', ordinal(place))
      : trans.__('%1 in queue, starts ≈ %2', ordinal(place), moment(Math.max(at, now), now));
  return why ? `${where}. ${why}` : where;
}

/** Without the full stop: the line ends with the row. */
export function withoutStop(text: string): string {
  return text.replace(/\.$/, '');
}

/** `2 nodes × 4 GPUs, 2 h limit, submitted 14:11 by me`. */
export function askedLine(job: Job, store: Store, now: number, trans: ITrans): string {
  const whole = job.nodes_wanted > 0 && job.gpus % job.nodes_wanted === 0;
  const what = whole
    ? `${trans._n('%1 node', '%1 nodes', job.nodes_wanted)} × ${trans._n('%1 GPU', '%1 GPUs', job.gpus / job.nodes_wanted)}`
    : `${trans._n('%1 GPU', '%1 GPUs', job.gpus)}, ${trans._n('%1 node', '%1 nodes', job.nodes_wanted)}`;
  const most = job.time_limit_s === null ? trans.__('no time limit') : trans.__('%1 limit', limit(job.time_limit_s));
  const who = job.user === store.cluster?.user ? trans.__('me') : plain(job.user);
  return `${what}, ${most}, ${trans.__('submitted %1 by %2', moment(job.submitted_at, now), who)}`;
}

/** `rank 3 on gpu-01 ended first, exit 1`, or by which signal. */
export function failureText(failure: Failure, trans: ITrans): string {
  const { rank, node, exit_code: exit, signal } = failure;
  return signal === null
    ? trans.__('rank %1 on %2 ended first, exit %3', rank, plain(node), exit ?? '?')
    : trans.__('rank %1 on %2 was killed by signal %3', rank, plain(node), signal);
}

/** The text at the right of a job's row. */
export function jobTime(job: Job, store: Store, now: number, trans: ITrans): string {
  if (job.ended_at !== null) {
    return moment(job.ended_at, now);
  }
  if (job.state !== 'queued') {
    return job.started_at === null ? '' : minutes(now - job.started_at);
  }
  if (store.reason(job)[0] === 'held') {
    return trans.__('held');
  }
  const at = store.expectedStart(job);
  return at === null ? '' : `≈ ${clock(Math.max(at, now))}`;
}

/** What draining a node means for jobs that run there and that are expected there. */
export function drainText(running: readonly Job[], expected: number, trans: ITrans): string {
  const sentences = [trans.__('It takes no new jobs.')];
  const [first] = running;
  if (running.length === 1 && first !== undefined) {
    sentences.push(trans.__('%1 of %2 goes on to its end.', jobName(first), plain(first.user)));
  } else if (running.length > 1) {
    sentences.push(trans.__('%1 go on to their ends.', nodeList(running.map(jobName))));
  }
  if (expected > 0) {
    sentences.push(trans._n('The job expected here moves to another node.', 'The %1 jobs expected here move to other nodes.', expected));
  }
  return sentences.join(' ');
}

/** `exit 1 on rank 3, after 42 m 00 s`, as far as that is known; empty without an exit code. */
export function exitText(job: Job, ran: string | null, trans: ITrans): string {
  const { exit_code: exit } = job;
  const rank = job.failure?.rank ?? null;
  if (exit === null) {
    return '';
  }
  if (rank === null) {
    return ran === null ? trans.__('exit %1', exit) : trans.__('exit %1, after %2', exit, ran);
  }
  return ran === null ? trans.__('exit %1 on rank %2', exit, rank) : trans.__('exit %1 on rank %2, after %3', exit, rank, ran);
}

/** The second line of a job that is over; `used` is the mean number of busy GPUs. */
export function endedLine(job: Job, used: number | null, trans: ITrans): string {
  const parts: string[] = [];
  const ran = job.started_at !== null && job.ended_at !== null ? job.ended_at - job.started_at : null;
  if (job.state === 'timeout') {
    parts.push(job.time_limit_s === null ? trans.__('time limit reached') : trans.__('time limit %1 reached', limit(job.time_limit_s)));
  } else if (job.state === 'cancelled') {
    parts.push(ran === null ? trans.__('cancelled before it started') : trans.__('cancelled after %1', duration(ran)));
  } else {
    const signal = job.failure?.signal ?? null;
    if (signal !== null) {
      parts.push(trans.__('killed by signal %1', signal));
    } else if (job.exit_code !== null) {
      parts.push(exitText(job, null, trans));
    } else if (job.reason !== '') {
      parts.push(withoutStop(plain(job.reason)));
    }
    if (ran !== null) {
      parts.push(duration(ran));
    }
  }
  if (used !== null && job.gpus > 0) {
    parts.push(trans.__('asked %1, used %2', job.gpus, used.toFixed(1)));
  }
  return parts.join(' · ');
}

function limit(seconds: number): string {
  return seconds % 3600 === 0 ? `${seconds / 3600} h` : seconds % 60 === 0 && seconds < 3600 ? `${seconds / 60} min` : duration(seconds);
}

/** gpu-01, gpu-02; many are counted. */
export function nodeList(nodes: readonly string[], most = 3): string {
  const shown = nodes.slice(0, most).map(plain).join(', ');
  return nodes.length > most ? `${shown} + ${nodes.length - most}` : shown;
}
