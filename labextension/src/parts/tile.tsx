/** The picture of one GPU: owner by pattern and border, busy by level, memory by strip. Draws a value, knows no store. */
import * as React from 'react';
import type { ITile, TileState } from '../model/select';

export interface ITileSize {
  readonly width: number;
  readonly height: number;
  readonly strip: number;
}

export const SIDEBAR: ITileSize = { width: 21, height: 20, strip: 3 };
export const NARROW: ITileSize = { width: 16, height: 17, strip: 3 };
export const DASHBOARD: ITileSize = { width: 16, height: 15, strip: 0 };
export const GAP = 3;

/** The whole height of a tile with its strip. */
export function tileHeight(size: ITileSize): number {
  return size.height + (size.strip ? size.strip + 1 : 0);
}

const ABOVE: Partial<Record<TileState, string>> = {
  mine: 'var(--mgpu-mine-pale)',
  others: 'url(#mgpu-others-above)',
  outside: 'url(#mgpu-outside-above)',
  unhealthy: 'var(--mgpu-bad-pale)',
};
const LEVEL: Partial<Record<TileState, string>> = {
  mine: 'var(--mgpu-mine)',
  others: 'url(#mgpu-others-level)',
  outside: 'url(#mgpu-outside-level)',
};

export interface ITileShape {
  readonly state: TileState;
  readonly busy: number;
  readonly memory: number;
  readonly simulated: boolean;
  readonly parts?: readonly ITile[];
}

interface ITileProps extends ITileShape {
  readonly size: ITileSize;
  readonly pick?: boolean;
}

/** The tile as part of a larger drawing, with its corner at 0, 0. */
export const TileShape = React.memo(function TileShape(props: ITileProps): JSX.Element {
  const { size, state, memory, simulated, pick } = props;
  const parts = props.parts?.length ? props.parts : [props];
  const width = (size.width - 2) / parts.length;
  const inner = size.height - 2;
  return (
    <>
      {parts.map((part, number) => {
        const level = Math.round(part.busy * inner);
        const x = 1 + number * width;
        return (
          <React.Fragment key={number}>
            {ABOVE[part.state] && <rect x={x} y={1} width={width} height={inner} fill={ABOVE[part.state]} />}
            {LEVEL[part.state] && level > 0 && (
              <rect className="mgp-tile-level" x={x} y={1 + inner - level} width={width} height={level} fill={LEVEL[part.state]} />
            )}
            {number > 0 && <line x1={x} x2={x} y1={1} y2={1 + inner} className="mgp-tile-cut" />}
          </React.Fragment>
        );
      })}
      {state === 'unhealthy' && <Cross size={size} />}
      {state === 'closed' && (
        <line className="mgp-tile-dash" x1={size.width / 2 - 3} x2={size.width / 2 + 3} y1={size.height / 2} y2={size.height / 2} />
      )}
      <rect
        className={`mgp-tile-border mgp-mod-${state}${simulated ? ' mgp-mod-simulated' : ''}${pick ? ' mgp-mod-pick' : ''}`}
        x={0.5}
        y={0.5}
        width={size.width - 1}
        height={size.height - 1}
        rx={1.5}
      />
      {pick && <path className="mgp-tile-tick" d={`M${size.width / 2 - 4} ${size.height / 2} l3 3 l5 -6`} />}
      {size.strip > 0 && (
        <>
          <rect className="mgp-tile-track" x={0} y={size.height + 1} width={size.width} height={size.strip} />
          <rect className="mgp-tile-memory" x={0} y={size.height + 1} width={Math.round(memory * size.width)} height={size.strip} />
        </>
      )}
    </>
  );
});

function Cross({ size }: { size: ITileSize }): JSX.Element {
  const reach = Math.min(size.width, size.height) * 0.25;
  const x = size.width / 2;
  const y = size.height / 2;
  return (
    <path
      className="mgp-tile-cross"
      d={`M${x - reach} ${y - reach} L${x + reach} ${y + reach} M${x + reach} ${y - reach} L${x - reach} ${y + reach}`}
    />
  );
}

/** A tile by itself. */
export const Tile = React.memo(function Tile(props: ITileProps): JSX.Element {
  return (
    <svg className="mgp-tile" width={props.size.width} height={tileHeight(props.size)} aria-hidden="true" focusable="false">
      <TileShape {...props} />
    </svg>
  );
});

/** A small tile for legends. */
export function LegendTile({ state }: { state: TileState }): JSX.Element {
  return (
    <Tile
      size={{ width: 15, height: 14, strip: 0 }}
      state={state}
      busy={state === 'mine' || state === 'others' || state === 'outside' ? 0.6 : 0}
      memory={0}
      simulated={false}
    />
  );
}

/** The patterns that all tiles of the page share; colours follow the theme by themselves. */
export function patterns(): SVGSVGElement {
  const host = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  host.id = 'mgpu-patterns';
  host.setAttribute('aria-hidden', 'true');
  host.setAttribute('width', '0');
  host.setAttribute('height', '0');
  host.style.position = 'absolute';
  const stripes = (id: string, back: string, line: string, width: number, opacity: number): string =>
    `<pattern id="${id}" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
    `<rect width="4" height="4" style="fill:${back}"/><rect width="${width}" height="4" style="fill:${line};opacity:${opacity}"/></pattern>`;
  const dots = (id: string, back: string, dot: string): string =>
    `<pattern id="${id}" width="4" height="4" patternUnits="userSpaceOnUse"><rect width="4" height="4" style="fill:${back}"/>` +
    `<circle cx="2" cy="2" r="1" style="fill:${dot}"/></pattern>`;
  host.innerHTML = `<defs>${[
    stripes('mgpu-others-above', 'transparent', 'var(--mgpu-others)', 1, 0.6),
    stripes('mgpu-others-level', 'var(--mgpu-others)', 'var(--mgpu-ground)', 1, 0.75),
    dots('mgpu-outside-above', 'transparent', 'var(--mgpu-outside)'),
    dots('mgpu-outside-level', 'var(--mgpu-outside)', 'var(--mgpu-ground)'),
  ].join('')}</defs>`;
  return host;
}
