/** The way of a job as one bar: queued, running, and what is left of its time limit. */
import * as React from 'react';
import type { Job } from '../api/types.gen';
import { useMgpu, useNow } from '../parts/hooks';
import { clock, duration } from '../text/format';

interface IPiece {
  readonly kind: 'queued' | 'running' | 'left';
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** The pieces of a job's way. Pure. */
export function piecesOf(job: Job, now: number, trans: ReturnType<typeof useMgpu>['trans']): IPiece[] {
  const end = job.ended_at ?? now;
  const out: IPiece[] = [
    {
      kind: 'queued',
      from: job.submitted_at,
      to: job.started_at ?? end,
      text: trans.__('Queued %1', duration((job.started_at ?? end) - job.submitted_at)),
    },
  ];
  if (job.started_at !== null) {
    out.push({
      kind: 'running',
      from: job.started_at,
      to: end,
      text: trans.__(job.ended_at === null ? 'Running %1' : 'Ran %1', duration(end - job.started_at)),
    });
    if (job.ended_at === null && job.time_limit_s !== null) {
      const limit = job.started_at + job.time_limit_s;
      out.push({
        kind: 'left',
        from: end,
        to: Math.max(end, limit),
        text: trans.__('Left until the time limit %1', duration(limit - end)),
      });
    }
  }
  return out;
}

export function Timeline({ job }: { job: Job }): JSX.Element {
  const { trans } = useMgpu();
  const now = useNow(1);
  const pieces = piecesOf(job, now, trans);
  const first = pieces[0] as IPiece;
  const all = Math.max(1, (pieces[pieces.length - 1] as IPiece).to - first.from);
  return (
    <section className="mgp-frame mgp-timeline" aria-label={pieces.map((piece) => piece.text).join(', ')}>
      <div className="mgp-timeline-bar" aria-hidden="true">
        {pieces.map((piece) => (
          <i
            key={piece.kind}
            className={`mgp-mod-${piece.kind}`}
            style={{ flexGrow: Math.max(0.02, (piece.to - piece.from) / all) }}
            title={piece.text}
          />
        ))}
      </div>
      <div className="mgp-timeline-text mgp-second">
        {pieces.map((piece) => (
          <span key={piece.kind}>
            {clock(piece.from, true)} {piece.text}
          </span>
        ))}
      </div>
    </section>
  );
}
