/** The cluster over time: in use, waiting, wait by size, the wall by rack, and what needs attention. */
import * as React from 'react';
import type { ClusterHistory, Waits } from '../api/types.gen';
import { CommandIds } from '../commands';
import { allRows, type INodeRow, jobCounts, sortRows, totals, wantedGpus } from '../model/select';
import { FactRow, Switch } from '../parts/facts';
import { Glyph } from '../parts/glyphs';
import { useAnswer, useChanges, useMgpu, useNow } from '../parts/hooks';
import { Plot } from '../parts/plot';
import { LegendTile } from '../parts/tile';
import { duration, percent, plain } from '../text/format';
import { nodeNote, nodeReason, stateWord } from '../text/words';
import { save } from './log';
import { RackWall } from './racks';

const SPANS: readonly [number, string][] = [
  [3600, '1 h'],
  [86_400, '24 h'],
  [7 * 86_400, '7 d'],
  [30 * 86_400, '30 d'],
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
        <b className="mgp-big">{counts.waiting}</b> {trans._n('job, %2 GPUs', 'jobs, %2 GPUs', counts.waiting, wantedGpus(store))}
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
          <Switch label={trans.__('How far back')} choices={SPANS} value={span} set={setSpan} />
          <button type="button" className="mgp-button" disabled={answer === null} onClick={() => answer && saveCsv(answer)}>
            <Glyph name="download" size={13} /> CSV
          </button>
        </div>
        <FactRow facts={numbers} />
        {error && <p className="mgp-second">{plain(error)}</p>}
      </header>
      <div className="mgp-body">
        {answer && (
          <div className="mgp-plots">
            <section className="mgp-frame">
              <h3>
                {trans.__('GPUs in use')}
                <span className="mgp-far">
                  {(['mine', 'others'] as const).map((state) => (
                    <span key={state} className="mgp-legend-entry">
                      <LegendTile state={state} /> {stateWord(state, trans)}
                    </span>
                  ))}
                </span>
              </h3>
              <Plot
                times={answer.times}
                series={[
                  { values: answer.in_use, tone: 'others' },
                  { values: answer.mine, tone: 'mine' },
                ]}
                width={360}
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
                width={200}
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
        <RackWall rows={rows} />
        <Attention rows={rows} />
      </div>
    </div>
  );
}

function nameOf(span: number): string {
  return SPANS.find(([seconds]) => seconds === span)?.[1] ?? '';
}

const TICKS_S = [1, 30, 300, 3600, 36_000, 360_000];

/** Boxes from the first to the third quartile, whiskers from the least to p95, on a logarithmic scale. */
function WaitBoxes({ waits }: { waits: readonly Waits[] }): JSX.Element {
  const { trans } = useMgpu();
  const width = 170;
  const most = Math.log10(Math.max(10, ...waits.map((one) => one.p95_s)) + 1);
  const x = (seconds: number): number => 40 + (Math.log10(Math.max(0, seconds) + 1) / most) * (width - 46);
  if (waits.length === 0) {
    return <p className="mgp-second">{trans.__('No job started in this time.')}</p>;
  }
  return (
    <svg
      className="mgp-box"
      width={width}
      height={waits.length * 22 + 28}
      role="img"
      aria-label={waits.map((one) => `${one.gpus} GPUs: ${duration(one.median_s)}`).join(', ')}
    >
      {TICKS_S.filter((at) => Math.log10(at + 1) <= most).map((at) => (
        <g key={at}>
          <line className="mgp-plot-grid" x1={x(at)} x2={x(at)} y1={0} y2={waits.length * 22 + 4} />
          <text x={x(at)} y={waits.length * 22 + 20} textAnchor="middle">
            {at < 60 ? `${at} s` : at < 3600 ? `${at / 60} m` : `${at / 3600} h`}
          </text>
        </g>
      ))}
      {waits.map((one, place) => {
        const y = place * 22 + 12;
        return (
          <g key={one.gpus}>
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
  save('cluster.csv', new Blob([lines.join('\n')], { type: 'text/csv' }));
}
