/** The cluster over time: in use, waiting, wait by size, the wall by rack, and what needs attention. */
import * as React from 'react';
import type { ClusterHistory, Waits } from '../api/types.gen';
import { CommandIds } from '../commands';
import { allRows, type INodeRow, jobCounts, sortRows, TILE_STATES, totals } from '../model/select';
import { Glyph } from '../parts/glyphs';
import { useAnswer, useChanges, useMgpu, useNow } from '../parts/hooks';
import { Plot } from '../parts/plot';
import { DASHBOARD, GAP, LegendTile, TileShape } from '../parts/tile';
import { duration, percent, plain } from '../text/format';
import { nodeNote, nodeReason, stateWord } from '../text/words';

const SPANS: readonly [string, number][] = [
  ['1 h', 3600],
  ['24 h', 86_400],
  ['7 d', 7 * 86_400],
  ['30 d', 30 * 86_400],
];

export function DashboardView(): JSX.Element {
  const { trans, live, client } = useMgpu();
  const { store } = live;
  useChanges((changes) => changes.nodes.size + changes.readings.size + changes.jobs.size > 0 || changes.cluster);
  const [span, setSpan] = React.useState(86_400);
  const { answer, error } = useAnswer(() => client.clusterHistory(span, 200), String(span), span === 3600 ? 15 : 60);
  const rows = sortRows(allRows(store), 'name');
  const sums = totals(rows);
  const counts = jobCounts(store);
  const online = rows.filter((row) => row.node.state === 'online').length;
  const numbers: [string, React.ReactNode][] = [
    [
      trans.__('GPUs free'),
      <>
        <b className="mgp-big">{sums.free}</b> {trans.__('of %1', sums.gpus)}
      </>,
    ],
    [
      trans.__('Busy now'),
      <>
        <b className="mgp-big">{sums.busyPercent === null ? '–' : percent(sums.busyPercent)}</b>{' '}
        {answer?.busy_mean_percent == null ? '' : trans.__('%1 over %2', percent(answer.busy_mean_percent), nameOf(span))}
      </>,
    ],
    [
      trans.__('Waiting'),
      <>
        <b className="mgp-big">{counts.waiting}</b> {trans.__('jobs')}
      </>,
    ],
    [
      trans.__('Median wait'),
      <>
        <b className="mgp-big">{answer?.median_wait_s == null ? '–' : duration(answer.median_wait_s)}</b>{' '}
        {answer?.p95_wait_s == null ? '' : `p95 ${duration(answer.p95_wait_s)}`}
      </>,
    ],
    [
      trans.__('Succeeded'),
      <>
        <b className="mgp-big">{answer?.succeeded_percent == null ? '–' : percent(answer.succeeded_percent)}</b>{' '}
        {trans.__('of %1 jobs', answer?.ended_total ?? 0)}
      </>,
    ],
    [
      trans.__('Nodes'),
      <>
        <b className="mgp-big">{online}</b> {trans.__('of %1 online', rows.length)}
      </>,
    ],
  ];
  return (
    <div className="mgp-dashboard">
      <header className="mgp-view-head">
        <div className="mgp-view-title">
          <h1 className="mgp-title">{trans.__('Cluster')}</h1>
          <span className="mgp-second">{plain(store.cluster?.name ?? '')}</span>
          <span className="mgp-space" />
          <div className="mgp-switch" role="radiogroup" aria-label={trans.__('How far back')}>
            {SPANS.map(([name, seconds]) => (
              <button key={name} type="button" role="radio" aria-checked={span === seconds} onClick={() => setSpan(seconds)}>
                {name}
              </button>
            ))}
          </div>
          <button type="button" className="mgp-button" disabled={answer === null} onClick={() => answer && saveCsv(answer)}>
            <Glyph name="download" size={13} /> CSV
          </button>
        </div>
        <dl className="mgp-fact-row">
          {numbers.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd className="mgp-number">{value}</dd>
            </div>
          ))}
        </dl>
        {error && <p className="mgp-second">{plain(error)}</p>}
      </header>
      <div className="mgp-body">
        {answer && (
          <div className="mgp-plots">
            <section className="mgp-frame">
              <h3>{trans.__('GPUs in use')}</h3>
              <Plot
                times={answer.times}
                series={[
                  { values: answer.in_use, tone: 'others' },
                  { values: answer.mine, tone: 'mine' },
                ]}
                width={430}
                height={170}
                span={span}
                label={trans.__('GPUs in use, now %1', sums.mine + sums.others)}
                most={Math.max(1, ...answer.gpus.map((one) => one ?? 0))}
              />
            </section>
            <section className="mgp-frame">
              <h3>{trans.__('Jobs waiting')}</h3>
              <Plot
                times={answer.times}
                series={[{ values: answer.waiting, tone: 'neutral' }]}
                width={230}
                height={170}
                span={span}
                label={trans.__('Jobs waiting, now %1', counts.waiting)}
              />
            </section>
            <section className="mgp-frame">
              <h3>{trans.__('Wait by GPUs asked')}</h3>
              <WaitBoxes waits={answer.waits} />
            </section>
          </div>
        )}
        <section className="mgp-frame">
          <h3>
            {trans._n('%1 node', '%1 nodes', rows.length)}{' '}
            {TILE_STATES.filter((state) => sums[state] > 0).map((state) => (
              <span key={state} className="mgp-legend-entry">
                <LegendTile state={state} /> {`${sums[state]} ${stateWord(state, trans)}`}
              </span>
            ))}
          </h3>
          <Racks rows={rows} />
        </section>
        <Attention rows={rows} />
      </div>
    </div>
  );
}

function nameOf(span: number): string {
  return SPANS.find((one) => one[1] === span)?.[0] ?? '';
}

/** A column for each node, a block for each rack. */
function Racks({ rows }: { rows: readonly INodeRow[] }): JSX.Element {
  const { trans } = useMgpu();
  const blocks = new Map<string, INodeRow[]>();
  for (const row of rows) {
    const key = [
      row.node.rack && trans.__('Rack %1', plain(row.node.rack)),
      row.node.switch && trans.__('switch %1', plain(row.node.switch)),
    ]
      .filter(Boolean)
      .join('  ');
    blocks.set(key, [...(blocks.get(key) ?? []), row]);
  }
  return (
    <div className="mgp-racks">
      {[...blocks].map(([name, inside]) => (
        <div key={name}>
          <div className="mgp-second">
            <b>{name}</b>{' '}
            {trans.__(
              '%1 free',
              inside.reduce((sum, row) => sum + row.free, 0),
            )}
          </div>
          <div className="mgp-rack-columns">
            {inside.map((row) => (
              <Column key={row.node.id} row={row} />
            ))}
          </div>
        </div>
      ))}
    </div>
  );
}

const Column = React.memo(function Column({ row }: { row: INodeRow }): JSX.Element {
  const { commands, trans, live } = useMgpu();
  const step = DASHBOARD.height + GAP;
  const label = `${plain(row.node.id)}, ${nodeNote(row, live.now(), trans).text}`;
  return (
    <button
      type="button"
      className="mgp-column"
      title={label}
      aria-label={label}
      onClick={() => void commands.execute(CommandIds.openNode, { id: row.node.id })}
    >
      <svg width={DASHBOARD.width} height={Math.max(1, row.tiles.length) * step} aria-hidden="true">
        {row.tiles.map((tile, place) => (
          <g key={tile.index} transform={`translate(0 ${place * step})`}>
            <TileShape
              size={DASHBOARD}
              state={tile.state}
              busy={tile.busy}
              memory={tile.memory}
              simulated={tile.simulated}
              parts={tile.parts}
            />
          </g>
        ))}
      </svg>
      <span>{(/\d+$/.exec(row.node.id)?.[0] ?? plain(row.node.id)).slice(-2)}</span>
    </button>
  );
});

/** Boxes from the quarter to three quarters, whiskers from the least to p95, on a logarithmic scale. */
function WaitBoxes({ waits }: { waits: readonly Waits[] }): JSX.Element {
  const { trans } = useMgpu();
  const width = 190;
  const most = Math.log10(Math.max(10, ...waits.map((one) => one.p95_s)) + 1);
  const x = (seconds: number): number => 40 + (Math.log10(Math.max(0, seconds) + 1) / most) * (width - 46);
  if (waits.length === 0) {
    return <p className="mgp-second">{trans.__('No job started in this time.')}</p>;
  }
  return (
    <svg
      width={width}
      height={waits.length * 22 + 8}
      role="img"
      aria-label={waits.map((one) => `${one.gpus} GPUs: ${duration(one.median_s)}`).join(', ')}
    >
      {waits.map((one, place) => {
        const y = place * 22 + 12;
        return (
          <g key={one.gpus} className="mgp-box">
            <title>{`${one.gpus}: ${duration(one.median_s)} (${one.jobs} jobs)`}</title>
            <text x={0} y={y + 4}>
              {one.gpus}
            </text>
            <line x1={x(one.least_s)} x2={x(one.p95_s)} y1={y} y2={y} />
            <rect x={x(one.quarter_s)} y={y - 5} width={Math.max(1, x(one.three_quarters_s) - x(one.quarter_s))} height={10} />
            <line className="mgp-mod-median" x1={x(one.median_s)} x2={x(one.median_s)} y1={y - 6} y2={y + 6} />
          </g>
        );
      })}
    </svg>
  );
}

function Attention({ rows }: { rows: readonly INodeRow[] }): JSX.Element | null {
  const { trans, commands } = useMgpu();
  const now = useNow(15);
  const needy = rows.filter(
    (row) => row.node.state !== 'online' || row.tiles.some((tile) => tile.state === 'unhealthy' || tile.state === 'outside'),
  );
  if (needy.length === 0) {
    return null;
  }
  return (
    <section className="mgp-frame">
      <h3>
        {trans.__('Needs attention')} <span className="mgp-second">{trans._n('%1 node', '%1 nodes', needy.length)}</span>
      </h3>
      <table className="mgp-table">
        <tbody>
          {needy.slice(0, 50).map((row) => {
            const note = nodeNote(row, now, trans);
            const troubled = row.tiles.filter((tile) => tile.state === 'unhealthy' || tile.state === 'outside');
            const text =
              row.node.state === 'online'
                ? troubled
                    .map((tile) => `${trans.__('GPU %1', tile.index)}: ${plain(tile.gpu.reason) || stateWord(tile.state, trans)}`)
                    .join('; ')
                : nodeReason(row.node, now, trans) || note.text;
            return (
              <tr key={row.node.id}>
                <td>
                  <Glyph name={note.glyph || 'warn'} tone={note.glyph || 'warn'} size={13} />
                </td>
                <td>
                  <button
                    type="button"
                    className="mgp-link"
                    onClick={() => void commands.execute(CommandIds.openNode, { id: row.node.id })}
                  >
                    {plain(row.node.id)}
                  </button>
                </td>
                <td>{text}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

function saveCsv(history: ClusterHistory): void {
  const lines = ['time,gpus,in_use,mine,busy,waiting,wanted'];
  history.times.forEach((time, index) => {
    lines.push(
      [
        new Date(time * 1000).toISOString(),
        history.gpus[index] ?? '',
        history.in_use[index],
        history.mine[index],
        history.busy[index] ?? '',
        history.waiting[index],
        history.wanted[index],
      ].join(','),
    );
  });
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([lines.join('\n')], { type: 'text/csv' }));
  link.download = 'cluster.csv';
  link.click();
  URL.revokeObjectURL(link.href);
}
