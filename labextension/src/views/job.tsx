/** One job: what it is, its way so far, its log, its GPUs, why it waits. */
import * as React from 'react';
import type { Job } from '../api/types.gen';
import { CommandIds } from '../commands';
import { isFinal } from '../model/store';
import { Glyph, JobGlyph } from '../parts/glyphs';
import { useAnswer, useChanges, useMgpu, useNow } from '../parts/hooks';
import { Sparkline } from '../parts/sparkline';
import { bytes, clock, duration, gigabytes, moment, percent, plain, size, stopwatch } from '../text/format';
import { jobLine, jobName, nodeList } from '../text/words';
import { ExplainView } from './explain';
import { LogView } from './log';
import { Timeline } from './timeline';

type Tab = 'overview' | 'log' | 'gpus' | 'timeline' | 'explain' | 'files';

export function JobView({ id, tab }: { id: string; tab: string }): JSX.Element {
  const { trans, live, client } = useMgpu();
  useChanges((changes) => changes.jobs.has(id) || changes.queue || changes.cluster);
  const known = live.store.jobs.get(id);
  const { answer, error } = useAnswer(() => client.job(id), `${id} ${known?.state ?? ''}`);
  const job = known ?? answer;
  const [chosen, choose] = React.useState<Tab | null>(null);
  React.useEffect(() => choose(null), [tab]);
  if (!job) {
    return <p className="mgp-none">{error ? plain(error) : trans.__('Loading…')}</p>;
  }
  const shown: Tab = chosen ?? (isTab(tab) ? tab : 'overview');
  const tabs: [Tab, string][] = [
    ['overview', trans.__('Overview')],
    ['log', trans.__('Log')],
    ['gpus', trans.__('GPUs')],
    ['timeline', trans.__('Timeline')],
    ['explain', trans.__('Explain')],
    ['files', trans.__('Files')],
  ];
  return (
    <div className="mgp-job-view" data-job-view={id}>
      <Header job={job} failure={answer?.failure ?? null} />
      <div className="mgp-tabs" role="tablist">
        {tabs.map(([name, label]) => (
          <button key={name} type="button" role="tab" aria-selected={shown === name} onClick={() => choose(name)}>
            {label}
          </button>
        ))}
      </div>
      <div className="mgp-body" role="tabpanel">
        {shown === 'overview' && (
          <>
            <Timeline job={job} />
            {job.state === 'queued' ? (
              <ExplainView job={job} />
            ) : (
              <div className="mgp-columns">
                <LogView id={id} />
                <Rail job={job} />
              </div>
            )}
          </>
        )}
        {shown === 'log' && <LogView id={id} />}
        {shown === 'gpus' && <Rail job={job} />}
        {shown === 'timeline' && <Way job={job} />}
        {shown === 'explain' && <ExplainView job={job} />}
        {shown === 'files' && <Files job={job} />}
      </div>
    </div>
  );
}

function isTab(text: string): text is Tab {
  return ['overview', 'log', 'gpus', 'timeline', 'explain', 'files'].includes(text);
}

function Header({ job, failure }: { job: Job; failure: Job['failure'] }): JSX.Element {
  const { trans, live, commands } = useMgpu();
  const now = useNow(1);
  const mine = job.user === live.store.cluster?.user;
  const held = job.state === 'queued' && live.store.reason(job)[0] === 'held';
  const run = (command: string): void => void commands.execute(command, { id: job.id });
  const ran = job.started_at === null ? null : (job.ended_at ?? now) - job.started_at;
  const facts: [string, React.ReactNode][] = [
    [
      trans.__('Nodes'),
      <>
        <b>{job.nodes.length || job.nodes_wanted}</b> {nodeList(job.nodes)}
      </>,
    ],
    [trans.__('GPUs'), <b>{size(job.nodes_wanted, job.gpus)}</b>],
    [
      trans.__('Elapsed'),
      ran === null ? (
        trans.__('not started')
      ) : (
        <>
          <b>{stopwatch(ran)}</b>
          {job.time_limit_s ? ` of ${stopwatch(job.time_limit_s)}` : ''}
        </>
      ),
    ],
    [
      job.ended_at === null ? trans.__('Ends by') : trans.__('Ended'),
      job.ended_at !== null ? (
        moment(job.ended_at, now)
      ) : job.started_at !== null && job.time_limit_s !== null ? (
        <>
          <b>{clock(job.started_at + job.time_limit_s)}</b> {trans.__('time limit')}
        </>
      ) : (
        '–'
      ),
    ],
    [trans.__('Attempt'), <b>{job.attempt}</b>],
    [
      trans.__('Submitted'),
      <>
        <b>{moment(job.submitted_at, now)}</b> {trans.__('by %1', plain(job.user))}
      </>,
    ],
  ];
  return (
    <header className="mgp-view-head">
      <div className="mgp-view-title">
        <JobGlyph job={job} held={held} mine={mine} />
        <h1 className="mgp-title">{jobName(job)}</h1>
        <code>{job.id}</code>
        <button type="button" className="mgp-icon-button" aria-label={trans.__('Copy the id')} onClick={() => run(CommandIds.copyJobId)}>
          <Glyph name="copy" size={14} />
        </button>
        <span className="mgp-badge">{held ? trans.__('held') : trans.__(job.state)}</span>
        <span className="mgp-space" />
        {job.state === 'queued' && (
          <button type="button" className="mgp-button" onClick={() => run(held ? CommandIds.releaseJob : CommandIds.holdJob)}>
            <Glyph name={held ? 'play' : 'pause'} size={13} /> {held ? trans.__('Release') : trans.__('Hold')}
          </button>
        )}
        {(job.state === 'running' || job.state === 'starting') && (
          <button type="button" className="mgp-button" onClick={() => run(CommandIds.requeueJob)}>
            {trans.__('Requeue')}
          </button>
        )}
        <button type="button" className="mgp-button" onClick={() => run(CommandIds.rerunJob)}>
          <Glyph name="again" size={13} /> {trans.__('Run again')}
        </button>
        {!isFinal(job) && (
          <button type="button" className="mgp-button" onClick={() => run(CommandIds.cancelJob)}>
            <Glyph name="close" size={13} tone="bad" /> {trans.__('Cancel')}
          </button>
        )}
      </div>
      <dl className="mgp-fact-row">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="mgp-number">{value}</dd>
          </div>
        ))}
      </dl>
      {!isFinal(job) && job.state !== 'running' && <p>{jobLine(job, live.store, now, trans)}</p>}
      {isFinal(job) && job.reason && <p>{plain(job.reason)}</p>}
      {failure && (
        <p>
          <Glyph name="bad" tone="bad" size={12} />{' '}
          {trans.__('rank %1 on %2 ended first, exit %3', failure.rank, plain(failure.node), failure.exit_code ?? failure.signal ?? '?')}
        </p>
      )}
    </header>
  );
}

function Rail({ job }: { job: Job }): JSX.Element {
  const { trans, client } = useMgpu();
  const { answer, error } = useAnswer(() => client.usage(job.id), `${job.id} ${job.state}`, isFinal(job) ? 0 : 5);
  if (answer === null) {
    return <aside>{error && <p className="mgp-second">{plain(error)}</p>}</aside>;
  }
  return (
    <aside>
      <section className="mgp-frame">
        <h3>{trans.__('Efficiency')}</h3>
        <p className="mgp-big">
          {answer.used === null ? trans.__('asked %1', answer.asked) : trans.__('asked %1, used %2', answer.asked, answer.used.toFixed(1))}
        </p>
        {answer.hint && <p className="mgp-second">{plain(answer.hint)}</p>}
        {answer.message && <p className="mgp-second">{plain(answer.message)}</p>}
      </section>
      {answer.gpus.length > 0 && (
        <section className="mgp-frame">
          <h3>
            {trans.__('GPUs')} <span className="mgp-second">{trans.__('— busy  - - memory')}</span>
          </h3>
          {answer.gpus.map((gpu) => {
            const memory = gpu.memory[gpu.memory.length - 1] ?? gpu.memory_peak_mib;
            return (
              <div className="mgp-gpu-row" key={gpu.uuid}>
                <span>{`${plain(gpu.node)}:${gpu.index}`}</span>
                <span className="mgp-second">{gpu.rank ?? ''}</span>
                <Sparkline
                  values={gpu.busy}
                  other={gpu.memory}
                  otherMost={gpu.memory_mib}
                  width={110}
                  height={26}
                  tone="mine"
                  label={trans.__('Busy %1 in the mean', gpu.busy_mean === null ? '–' : percent(gpu.busy_mean))}
                />
                <b className="mgp-number">{gpu.busy_mean === null ? '–' : percent(gpu.busy_mean)}</b>
                <span className="mgp-second mgp-number">{memory === null ? '' : `${gigabytes(memory)} GB`}</span>
              </div>
            );
          })}
        </section>
      )}
    </aside>
  );
}

function Way({ job }: { job: Job }): JSX.Element {
  const { trans, client } = useMgpu();
  const { answer, error } = useAnswer(() => client.trace(job.id), `${job.id} ${job.state} ${job.seq}`);
  if (answer === null) {
    return <p className="mgp-none">{error ? plain(error) : ''}</p>;
  }
  return (
    <>
      <Timeline job={job} />
      {answer.attempts.map((one) => (
        <section className="mgp-frame" key={one.attempt}>
          <h3>{trans.__('Attempt %1', one.attempt)}</h3>
          <ul className="mgp-plain">
            <li>
              <span className="mgp-number">{clock(one.queued_at, true)}</span> {trans.__('queued')}
            </li>
            {one.planned_at !== null && (
              <li>
                <span className="mgp-number">{clock(one.planned_at, true)}</span> {trans.__('placed')}
              </li>
            )}
            {one.started_at !== null && (
              <li>
                <span className="mgp-number">{clock(one.started_at, true)}</span>{' '}
                {trans.__('started, after %1', duration(one.started_at - one.queued_at))}
              </li>
            )}
            {one.ended_at !== null && (
              <li>
                <span className="mgp-number">{clock(one.ended_at, true)}</span> {trans.__('ended')} {plain(one.reason)}
              </li>
            )}
          </ul>
        </section>
      ))}
      {answer.mismatches.map((text) => (
        <p key={text}>
          <Glyph name="warn" tone="warn" size={12} /> {plain(text)}
        </p>
      ))}
    </>
  );
}

function Files({ job }: { job: Job }): JSX.Element {
  const { trans, client } = useMgpu();
  const { answer, error } = useAnswer(() => client.results(job.id), `${job.id} ${job.state}`);
  if (answer === null || answer.files.length === 0) {
    return <p className="mgp-none">{error ? plain(error) : trans.__('No files. Name them with --results.')}</p>;
  }
  return (
    <table className="mgp-table mgp-frame">
      <tbody>
        {answer.files.map((file) => (
          <tr key={`${file.node} ${file.number}`}>
            <td>{plain(file.path)}</td>
            <td>{plain(file.node)}</td>
            <td className="mgp-number">{bytes(file.size)}</td>
            <td>{plain(file.problem)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
