/** Areas over time with two axes. Draws what it is given; a sentence describes it for screen readers. */
import * as React from 'react';
import { clock } from '../text/format';
import { pieces } from './sparkline';

export interface IPlot {
  readonly times: readonly number[];
  readonly series: readonly { readonly values: readonly (number | null)[]; readonly tone: 'mine' | 'others' | 'neutral' }[];
  readonly width: number;
  readonly height: number;
  readonly span: number;
  readonly label: string;
  readonly most?: number;
}

/** The next round number. */
export function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return ([1, 2, 4, 5, 8, 10].find((step) => step * power >= value) ?? 10) * power;
}

const LEFT = 34;
const BELOW = 18;

export const Plot = React.memo(function Plot({ times, series, width, height, span, label, most }: IPlot): JSX.Element {
  const top = roundUp(most ?? Math.max(1, ...series.flatMap((one) => one.values.map((value) => value ?? 0))));
  const inner = width - LEFT - 4;
  const high = height - BELOW - 6;
  const name = (at: number): string =>
    span > 2 * 86_400 ? new Date(at * 1000).toLocaleDateString(undefined, { day: 'numeric', month: 'short' }) : clock(at);
  const marks =
    times.length > 2 ? [0, 0.5].map((part) => [part, name(times[Math.floor(part * (times.length - 1))] as number)] as const) : [];
  return (
    <svg className="mgp-plot" width={width} height={height} role="img" aria-label={label}>
      {[0, 0.5, 1].map((part) => (
        <g key={part}>
          <line className="mgp-plot-grid" x1={LEFT} x2={width - 4} y1={6 + high * (1 - part)} y2={6 + high * (1 - part)} />
          <text x={LEFT - 6} y={10 + high * (1 - part)} textAnchor="end">
            {top * part}
          </text>
        </g>
      ))}
      {series.map((one, place) => (
        <g key={place} transform={`translate(${LEFT} 6)`} className={`mgp-plot-series mgp-mod-${one.tone}`}>
          {pieces(one.values, top, inner, high).map((d, index) => {
            const ends = [...d.matchAll(/[ML]([\d.]+) /g)].map((found) => found[1]);
            return (
              <React.Fragment key={index}>
                <path className="mgp-plot-area" d={`${d}L${ends[ends.length - 1]} ${high}L${ends[0]} ${high}Z`} />
                <path className="mgp-plot-line" d={d} />
              </React.Fragment>
            );
          })}
        </g>
      ))}
      {marks.map(([part, text]) => (
        <text key={part} x={LEFT + inner * part} y={height - 4}>
          {text}
        </text>
      ))}
      <text x={width - 4} y={height - 4} textAnchor="end">
        now
      </text>
    </svg>
  );
});
