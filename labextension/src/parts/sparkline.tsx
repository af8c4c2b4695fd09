/** A line of values over time without axes. Draws what it is given; a sentence describes it for screen readers. */
import * as React from 'react';

export interface ISparkline {
  readonly values: readonly (number | null)[];
  /** A second line, dashed. */
  readonly other?: readonly (number | null)[];
  readonly most?: number;
  readonly otherMost?: number;
  readonly width: number;
  readonly height: number;
  readonly label: string;
  readonly tone?: 'mine' | 'neutral';
}

/** Paths of the unbroken pieces; a null makes a gap. */
export function pieces(values: readonly (number | null)[], most: number, width: number, height: number): string[] {
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  const out: string[] = [];
  let piece = '';
  values.forEach((value, index) => {
    if (value === null) {
      if (piece) {
        out.push(piece);
      }
      piece = '';
      return;
    }
    const x = (index * step).toFixed(1);
    const y = (height - 1 - (Math.min(Math.max(value, 0), most) / (most || 1)) * (height - 2)).toFixed(1);
    piece += `${piece ? 'L' : 'M'}${x} ${y}`;
  });
  if (piece) {
    out.push(piece);
  }
  return out;
}

export const Sparkline = React.memo(function Sparkline(props: ISparkline): JSX.Element {
  const { values, other, width, height, label, tone = 'neutral' } = props;
  const most = props.most ?? 100;
  return (
    <svg
      className={`mgp-spark mgp-mod-${tone}`}
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
      role="img"
      aria-label={label}
      preserveAspectRatio="none"
    >
      {pieces(values, most, width, height).map((d, index) => {
        const ends = [...d.matchAll(/[ML]([\d.]+) /g)].map((one) => one[1]);
        return (
          <React.Fragment key={index}>
            <path className="mgp-spark-area" d={`${d}L${ends[ends.length - 1]} ${height}L${ends[0]} ${height}Z`} />
            <path className="mgp-spark-line" d={d} />
          </React.Fragment>
        );
      })}
      {other &&
        pieces(other, props.otherMost ?? most, width, height).map((d, index) => (
          <path key={`o${index}`} className="mgp-spark-other" d={d} />
        ))}
    </svg>
  );
});
