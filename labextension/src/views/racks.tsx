/** The wall of the whole cluster: a column for each node, a block for each rack, and a card on hover and focus. */
import * as React from 'react';
import { createPortal } from 'react-dom';
import { CommandIds } from '../commands';
import { holders, type INodeRow, type ITile, TILE_STATES, totals } from '../model/select';
import { Switch } from '../parts/facts';
import { useMgpu } from '../parts/hooks';
import { DASHBOARD, GAP, LegendTile, TileShape } from '../parts/tile';
import { plain, ranges } from '../text/format';
import { jobName, nodeNote, nodeReason, shortName, stateWord } from '../text/words';

/** What the level of a tile shows. */
type Level = 'busy' | 'memory' | 'temperature';
const HOT_C = 100;
const CARD = 280;
const OPEN_MS = 150;

export function RackWall({ rows }: { rows: readonly INodeRow[] }): JSX.Element {
  const { trans } = useMgpu();
  const [level, setLevel] = React.useState<Level>('busy');
  const [over, setOver] = React.useState<{ node: string; anchor: DOMRect } | null>(null);
  const timer = React.useRef<number>();
  React.useEffect(() => () => window.clearTimeout(timer.current), []);
  const show = React.useCallback((node: string, element: Element) => {
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setOver({ node, anchor: element.getBoundingClientRect() }), OPEN_MS);
  }, []);
  const hide = React.useCallback(() => {
    window.clearTimeout(timer.current);
    setOver(null);
  }, []);
  const sums = totals(rows);
  const shown = over === null ? undefined : rows.find((row) => row.node.id === over.node);
  const blocks = new Map<string, INodeRow[]>();
  for (const row of rows) {
    const key = `${row.node.rack}\n${row.node.switch}`;
    blocks.set(key, [...(blocks.get(key) ?? []), row]);
  }
  return (
    <section className="mgp-frame">
      <div className="mgp-racks-head">
        <h3>
          {trans._n('%1 node', '%1 nodes', rows.length)}{' '}
          {TILE_STATES.filter((state) => sums[state] > 0).map((state) => (
            <span key={state} className="mgp-legend-entry">
              <LegendTile state={state} /> {`${sums[state]} ${stateWord(state, trans)}`}
            </span>
          ))}
        </h3>
        <span className="mgp-space" />
        <Switch
          label={trans.__('What the level says')}
          choices={[
            ['busy', trans.__('Busy')],
            ['memory', trans.__('Memory')],
            ['temperature', trans.__('Temperature')],
          ]}
          value={level}
          set={setLevel}
        />
      </div>
      <div className="mgp-racks">
        {[...blocks].map(([key, inside]) => {
          const { rack, switch: wire } = (inside[0] as INodeRow).node;
          return (
            <div key={key}>
              <div className="mgp-rack-head mgp-second">
                {rack && <b>{trans.__('Rack %1', plain(rack))}</b>} {wire && trans.__('switch %1', plain(wire))}
                <span className="mgp-space" />
                {trans.__(
                  '%1 free',
                  inside.reduce((sum, row) => sum + row.free, 0),
                )}
              </div>
              <div className="mgp-rack-columns">
                {inside.map((row) => (
                  <Column key={row.node.id} row={row} level={level} onShow={show} onHide={hide} />
                ))}
              </div>
            </div>
          );
        })}
      </div>
      {over && shown && <NodeCard row={shown} anchor={over.anchor} />}
    </section>
  );
}

/** How full a tile is drawn. */
function levelOf(tile: ITile, level: Level): number {
  switch (level) {
    case 'busy':
      return tile.busy;
    case 'memory':
      return tile.memory;
    case 'temperature':
      return Math.min(1, Math.max(0, (tile.reading[2] ?? 0) / HOT_C));
  }
}

interface IColumnProps {
  readonly row: INodeRow;
  readonly level: Level;
  readonly onShow: (node: string, element: Element) => void;
  readonly onHide: () => void;
}

const Column = React.memo(function Column({ row, level, onShow, onHide }: IColumnProps): JSX.Element {
  const { commands, trans, live } = useMgpu();
  const step = DASHBOARD.height + GAP;
  const { id } = row.node;
  return (
    <button
      type="button"
      className="mgp-column"
      data-column={id}
      aria-label={`${plain(id)}, ${nodeNote(row, live.now(), trans).text}`}
      onMouseEnter={(event) => onShow(id, event.currentTarget)}
      onMouseLeave={onHide}
      onFocus={(event) => onShow(id, event.currentTarget)}
      onBlur={onHide}
      onKeyDown={(event) => event.key === 'Escape' && onHide()}
      onClick={() => void commands.execute(CommandIds.openNode, { id })}
    >
      <svg width={DASHBOARD.width} height={Math.max(1, row.tiles.length) * step} aria-hidden="true">
        {row.tiles.map((tile, place) => (
          <g key={tile.index} transform={`translate(0 ${place * step})`}>
            <TileShape
              size={DASHBOARD}
              state={tile.state}
              busy={levelOf(tile, level)}
              memory={tile.memory}
              simulated={tile.simulated}
              parts={level === 'busy' ? tile.parts : undefined}
            />
          </g>
        ))}
      </svg>
      <span>{(/\d+$/.exec(id)?.[0] ?? plain(id)).slice(-2)}</span>
    </button>
  );
});

/** What a node is and who has its GPUs: `GPUs 0, 1: ablate, user1`. */
function NodeCard({ row, anchor }: { row: INodeRow; anchor: DOMRect }): JSX.Element {
  const { trans, live } = useMgpu();
  const { node } = row;
  const what = [
    node.gpus.length ? `${node.gpus.length} × ${shortName(node)}` : trans.__('no GPUs'),
    node.rack && trans.__('rack %1', plain(node.rack)),
    node.switch && trans.__('switch %1', plain(node.switch)),
  ];
  const left = Math.max(4, Math.min(anchor.left, window.innerWidth - CARD - 8));
  const below = anchor.bottom + 8 + 120 < window.innerHeight;
  const place = below ? { top: anchor.bottom + 8 } : { bottom: window.innerHeight - anchor.top + 8 };
  const reason = nodeReason(node, live.now(), trans);
  return createPortal(
    <div className="mgp-card" role="tooltip" style={{ left, width: CARD, ...place }}>
      <div className="mgp-card-head">
        <b className="mgp-name">{plain(node.id)}</b>
        <span className="mgp-second">{what.filter(Boolean).join(', ')}</span>
      </div>
      {reason && <div className="mgp-card-sentence">{reason}</div>}
      {holders(row).map((one) => {
        const job = one.job === null ? undefined : live.store.jobs.get(one.job);
        const who = one.job === null ? stateWord(one.state, trans) : `${job ? jobName(job) : one.job}, ${plain(one.user)}`;
        const which = one.gpus.length === 1 ? trans.__('GPU %1', ranges(one.gpus)) : trans.__('GPUs %1', ranges(one.gpus));
        return (
          <div className="mgp-card-line" key={`${one.state} ${one.job} ${one.reason}`}>
            <LegendTile state={one.state} /> <span>{`${which}: ${one.reason ? plain(one.reason) : who}`}</span>
          </div>
        );
      })}
    </div>,
    document.body,
  );
}
