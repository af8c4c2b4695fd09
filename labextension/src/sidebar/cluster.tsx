/** The section Cluster: how much is free, who has the rest, the wall. */
import * as React from 'react';
import { allRows, filterRows, type NodeSort, sortRows, TILE_STATES, type TileState, type Totals, totals } from '../model/select';
import { Glyph } from '../parts/glyphs';
import { useAnswer, useChanges, useConnection, useMgpu } from '../parts/hooks';
import { Sparkline } from '../parts/sparkline';
import { LegendTile } from '../parts/tile';
import { percent } from '../text/format';
import { stateWord } from '../text/words';
import { Banner, FirstRun, Skeleton } from './states';
import { Wall } from './wall';

const FEW_NODES = 8;
const HOUR_S = 3600;

export interface IFilterState {
  readonly shown: boolean;
  readonly text: string;
}

export function ClusterSection({
  filter,
  onFilter,
  width,
}: {
  filter: IFilterState;
  onFilter: (filter: IFilterState) => void;
  width: number;
}): JSX.Element {
  const mgpu = useMgpu();
  const { trans, live } = mgpu;
  const connection = useConnection();
  useChanges((changes) => changes.nodes.size + changes.readings.size > 0 || changes.cluster);
  const [sort, setSort] = React.useState<NodeSort | null>(null);
  const [only, setOnly] = React.useState<TileState | null>(null);
  const rows = allRows(live.store);
  const sums = totals(rows);
  const many = rows.length > FEW_NODES;
  const order = sort ?? (many ? mgpu.settings.nodeSort : 'name');
  const shown = sortRows(filter.shown || many ? filterRows(rows, filter.text, live.store) : rows, order);
  const old = connection.state !== 'live' && connection.state !== 'connecting';
  if (live.store.cluster === null) {
    return (
      <>
        <Banner />
        {connection.state === 'connecting' && <Skeleton rows={5} tiles />}
      </>
    );
  }
  return (
    <>
      <Banner />
      <div className={old ? 'mgp-mod-stale' : ''}>
        {rows.length === 0 ? (
          connection.state === 'live' && <FirstRun />
        ) : (
          <>
            <div className="mgp-totals">
              <Headline sums={sums} narrow={width < 260} />
              <TotalsBar sums={sums} width={Math.max(100, width - (width < 260 ? 16 : 24))} />
              <div className="mgp-legend" role="group" aria-label={trans.__('Show only')}>
                {TILE_STATES.filter((state) => sums[state] > 0 || state === 'free' || state === 'mine').map((state) => (
                  <button key={state} type="button" aria-pressed={only === state} onClick={() => setOnly(only === state ? null : state)}>
                    <LegendTile state={state} /> <span>{`${sums[state]} ${stateWord(state, trans)}`}</span>
                  </button>
                ))}
              </div>
              {width >= 260 && <BusyLine now={sums.busyPercent} width={width} />}
            </div>
            {(many || filter.shown) && (
              <div className="mgp-filter">
                <span className="mgp-search">
                  <Glyph name="search" size={13} />
                  <input
                    type="text"
                    aria-label={trans.__('Filter nodes')}
                    placeholder={trans.__('node, job, user')}
                    value={filter.text}
                    onChange={(event) => onFilter({ shown: true, text: event.target.value })}
                    onKeyDown={(event) => event.key === 'Escape' && onFilter({ shown: false, text: '' })}
                  />
                </span>
                <select aria-label={trans.__('Order of nodes')} value={order} onChange={(event) => setSort(event.target.value as NodeSort)}>
                  <option value="free">{trans.__('free first')}</option>
                  <option value="mine">{trans.__('mine first')}</option>
                  <option value="name">{trans.__('name')}</option>
                </select>
              </div>
            )}
            {shown.length === 0 ? (
              <p className="mgp-none">
                {trans.__('No node matches “%1”.', filter.text)}{' '}
                <button type="button" className="mgp-link" onClick={() => onFilter({ shown: filter.shown, text: '' })}>
                  {trans.__('Clear')}
                </button>
              </p>
            ) : (
              <Wall rows={shown} racks={order === 'name'} only={only} width={width} />
            )}
          </>
        )}
      </div>
    </>
  );
}

function Headline({ sums, narrow }: { sums: Totals; narrow: boolean }): JSX.Element {
  const { trans } = useMgpu();
  return (
    <div className="mgp-headline">
      <span>
        <b className="mgp-big">{sums.free}</b> {narrow ? trans.__('of %1 free', sums.gpus) : trans.__('of %1 GPUs free', sums.gpus)}
      </span>
      {!narrow && <span className="mgp-second">{trans._n('%1 node', '%1 nodes', sums.nodes)}</span>}
    </div>
  );
}

const FILL: Record<TileState, string> = {
  mine: 'var(--mgpu-mine)',
  others: 'url(#mgpu-others-level)',
  outside: 'url(#mgpu-outside-level)',
  unhealthy: 'var(--mgpu-bad)',
  closed: 'none',
  free: 'none',
};

/** All GPUs in one bar: mine, others', unavailable, free. */
export function TotalsBar({ sums, width }: { sums: Totals; width: number }): JSX.Element {
  const order: readonly TileState[] = ['mine', 'others', 'outside', 'unhealthy', 'closed', 'free'];
  const used = order.filter((state) => sums[state] > 0);
  const room = width - (used.length - 1);
  let x = 0;
  return (
    <svg className="mgp-bar" width={width} height={9} aria-hidden="true">
      {used.map((state) => {
        const wide = Math.max(2, Math.round((sums[state] / sums.gpus) * room));
        const left = x;
        x += wide + 1;
        return (
          <rect
            key={state}
            className={`mgp-tile-border mgp-mod-${state}`}
            x={left + 0.5}
            y={0.5}
            width={Math.max(1, wide - 1)}
            height={8}
            style={{ fill: FILL[state] }}
          />
        );
      })}
    </svg>
  );
}

function BusyLine({ now, width }: { now: number | null; width: number }): JSX.Element | null {
  const { trans, client } = useMgpu();
  const { answer } = useAnswer(() => client.clusterHistory(HOUR_S, 60), 'hour', 60);
  if (now === null) {
    return null;
  }
  const values = answer ? [...answer.busy.map((busy, index) => share(busy, answer.gpus[index] ?? null)), now] : [now];
  return (
    <div className="mgp-busy">
      <span>
        {trans.__('Busy')} <b className="mgp-percent">{percent(now)}</b>
      </span>
      <Sparkline
        values={values}
        width={Math.max(40, width - 158)}
        height={18}
        label={trans.__('Busy over the last hour, now %1', percent(now))}
      />
      <span className="mgp-second">{trans.__('last hour')}</span>
    </div>
  );
}

function share(busy: number | null, gpus: number | null): number | null {
  return busy === null || gpus === null || gpus === 0 ? null : (busy / gpus) * 100;
}
