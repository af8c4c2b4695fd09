/** The chart "What happens until then": a lane for each node, who has it until when, and where the job follows. */
import * as React from 'react';
import { type IBar, type IPlan, ticksOf } from '../model/plan';
import { useMgpu } from '../parts/hooks';
import { clock, duration, middle, moment, plain } from '../text/format';
import { jobName } from '../text/words';

const LABEL = 66;
const LANE = 24;
const BAR = 16;
const BELOW = 22;
const WIDTH = 520; // units of the drawing, which is scaled to the width

export function PlanChart({ plan }: { plan: IPlan }): JSX.Element {
  const { trans, live } = useMgpu();
  const user = live.store.cluster?.user ?? '';
  const high = plan.lanes.length * LANE;
  const x = (at: number): number => LABEL + ((at - plan.from) / (plan.to - plan.from)) * (WIDTH - LABEL - 4);
  const start = x(plan.start);
  const name = (bar: IBar): string => {
    if (bar.kind === 'waiting') {
      const place = live.store.place(bar.jobs[0] ?? '');
      return place === null ? nameOf(bar.jobs[0] ?? '') : trans.__('place %1', place);
    }
    const names = bar.jobs.slice(0, 3).map(nameOf).join(', ') + (bar.jobs.length > 3 ? ` + ${bar.jobs.length - 3}` : '');
    return bar.kind === 'this' ? trans.__('%1 (this job)', names) : names;
  };
  const nameOf = (id: string): string => {
    const job = live.store.jobs.get(id);
    return job === undefined ? id || trans.__('it') : jobName(job);
  };
  const mine = (bar: IBar): boolean => bar.kind === 'held' && bar.jobs.every((id) => live.store.jobs.get(id)?.user === user);
  const summary = plan.lanes
    .map(
      (lane) =>
        `${plain(lane.node)}: ${lane.bars.map((bar) => `${name(bar)} ${clock(bar.from)}–${bar.open ? '…' : clock(bar.to)}`).join(', ')}`,
    )
    .join('; ');
  return (
    <svg className="mgp-plan" viewBox={`0 0 ${WIDTH} ${high + BELOW}`} role="img" aria-label={summary}>
      {ticksOf(plan.from, plan.to).map((at) => (
        <g key={at}>
          <line className="mgp-plot-grid" x1={x(at)} x2={x(at)} y1={0} y2={high} />
          {Math.abs(x(at) - start) > 34 && (
            <text x={x(at)} y={high + 16} textAnchor="middle">
              {clock(at)}
            </text>
          )}
        </g>
      ))}
      {plan.lanes.map((lane, row) => (
        <g key={lane.node} transform={`translate(0 ${row * LANE})`}>
          <text className="mgp-plan-node" x={0} y={16}>
            {middle(plain(lane.node), 9)}
          </text>
          {lane.bars.map((bar) => {
            const left = x(bar.from);
            const wide = Math.max(2, x(bar.to) - left);
            const room = Math.floor((wide - 8) / 6.4);
            const words = bar.kind === 'this' && name(bar).length > room ? trans.__('this job') : name(bar);
            return (
              <g key={`${bar.kind} ${bar.jobs.join(' ')}`}>
                <title>{`${name(bar)}, ${moment(bar.from, plan.from)} – ${bar.open ? trans.__('no limit') : moment(bar.to, plan.from)}`}</title>
                <rect
                  className={`mgp-plan-bar mgp-mod-${bar.kind}${mine(bar) ? ' mgp-mod-mine' : ''}`}
                  x={left + 0.5}
                  y={4.5}
                  width={wide - 1}
                  height={BAR - 1}
                />
                {room >= Math.min(4, words.length) && (
                  <>
                    {bar.kind === 'held' && (
                      <rect
                        className="mgp-plan-ground"
                        x={left + 2}
                        y={6}
                        width={Math.min(wide - 4, Math.min(words.length, room) * 6.4 + 6)}
                        height={BAR - 4}
                      />
                    )}
                    <text x={left + 5} y={16}>
                      {middle(words, room)}
                    </text>
                  </>
                )}
              </g>
            );
          })}
        </g>
      ))}
      <line className="mgp-plan-start" x1={start} x2={start} y1={0} y2={high} />
      <text className="mgp-plan-when" x={Math.min(start, WIDTH - 20)} y={high + 16} textAnchor="middle">
        {plan.start - plan.from < 3600 * 20 ? clock(plan.start) : duration(plan.start - plan.from)}
      </text>
    </svg>
  );
}
