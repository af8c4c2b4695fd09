/** The timeline of a job, in pieces of time. Pure. */
import type { AttemptTrace, Job } from '../api/types.gen';
import { duration } from '../text/format';
import type { ITrans } from '../text/words';

export interface IPiece {
  readonly kind: 'queued' | 'starting' | 'running' | 'left';
  readonly from: number;
  readonly to: number;
  /** What happened at its beginning. */
  readonly mark: string;
  readonly text: string;
}

/** The pieces of a job's timeline; `placed` is when it was given its nodes, if that is known. Pure. */
export function piecesOf(job: Job, placed: number | null, now: number, trans: ITrans): IPiece[] {
  const end = job.ended_at ?? now;
  const starts = job.started_at ?? end;
  const given = placed === null ? starts : Math.min(Math.max(placed, job.submitted_at), starts);
  const out: IPiece[] = [
    {
      kind: 'queued',
      from: job.submitted_at,
      to: given,
      mark: trans.__('submitted'),
      text: trans.__('Queued %1', duration(given - job.submitted_at)),
    },
  ];
  if (placed !== null) {
    out.push({
      kind: 'starting',
      from: given,
      to: starts,
      mark: trans.__('placed'),
      text: trans.__('Starting %1', duration(starts - given)),
    });
  }
  if (job.started_at !== null) {
    const ranks = job.placements.length;
    const ran = duration(end - job.started_at);
    out.push({
      kind: 'running',
      from: job.started_at,
      to: end,
      mark: ranks > 1 ? trans.__('all %1 ranks up', ranks) : trans.__('started'),
      text: job.ended_at === null ? trans.__('Running %1', ran) : trans.__('Ran %1', ran),
    });
    if (job.ended_at === null && job.time_limit_s !== null) {
      const limit = Math.max(end, job.started_at + job.time_limit_s);
      out.push({
        kind: 'left',
        from: end,
        to: limit,
        mark: trans.__('now'),
        text: trans.__('Left until the time limit %1', duration(limit - end)),
      });
    }
  }
  return out;
}

/** When the newest attempt was given its nodes. */
export function placedAt(attempts: readonly AttemptTrace[] | undefined, attempt: number): number | null {
  return attempts?.find((one) => one.attempt === attempt)?.planned_at ?? null;
}
