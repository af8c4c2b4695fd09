/** The card of one GPU beside the wall: what it is, who has it, how busy it was. Opens on hover and focus, closes by Escape. */
import * as React from 'react';
import { createPortal } from 'react-dom';
import type { ITile } from '../model/select';
import { useAnswer, useChanges, useMgpu } from '../parts/hooks';
import { Sparkline } from '../parts/sparkline';
import { LegendTile } from '../parts/tile';
import { mebibytes, percent, plain, usedOf } from '../text/format';
import { jobName, tileSentence } from '../text/words';

const WIDTH = 276;
const SPAN_S = 600;

export interface ICardProps {
  readonly tile: ITile;
  readonly anchor: DOMRect;
  readonly id: string;
  readonly onEnter: () => void;
  readonly onLeave: () => void;
}

export function Card({ tile, anchor, id, onEnter, onLeave }: ICardProps): JSX.Element | null {
  const mgpu = useMgpu();
  const { trans } = mgpu;
  const { store, client } = mgpu.live;
  useChanges((changes) => changes.readings.has(tile.node) || changes.nodes.has(tile.node));
  const { answer } = useAnswer(() => client.nodeHistory(tile.node, SPAN_S, 126), `${tile.node}`, 10);
  const node = store.nodes.get(tile.node);
  const gpu = node?.gpus.find((one) => one.index === tile.index);
  if (node === undefined || gpu === undefined) {
    return null;
  }
  const [busy, memory, temperature, power] = store.readings.get(tile.node)?.gpus.get(tile.index) ?? tile.reading;
  const total = gpu.memory_bytes / 2 ** 20;
  const past = answer?.gpus.find((one) => one.index === tile.index);
  const job = gpu.job_id === null ? undefined : store.jobs.get(gpu.job_id);
  const sentence = tileSentence(tile, node, trans);
  const processes = gpu.processes.map((one) => `${plain(one.name || trans.__('process'))}, pid ${one.pid}`);
  const user = gpu.user ?? gpu.processes.find((one) => one.user !== null)?.user ?? null;
  const warm = [temperature === null ? '' : `${Math.round(temperature)} °C`, power === null ? '' : `${Math.round(power)} W`]
    .filter(Boolean)
    .join(', ');
  const rows: [string, React.ReactNode][] = [
    [trans.__('Busy'), busy === null ? trans.__('not told') : <b>{percent(busy)}</b>],
    [
      trans.__('Memory'),
      memory === null ? (
        mebibytes(total)
      ) : (
        <>
          <b>{usedOf(memory, total)[0]}</b> {trans.__('of %1', mebibytes(total))}
        </>
      ),
    ],
    [trans.__('Temperature'), warm || trans.__('not told')],
    [
      trans.__('Job'),
      gpu.job_id === null ? trans.__('none') : `${job ? jobName(job) : gpu.job_id}${gpu.rank === null ? '' : `, rank ${gpu.rank}`}`,
    ],
    [trans.__('User'), user === null ? trans.__('none') : plain(user)],
    [trans.__('Process'), processes.length ? processes.slice(0, 3).join('; ') : trans.__('none')],
    [trans.__('UUID'), <code key="uuid">{plain(gpu.uuid)}</code>],
  ];
  const left = anchor.right + 8 + WIDTH > window.innerWidth ? Math.max(4, anchor.left - WIDTH - 8) : anchor.right + 8;
  const top = Math.max(4, Math.min(anchor.top - 8, window.innerHeight - 300));
  return createPortal(
    <div className="mgp-card" role="tooltip" id={id} style={{ left, top, width: WIDTH }} onMouseEnter={onEnter} onMouseLeave={onLeave}>
      <div className="mgp-card-head">
        <LegendTile state={tile.state} />
        <b className="mgp-name">{`${plain(tile.node)} · ${trans.__('GPU %1', tile.index)}`}</b>
        <span className="mgp-second">{plain(gpu.name)}</span>
      </div>
      {sentence && <div className="mgp-card-sentence">{sentence}</div>}
      {past && past.busy.length > 1 && (
        <Sparkline
          values={past.busy}
          other={past.memory_mib}
          otherMost={total}
          width={WIDTH - 24}
          height={28}
          tone="mine"
          label={trans.__('Busy over the last 10 minutes, now %1', busy === null ? '–' : percent(busy))}
        />
      )}
      <dl className="mgp-facts">
        {rows.map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </React.Fragment>
        ))}
      </dl>
    </div>,
    document.body,
  );
}
