/** The wall: a row for each node, a tile for each GPU. A grid with one tab stop; arrow keys move from tile to tile. */
import * as React from 'react';
import { CommandIds } from '../commands';
import type { INodeRow, ITile, TileState } from '../model/select';
import { Glyph } from '../parts/glyphs';
import { useMgpu, useNow } from '../parts/hooks';
import { GAP, type ITileSize, NARROW, SIDEBAR, Tile, tileHeight } from '../parts/tile';
import { Virtual } from '../parts/virtual';
import { plain } from '../text/format';
import { nodeNote, nodeReason, tileLabel } from '../text/words';
import { Card } from './card';

const ROW = 32;
const RACK = 22;
const LINE = 18;
const IN_ROW = 8;
const OPEN_MS = 150;
const CLOSE_MS = 200;

type Item = { key: string; height: number } & (
  | { kind: 'rack'; text: string }
  | { kind: 'node'; row: INodeRow }
  | { kind: 'reason'; text: string }
);

interface IWallProps {
  readonly rows: readonly INodeRow[];
  readonly racks: boolean;
  readonly only: TileState | null;
  readonly width: number;
}

interface IFocus {
  readonly node: string;
  readonly place: number;
}

export function Wall({ rows, racks, only, width }: IWallProps): JSX.Element {
  const { trans } = useMgpu();
  const now = useNow(15);
  const narrow = width < 260;
  const size = narrow ? NARROW : SIDEBAR;
  const items = React.useMemo(() => itemsOf(rows, racks, narrow, width, now, trans), [rows, racks, narrow, width, now, trans]);
  const [focus, setFocus] = React.useState<IFocus | null>(null);
  const [open, setOpen] = React.useState<{ tile: ITile; anchor: DOMRect } | null>(null);
  const timer = React.useRef<number>();
  const wall = React.useRef<HTMLDivElement>(null);
  const later = React.useCallback((ms: number, call: () => void): void => {
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(call, ms);
  }, []);
  React.useEffect(() => () => window.clearTimeout(timer.current), []);
  const show = React.useCallback((tile: ITile, element: Element) => {
    later(OPEN_MS, () => setOpen({ tile, anchor: element.getBoundingClientRect() }));
  }, []);
  const hide = React.useCallback(() => later(CLOSE_MS, () => setOpen(null)), []);
  const current =
    focus !== null && rows.some((row) => row.node.id === focus.node) ? focus : rows[0] ? { node: rows[0].node.id, place: 0 } : null;

  const go = (node: string, place: number): void => {
    setFocus({ node, place });
    const item = items.findIndex((one) => one.kind === 'node' && one.row.node.id === node);
    const top = items.slice(0, item).reduce((sum, one) => sum + one.height, 0);
    const scroller = wall.current?.closest<HTMLElement>('.mgp-scroll');
    if (wall.current && scroller) {
      const offset = wall.current.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop;
      if (offset + top < scroller.scrollTop || offset + top + ROW > scroller.scrollTop + scroller.clientHeight) {
        scroller.scrollTop = offset + top - scroller.clientHeight / 2;
      }
    }
    // the row may only now become visible
    window.setTimeout(
      () => wall.current?.querySelector<HTMLElement>(`[data-node="${CSS.escape(node)}"][data-place="${place}"]`)?.focus(),
      30,
    );
  };

  const onKeyDown = (event: React.KeyboardEvent): void => {
    if (event.key === 'Escape') {
      window.clearTimeout(timer.current);
      setOpen(null);
      return;
    }
    if (current === null) {
      return;
    }
    const at = rows.findIndex((row) => row.node.id === current.node);
    const last = (rows[at]?.tiles.length ?? 1) - 1;
    const to = (row: INodeRow | undefined, place: number): void => {
      if (row !== undefined) {
        event.preventDefault();
        go(row.node.id, Math.max(0, Math.min(place, row.tiles.length - 1)));
      }
    };
    switch (event.key) {
      case 'ArrowRight':
        return current.place < last ? to(rows[at], current.place + 1) : to(rows[at + 1], 0);
      case 'ArrowLeft':
        return current.place > 0 ? to(rows[at], current.place - 1) : to(rows[at - 1], Number.MAX_SAFE_INTEGER);
      case 'ArrowDown':
        return current.place + IN_ROW <= last ? to(rows[at], current.place + IN_ROW) : to(rows[at + 1], current.place % IN_ROW);
      case 'ArrowUp':
        return current.place >= IN_ROW ? to(rows[at], current.place - IN_ROW) : to(rows[at - 1], current.place);
      case 'Home':
        return to(rows[at], 0);
      case 'End':
        return to(rows[at], last);
    }
  };

  return (
    <div ref={wall} className="mgp-wall" onKeyDown={onKeyDown}>
      <Virtual
        items={items}
        role="grid"
        label={trans.__('GPUs by node')}
        height={heightOf}
        identity={keyOf}
        render={(item) =>
          item.kind === 'rack' ? (
            <div className="mgp-rack">{item.text}</div>
          ) : item.kind === 'reason' ? (
            <div className="mgp-reason">{item.text}</div>
          ) : (
            <NodeLine
              row={item.row}
              size={size}
              narrow={narrow}
              only={only}
              now={now}
              current={current?.node === item.row.node.id ? current.place : -1}
              onShow={show}
              onHide={hide}
              onFocus={setFocus}
              shown={open?.tile.node === item.row.node.id ? open.tile.index : -1}
            />
          )
        }
      />
      {open && (
        <Card tile={open.tile} anchor={open.anchor} id="mgpu-card" onEnter={() => window.clearTimeout(timer.current)} onLeave={hide} />
      )}
    </div>
  );
}

function heightOf(item: Item): number {
  return item.height;
}

function keyOf(item: Item): string {
  return item.key;
}

function itemsOf(
  rows: readonly INodeRow[],
  racks: boolean,
  narrow: boolean,
  width: number,
  now: number,
  trans: ReturnType<typeof useMgpu>['trans'],
): Item[] {
  const items: Item[] = [];
  let rack = '';
  const size = narrow ? NARROW : SIDEBAR;
  for (const row of rows) {
    const { node } = row;
    const place = [
      node.rack && trans.__('Rack %1', plain(node.rack).replace(/^rack[\s-]*/i, '')),
      node.switch && trans.__('switch %1', plain(node.switch).replace(/^switch[\s-]*/i, '')),
    ]
      .filter(Boolean)
      .join(' · ');
    if (racks && place !== rack) {
      rack = place;
      if (place) {
        items.push({ key: `rack ${place} ${node.id}`, kind: 'rack', text: place, height: RACK });
      }
    }
    const lines = Math.max(1, Math.ceil(row.tiles.length / IN_ROW));
    items.push({ key: `node ${node.id}`, kind: 'node', row, height: ROW + (lines - 1) * (tileHeight(size) + GAP) });
    const reason = nodeReason(node, now, trans);
    if (reason) {
      const perLine = Math.max(20, Math.floor((width - 24) / 6.4));
      items.push({
        key: `reason ${node.id}`,
        kind: 'reason',
        text: reason,
        height: 4 + LINE * Math.min(3, Math.ceil(reason.length / perLine)),
      });
    }
  }
  return items;
}

interface INodeLineProps {
  readonly row: INodeRow;
  readonly size: ITileSize;
  readonly narrow: boolean;
  readonly only: TileState | null;
  readonly now: number;
  readonly current: number;
  readonly shown: number;
  readonly onShow: (tile: ITile, element: Element) => void;
  readonly onHide: () => void;
  readonly onFocus: (focus: IFocus) => void;
}

const NodeLine = React.memo(function NodeLine(props: INodeLineProps): JSX.Element {
  const { row, size, narrow, only, now, current, shown, onShow, onHide, onFocus } = props;
  const mgpu = useMgpu();
  const { trans, commands, live } = mgpu;
  const note = nodeNote(row, now, trans);
  const touched = React.useRef(-1);
  const width = IN_ROW * (size.width + GAP) - GAP;
  const glyph = note.glyph === '' ? null : <Glyph name={note.glyph} tone={note.glyph} size={11} label={narrow ? note.text : undefined} />;
  return (
    <div className="mgp-node" role="row" aria-label={`${plain(row.node.id)}, ${note.text}`} data-node-row={row.node.id}>
      <div className="mgp-node-text" role="rowheader">
        <button
          type="button"
          className="mgp-link mgp-name"
          tabIndex={-1}
          title={plain(row.node.id)}
          onClick={() => void commands.execute(CommandIds.openNode, { id: row.node.id })}
        >
          {plain(row.node.id)}
        </button>
        {narrow ? (
          glyph
        ) : (
          <div className="mgp-second mgp-note">
            {glyph} {note.text}
          </div>
        )}
      </div>
      {row.tiles.length === 0 ? (
        <div className="mgp-second" style={{ width }}>
          {row.node.gpu_note ? plain(row.node.gpu_note) : trans.__('no GPUs')}
        </div>
      ) : (
        <div className="mgp-tiles" style={{ width, gap: GAP }} role="presentation">
          {row.tiles.map((tile, place) => {
            const job = tile.gpu.job_id;
            const act = (): void => {
              if (job !== null) {
                void commands.execute(CommandIds.openJob, { id: job });
              } else {
                void commands.execute(CommandIds.openNode, { id: row.node.id });
              }
            };
            return (
              <div
                key={tile.index}
                role="gridcell"
                className={`mgp-tile-cell${only !== null && only !== tile.state ? ' mgp-mod-dim' : ''}`}
                data-node={row.node.id}
                data-place={place}
                data-state={tile.state}
                data-busy={Math.round(tile.busy * 100)}
                tabIndex={place === current ? 0 : -1}
                aria-label={tileLabel(tile, job === null ? undefined : live.store.jobs.get(job), trans)}
                aria-describedby={shown === tile.index ? 'mgpu-card' : undefined}
                onMouseEnter={(event) => onShow(tile, event.currentTarget)}
                onMouseLeave={onHide}
                onFocus={(event) => {
                  onFocus({ node: row.node.id, place });
                  onShow(tile, event.currentTarget);
                }}
                onBlur={onHide}
                onTouchStart={() => {
                  touched.current = touched.current === place ? -2 : place;
                }}
                onClick={() => {
                  if (touched.current !== place) {
                    act();
                  }
                }}
                onKeyDown={(event) => {
                  if (event.key === 'Enter') {
                    act();
                  }
                }}
              >
                <Tile size={size} state={tile.state} busy={tile.busy} memory={tile.memory} simulated={tile.simulated} parts={tile.parts} />
              </div>
            );
          })}
        </div>
      )}
    </div>
  );
});
