/** The timeline of a job as one bar: queued, starting, running, and the rest of its time limit. */
import * as React from 'react';
import type { Job } from '../api/types.gen';
import { type IPiece, piecesOf, placedAt } from '../model/way';
import { useAnswer, useMgpu, useNow } from '../parts/hooks';
import { clock } from '../text/format';

export function Timeline({ job }: { job: Job }): JSX.Element {
  const { trans, client } = useMgpu();
  const now = useNow(1);
  const { answer } = useAnswer(() => client.trace(job.id), `${job.id} ${job.state} ${job.attempt}`);
  const pieces = piecesOf(job, placedAt(answer?.attempts, job.attempt), now, trans);
  const last = pieces[pieces.length - 1] as IPiece;
  const all = Math.max(1, last.to - job.submitted_at);
  const over = last.kind === 'left' ? '' : job.ended_at === null ? trans.__('now') : trans.__('ended');
  return (
    <section className="mgp-frame mgp-timeline" aria-label={pieces.map((piece) => piece.text).join(', ')}>
      {pieces.map((piece) => (
        <div key={piece.kind} className={`mgp-mod-${piece.kind}`} style={{ flexGrow: (piece.to - piece.from) / all + 0.001 }}>
          <span className="mgp-second mgp-number">
            {clock(piece.from, true)} {piece.mark}
          </span>
          <i aria-hidden="true" />
          <span className={piece.kind === 'running' ? '' : 'mgp-second'}>{piece.text}</span>
        </div>
      ))}
      <span className="mgp-timeline-end mgp-second mgp-number">
        {clock(last.to, true)} {over}
      </span>
    </section>
  );
}
