/** One node: its GPUs over time, who holds them, its jobs, and for administrators drain, maintenance and resume. */
import * as React from 'react';
import type { Job } from '../api/types.gen';
import { CommandIds } from '../commands';
import { nodeRow } from '../model/select';
import { isFinal } from '../model/store';
import { ask } from '../parts/ask';
import { FactRow } from '../parts/facts';
import { Glyph, JobGlyph } from '../parts/glyphs';
import { useAnswer, useChanges, useMgpu, useNow } from '../parts/hooks';
import { Sparkline } from '../parts/sparkline';
import { SIDEBAR, Tile } from '../parts/tile';
import { tell } from '../plugins/tell';
import { clock, mebibytes, percent, plain, size, usedOf } from '../text/format';
import { drainText, jobName, jobTime, nodeReason, shortName, stateWord } from '../text/words';

const OUTLOOK_S = 15;

export function NodeView({ id }: { id: string }): JSX.Element {
  const { trans, live, client, commands } = useMgpu();
  const { store } = live;
  useChanges((changes) => changes.nodes.has(id) || changes.readings.has(id) || changes.jobs.size > 0 || changes.cluster);
  const now = useNow(5);
  const { answer } = useAnswer(() => client.nodeHistory(id, 600, 150), id, 5);
  const { answer: outlook } = useAnswer(() => client.nodeOutlook(id), id, OUTLOOK_S);
  const node = store.nodes.get(id);
  if (node === undefined) {
    return (
      <p className="mgp-none">{store.cluster === null ? trans.__('Loading…') : trans.__('There is no node %1 any more.', plain(id))}</p>
    );
  }
  const row = nodeRow(node, store.readings.get(id), store.cluster?.user ?? '');
  const reading = store.readings.get(id);
  const open = node.orders.state === null;
  const jobs = [...store.jobs.values()].filter((job) => !isFinal(job) && job.nodes.includes(id));
  const order = async (action: 'drain' | 'maintenance'): Promise<void> => {
    const asked = await client.nodeOutlook(id).catch(() => outlook);
    const answer = await ask({
      title: action === 'drain' ? trans.__('Drain %1', plain(id)) : trans.__('Maintenance of %1', plain(id)),
      sentence: drainText(jobs, asked?.jobs.length ?? 0, trans),
      fields: [{ name: 'reason', label: trans.__('Reason, shown to everybody'), value: '' }],
      accept: action === 'drain' ? trans.__('Drain') : trans.__('Start maintenance'),
      refuse: trans.__('Cancel'),
    });
    if (answer !== null) {
      await client.changeNode(id, { action, reason: answer.reason }).catch((error: Error) => tell(error.message));
    }
  };
  const expected = (outlook?.jobs ?? []).flatMap(({ job_id, start_at }) => {
    const job = store.jobs.get(job_id);
    return job?.state === 'queued' ? [{ job, at: start_at ?? now }] : [];
  });
  const total = node.memory_bytes / 2 ** 20;
  const used = reading?.memoryAvailableMib == null ? '–' : usedOf(total - reading.memoryAvailableMib, total)[0];
  const facts: [string, React.ReactNode][] = [
    [trans.__('GPUs free'), <Fact key="free" value={row.free} of={trans.__('of %1', row.tiles.length)} />],
    [trans.__('CPU'), <Fact key="cpu" value={reading?.cpu == null ? '–' : percent(reading.cpu)} of={trans.__('of %1 cores', node.cpus)} />],
    [trans.__('Memory'), <Fact key="memory" value={used} of={trans.__('of %1', mebibytes(total))} />],
    [trans.__('Network'), <Fact key="network" value={plain(node.address)} of={node.host === node.id ? '' : plain(node.host)} />],
    [trans.__('Agent'), <Fact key="agent" value={plain(node.agent_version)} of={plain(node.runs)} />],
  ];
  const reason = nodeReason(node, now, trans);
  return (
    <div className="mgp-node-view" data-node-view={id}>
      <header className="mgp-view-head">
        <div className="mgp-view-title">
          <h1 className="mgp-title">{plain(id)}</h1>
          <span className="mgp-badge">{trans.__(node.state)}</span>
          <span className="mgp-second">
            {[
              node.gpus.length ? `${node.gpus.length} × ${shortName(node)}` : trans.__('no GPUs'),
              node.rack && trans.__('rack %1', plain(node.rack)),
              node.switch && trans.__('switch %1', plain(node.switch)),
            ]
              .filter(Boolean)
              .join(', ')}
          </span>
          <span className="mgp-space" />
          <button type="button" className="mgp-button" onClick={() => void commands.execute(CommandIds.openTerminal, { id })}>
            <Glyph name="terminal" size={13} /> {trans.__('Terminal')}
          </button>
          {store.cluster?.admin &&
            (open ? (
              <>
                <button type="button" className="mgp-button" onClick={() => void order('drain')}>
                  {trans.__('Drain…')}
                </button>
                <button type="button" className="mgp-button" onClick={() => void order('maintenance')}>
                  {trans.__('Maintenance…')}
                </button>
              </>
            ) : (
              <button
                type="button"
                className="mgp-button"
                onClick={() => void client.changeNode(id, { action: 'resume' }).catch((error: Error) => tell(error.message))}
              >
                {trans.__('Resume')}
              </button>
            ))}
        </div>
        <FactRow facts={facts} />
        {reason && (
          <p>
            <Glyph name="warn" tone="warn" size={12} /> {reason}
          </p>
        )}
        {node.warnings.map((text) => (
          <p key={text}>
            <Glyph name="warn" tone="warn" size={12} /> {plain(text)}
          </p>
        ))}
      </header>
      <div className="mgp-body">
        <table className="mgp-table mgp-frame">
          <thead>
            <tr>
              <th />
              <th>{trans.__('GPU')}</th>
              <th>{trans.__('Last 10 min  — busy  - - memory')}</th>
              <th className="mgp-right">{trans.__('Busy')}</th>
              <th className="mgp-right">{trans.__('Memory')}</th>
              <th className="mgp-right">{trans.__('Temp.')}</th>
              <th className="mgp-right">{trans.__('Power')}</th>
              <th>{trans.__('Holder')}</th>
            </tr>
          </thead>
          <tbody>
            {row.tiles.map((tile) => {
              const past = answer?.gpus.find((one) => one.index === tile.index);
              const [busy, memory, temperature, power] = tile.reading;
              const job = tile.gpu.job_id === null ? undefined : store.jobs.get(tile.gpu.job_id);
              return (
                <tr key={tile.index}>
                  <td>
                    <Tile
                      size={SIDEBAR}
                      state={tile.state}
                      busy={tile.busy}
                      memory={tile.memory}
                      simulated={tile.simulated}
                      parts={tile.parts}
                    />
                  </td>
                  <td>{tile.index}</td>
                  <td>
                    {past ? (
                      <Sparkline
                        values={past.busy}
                        other={past.memory_mib}
                        otherMost={tile.gpu.memory_bytes / 2 ** 20}
                        width={220}
                        height={24}
                        tone="mine"
                        label={trans.__('GPU %1 over the last 10 minutes', tile.index)}
                      />
                    ) : (
                      <span className="mgp-second">{trans.__('no data')}</span>
                    )}
                  </td>
                  <td className="mgp-number mgp-right">{busy === null ? '–' : percent(busy)}</td>
                  <td className="mgp-number mgp-right">{memory === null ? '–' : mebibytes(memory)}</td>
                  <td className="mgp-number mgp-right">{temperature === null ? '–' : `${Math.round(temperature)} °C`}</td>
                  <td className="mgp-number mgp-right">{power === null ? '–' : `${Math.round(power)} W`}</td>
                  <td>
                    {tile.state === 'unhealthy' && <Glyph name="bad" tone="bad" size={12} />}{' '}
                    {tile.gpu.job_id !== null ? (
                      `${plain(tile.gpu.user ?? '')}, ${job ? jobName(job) : tile.gpu.job_id}`
                    ) : (
                      <span className={tile.state === 'free' ? 'mgp-second' : ''}>
                        {[stateWord(tile.state, trans), plain(tile.gpu.reason)].filter(Boolean).join(': ')}
                      </span>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
        <section className="mgp-frame">
          <h3>
            {trans.__('Jobs here')}{' '}
            <span className="mgp-second">
              {[trans.__('%1 running', jobs.length), expected.length ? trans.__('%1 expected', expected.length) : '']
                .filter(Boolean)
                .join(', ')}
            </span>
          </h3>
          <table className="mgp-table">
            <tbody>
              {jobs.map((job) => (
                <JobHere
                  key={job.id}
                  job={job}
                  when={[
                    jobTime(job, store, now, trans),
                    job.started_at !== null && job.time_limit_s !== null
                      ? trans.__('ends by %1', clock(job.started_at + job.time_limit_s))
                      : '',
                  ]
                    .filter(Boolean)
                    .join(', ')}
                />
              ))}
              {expected.map(({ job, at }) => (
                <JobHere key={job.id} job={job} when={trans.__('starts ≈ %1', clock(Math.max(at, now)))} />
              ))}
            </tbody>
          </table>
        </section>
      </div>
    </div>
  );
}

/** A job that runs on the node, or is expected there. */
function JobHere({ job, when }: { job: Job; when: string }): JSX.Element {
  const { live, commands } = useMgpu();
  return (
    <tr data-job-here={job.id}>
      <td className="mgp-glyph-column">
        <JobGlyph job={job} mine={job.user === live.store.cluster?.user} />
      </td>
      <td>
        <button type="button" className="mgp-link" onClick={() => void commands.execute(CommandIds.openJob, { id: job.id })}>
          {jobName(job)}
        </button>
      </td>
      <td>{plain(job.user)}</td>
      <td className="mgp-number">{size(job.nodes_wanted, job.gpus)}</td>
      <td className="mgp-second mgp-number">{when}</td>
    </tr>
  );
}

function Fact({ value, of }: { value: React.ReactNode; of: string }): JSX.Element {
  return (
    <>
      <b>{value}</b> {of}
    </>
  );
}
