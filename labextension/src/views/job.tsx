/** One job: what it is, its timeline, its log, its GPUs, why it waits. */
import * as React from 'react';
import type { Job } from '../api/types.gen';
import { CommandIds } from '../commands';
import { isFinal, type Store } from '../model/store';
import { FactRow } from '../parts/facts';
import { Glyph, JobGlyph } from '../parts/glyphs';
import { useAnswer, useChanges, useMgpu, useNow } from '../parts/hooks';
import { bytes, clock, duration, moment, plain, stopwatch } from '../text/format';
import { askedLine, failureText, gpuKind, jobLine, jobName, nodeList } from '../text/words';
import { ExplainView } from './explain';
import { LogView } from './log';
import { Rail } from './rail';
import { Timeline } from './timeline';

const TABS = ['overview', 'log', 'gpus', 'timeline', 'explain', 'script', 'files'] as const;
type Tab = (typeof TABS)[number];

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
    ['script', trans.__('Script')],
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
                <LogView job={job} />
                <Rail job={job} />
              </div>
            )}
          </>
        )}
        {shown === 'log' && <LogView job={job} />}
        {shown === 'gpus' && <Rail job={job} />}
        {shown === 'timeline' && <Way job={job} />}
        {shown === 'explain' && <ExplainView job={job} />}
        {shown === 'script' && <Script job={job} />}
        {shown === 'files' && <Files job={job} />}
      </div>
    </div>
  );
}

function isTab(text: string): text is Tab {
  return (TABS as readonly string[]).includes(text);
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
    [
      trans.__('GPUs'),
      <>
        <b>{job.gpus}</b> {kindOf(job, live.store)}
        {job.placements.length > 1 ? `, ${trans.__('ranks 0–%1', job.placements.length - 1)}` : ''}
      </>,
    ],
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
    [
      trans.__('Attempt'),
      <>
        <b>{Math.max(1, job.attempt)}</b> {job.attempt < 2 ? trans.__('no retry yet') : ''}
      </>,
    ],
    [
      trans.__('Submitted'),
      <>
        <b>{moment(job.submitted_at, now)}</b> {trans.__('by %1', mine ? trans.__('me') : plain(job.user))}
        {job.origin?.notebook ? `, ${plain(job.origin.notebook.split('/').pop() ?? '')}` : ''}
      </>,
    ],
  ];
  const asked = askedLine(job, live.store, now, trans);
  return (
    <header className="mgp-view-head">
      <div className="mgp-view-title">
        <JobGlyph job={job} held={held} mine={mine} />
        <h1 className="mgp-title">{jobName(job)}</h1>
        <code>{job.id}</code>
        <button type="button" className="mgp-icon-button" aria-label={trans.__('Copy the id')} onClick={() => run(CommandIds.copyJobId)}>
          <Glyph name="copy" size={14} />
        </button>
        <span className={`mgp-badge${mine && job.state === 'running' ? ' mgp-mod-mine' : ''}`}>
          {held ? trans.__('held') : trans.__(job.state)}
        </span>
        {job.state === 'queued' && (
          <span className="mgp-second mgp-asked-line" title={asked}>
            {asked}
          </span>
        )}
        <span className="mgp-space" />
        <span className="mgp-view-actions">
          {job.state === 'queued' && (
            <button type="button" className="mgp-button" onClick={() => run(held ? CommandIds.releaseJob : CommandIds.holdJob)}>
              <Glyph name={held ? 'play' : 'pause'} size={13} /> {held ? trans.__('Release') : trans.__('Hold')}
            </button>
          )}
          {(job.state === 'running' || job.state === 'starting') && (
            <>
              <button
                type="button"
                className="mgp-button"
                title={trans.__('A shell on %1', plain(job.nodes[0] ?? ''))}
                onClick={() => void commands.execute(CommandIds.openTerminal, { id: job.nodes[0] ?? '' })}
              >
                <Glyph name="terminal" size={13} /> {trans.__('Terminal')}
              </button>
              <button
                type="button"
                className="mgp-button"
                title={trans.__('Stop it and let it wait to start again, under the same id')}
                onClick={() => run(CommandIds.requeueJob)}
              >
                {trans.__('Requeue')}
              </button>
            </>
          )}
          {job.state !== 'queued' && (
            <button
              type="button"
              className="mgp-button"
              title={trans.__('A new job with the same request')}
              onClick={() => run(CommandIds.rerunJob)}
            >
              <Glyph name="again" size={13} /> {trans.__('Run again')}
            </button>
          )}
          {job.state === 'queued' && (
            <button
              type="button"
              className="mgp-button"
              title={trans.__('Another time limit or priority')}
              onClick={() => run(CommandIds.editJob)}
            >
              <Glyph name="edit" size={13} /> {trans.__('Edit')}
            </button>
          )}
          {!isFinal(job) && (
            <button type="button" className="mgp-button" onClick={() => run(CommandIds.cancelJob)}>
              <Glyph name="close" size={13} tone="bad" /> {trans.__('Cancel')}
            </button>
          )}
        </span>
      </div>
      {job.state !== 'queued' && <FactRow facts={facts} />}
      {(job.state === 'starting' || job.state === 'stopping') && <p>{jobLine(job, live.store, now, trans)}</p>}
      {isFinal(job) && job.reason && <p>{plain(job.reason)}</p>}
      {failure && (
        <p>
          <Glyph name="bad" tone="bad" size={12} /> {failureText(failure, trans)}
        </p>
      )}
    </header>
  );
}

/** The kind of GPUs that it has; empty when they differ or are simulated. */
function kindOf(job: Job, store: Store): string {
  const kinds = new Set(
    job.placements.flatMap((one) =>
      one.gpu_indices.map((index) => store.nodes.get(one.node)?.gpus.find((gpu) => gpu.index === index)?.name ?? ''),
    ),
  );
  return kinds.size === 1 ? gpuKind([...kinds][0] as string).replace(/^sim$/, 'simulated') : '';
}

function Script({ job }: { job: Job }): JSX.Element {
  const { trans } = useMgpu();
  const source = job.origin?.source ?? '';
  return (
    <>
      <pre className="mgp-join-line">{job.command.split('\n').map(plain).join('\n')}</pre>
      {source !== '' && (
        <>
          <h3>{trans.__('Cell of %1', plain(job.origin?.notebook ?? ''))}</h3>
          <pre className="mgp-join-line">{source.split('\n').map(plain).join('\n')}</pre>
        </>
      )}
    </>
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
