/** The sections Queue and History. */
import * as React from 'react';
import { CommandIds } from '../commands';
import { activeRow, endedRow, type IJobRow } from '../model/rows';
import { historyRows, jobCounts, queueRows } from '../model/select';
import { isFinal } from '../model/store';
import { Switch } from '../parts/facts';
import { useChanges, useConnection, useMgpu, useNow } from '../parts/hooks';
import type { IFilterState } from './cluster';
import { type IJobAction, JobList } from './rows';
import { Skeleton } from './states';
import { useUsed } from './used';

interface ISectionProps {
  readonly filter: IFilterState;
  readonly onFilter: (filter: IFilterState) => void;
  readonly width: number;
}

export function QueueSection({ filter, onFilter, width }: ISectionProps): JSX.Element {
  const mgpu = useMgpu();
  const { trans, live } = mgpu;
  const { store } = live;
  const connection = useConnection();
  const [mine, setMine] = React.useState(mgpu.settings.queueMine);
  const version = useChanges((changes) => changes.jobs.size > 0 || changes.queue || changes.cluster);
  useChanges((changes) => changes.readings.size > 0); // running jobs show how busy they are
  const now = useNow(15);
  const [active, waits] = React.useMemo(() => {
    const jobs = queueRows(store, mine, filter.text);
    const wait = jobs.filter((job) => job.state === 'queued').map((job) => activeRow(job, store, now, trans));
    return [jobs.filter((job) => job.state !== 'queued'), wait];
  }, [store, version, mine, filter.text, now, trans]);
  if (store.cluster === null) {
    return connection.state === 'connecting' ? (
      <Skeleton rows={3} tiles={false} />
    ) : (
      <p className="mgp-none">{trans.__('The queue is safe on disk.')}</p>
    );
  }
  const counts = jobCounts(store);
  const rows = [...active.map((job) => activeRow(job, store, now, trans)), ...waits];
  const all = counts.waiting + counts.running;
  const ours = counts.myWaiting + counts.myRunning;
  const old = connection.state !== 'live' && connection.state !== 'connecting';
  return (
    <div className={old ? 'mgp-mod-stale' : ''}>
      {all > 0 && (
        <Switch
          label={trans.__('Whose jobs')}
          choices={[
            ['mine', trans.__('Mine %1', ours)],
            ['all', trans.__('All %1', all)],
          ]}
          value={mine ? 'mine' : 'all'}
          set={(whose) => setMine(whose === 'mine')}
        />
      )}
      {rows.length > 0 ? (
        <JobList
          rows={rows}
          label={trans.__('Jobs that run or wait')}
          width={width}
          users={!mine}
          actions={(row) => actionsOf(row, trans)}
        />
      ) : filter.text !== '' && all > 0 ? (
        <p className="mgp-none">
          {trans.__('No job matches “%1”.', filter.text)}{' '}
          <button type="button" className="mgp-link" onClick={() => onFilter({ shown: filter.shown, text: '' })}>
            {trans.__('Clear')}
          </button>
        </p>
      ) : (
        <p className="mgp-none">
          {all > 0 ? trans.__('No jobs of yours.') : trans.__('No jobs.')} {trans.__('Put')} <code>%%mgpu_srun --gpus 1</code>{' '}
          {trans.__('on top of a cell, or press New job.')}
        </p>
      )}
    </div>
  );
}

function actionsOf(row: IJobRow, trans: ReturnType<typeof useMgpu>['trans']): IJobAction[] {
  const actions: IJobAction[] = [];
  if (row.job.state === 'queued') {
    actions.push({ command: CommandIds.explainJob, glyph: 'why', label: trans.__('Why') });
    actions.push(
      row.held
        ? { command: CommandIds.releaseJob, glyph: 'play', label: trans.__('Release') }
        : { command: CommandIds.holdJob, glyph: 'pause', label: trans.__('Hold') },
    );
  }
  actions.push({ command: CommandIds.cancelJob, glyph: 'close', label: trans.__('Cancel') });
  return actions;
}

export function HistorySection({ filter, width }: ISectionProps): JSX.Element {
  const mgpu = useMgpu();
  const { trans, live } = mgpu;
  const { store } = live;
  const connection = useConnection();
  useChanges((changes) => [...changes.jobs].some((id) => endedOrGone(store.jobs.get(id))) || changes.cluster);
  const now = useNow(60);
  const jobs = historyRows(store, mgpu.settings.queueMine, filter.text);
  const used = useUsed(jobs);
  if (store.cluster === null) {
    return connection.state === 'connecting' ? <Skeleton rows={2} tiles={false} /> : <></>;
  }
  const rows = jobs.map((job) => endedRow(job, used.get(job.id) ?? null, store, now, trans));
  const old = connection.state !== 'live' && connection.state !== 'connecting';
  const again = { command: CommandIds.rerunJob, glyph: 'again' as const, label: trans.__('Run again') };
  return (
    <div className={old ? 'mgp-mod-stale' : ''}>
      {rows.length === 0 ? (
        <p className="mgp-none">{trans.__('Nothing has ended yet.')}</p>
      ) : (
        <JobList rows={rows} label={trans.__('Jobs that ended')} width={width} users={false} actions={() => [again]} />
      )}
    </div>
  );
}

function endedOrGone(job: Parameters<typeof isFinal>[0] | undefined): boolean {
  return job === undefined || isFinal(job);
}
