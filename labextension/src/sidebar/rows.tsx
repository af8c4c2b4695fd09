/** A list of jobs with one tab stop: arrows move, Enter opens, Delete cancels, Alt with arrows changes the priority, `?` says why. */
import * as React from 'react';
import type { Job } from '../api/types.gen';
import { CommandIds } from '../commands';
import { isAfter } from '../model/orders';
import { COLUMNS, type IColumn, type IJobRow } from '../model/rows';
import { Glyph, type GlyphName, JobGlyph } from '../parts/glyphs';
import { useMgpu, useSteady } from '../parts/hooks';
import { Virtual } from '../parts/virtual';
import { middle } from '../text/format';

export interface IJobAction {
  readonly command: string;
  readonly glyph: GlyphName;
  readonly label: string;
}

interface IJobListProps {
  readonly rows: readonly IJobRow[];
  readonly label: string;
  readonly width: number;
  readonly users: boolean;
  readonly actions: (row: IJobRow) => readonly IJobAction[];
}

const ONE_LINE = 44;
const TWO_LINES = 60;

export function JobList({ rows, label, width, users, actions }: IJobListProps): JSX.Element {
  const { trans, commands } = useMgpu();
  const [inUse, setInUse] = React.useState(false);
  const [focused, setFocused] = React.useState('');
  const list = React.useRef<HTMLDivElement>(null);
  const { shown, waiting } = useSteady(rows, keyOf, inUse);
  const current = shown.some((row) => row.job.id === focused) ? focused : (shown[0]?.job.id ?? '');
  const height = React.useCallback(
    (row: IJobRow) => (width >= 260 && textOf(row, 'below').length * 6.2 > width - 44 ? TWO_LINES : ONE_LINE),
    [width],
  );

  const go = (row: IJobRow | undefined): void => {
    if (row !== undefined) {
      setFocused(row.job.id);
      window.setTimeout(() => list.current?.querySelector<HTMLElement>(`[data-job="${CSS.escape(row.job.id)}"]`)?.focus(), 0);
    }
  };
  const onKeyDown = (event: React.KeyboardEvent): void => {
    // what has the focus, not what was drawn last: a key must never act on another job
    const target = event.target instanceof HTMLElement ? event.target.dataset.job : undefined;
    const at = shown.findIndex((row) => row.job.id === target);
    const row = shown[at];
    if (row === undefined) {
      return;
    }
    const run = (command: string): void => {
      event.preventDefault();
      event.stopPropagation();
      void commands.execute(command, { id: row.job.id });
    };
    switch (event.key) {
      case 'ArrowDown':
        return event.altKey ? run(CommandIds.lowerJob) : (event.preventDefault(), go(shown[at + 1]));
      case 'ArrowUp':
        return event.altKey ? run(CommandIds.raiseJob) : (event.preventDefault(), go(shown[at - 1]));
      case 'Home':
        return go(shown[0]);
      case 'End':
        return go(shown[shown.length - 1]);
      case 'Enter':
        return run(CommandIds.openJob);
      case 'Delete':
        return run(CommandIds.cancelJob);
      case '?':
        return run(CommandIds.explainJob);
    }
  };

  return (
    <div
      ref={list}
      className="mgp-jobs"
      onKeyDown={onKeyDown}
      onMouseEnter={() => setInUse(true)}
      onMouseLeave={() => setInUse(list.current?.contains(document.activeElement) ?? false)}
      onFocus={(event) => {
        setInUse(true);
        const job = event.target.closest<HTMLElement>('[data-job]')?.dataset.job;
        if (job !== undefined) {
          setFocused(job);
        }
      }}
      onBlur={(event) =>
        !event.currentTarget.contains(event.relatedTarget as Element | null) && setInUse(event.currentTarget.matches(':hover'))
      }
    >
      {waiting > 0 && (
        <button type="button" className="mgp-link mgp-changes" onClick={() => setInUse(false)}>
          {trans._n('%1 change, show', '%1 changes, show', waiting)}
        </button>
      )}
      <Virtual
        items={shown}
        role="grid"
        label={label}
        height={height}
        identity={keyOf}
        render={(row) => (
          <JobLine
            row={row}
            width={width}
            tall={height(row) === TWO_LINES}
            users={users}
            current={row.job.id === current}
            actions={actions(row)}
          />
        )}
      />
    </div>
  );
}

/** The text of all columns at one place. */
function textOf(row: IJobRow, at: IColumn['at']): string {
  return COLUMNS.filter((column) => column.at === at)
    .map((column) => row.cells[column.name])
    .filter(Boolean)
    .join(' · ');
}

function keyOf(row: IJobRow): string {
  return row.job.id;
}

const DRAGGED = 'application/x-mgpu-job';

/** A waiting row can be dragged before or after another: that changes its priority. */
function useDrag(job: Job): React.HTMLAttributes<HTMLDivElement> {
  const { commands } = useMgpu();
  if (job.state !== 'queued') {
    return {};
  }
  const isBehind = (event: React.DragEvent): boolean => {
    const box = event.currentTarget.getBoundingClientRect();
    return isAfter(event.clientY, box.top, box.height);
  };
  const mark = (event: React.DragEvent<HTMLDivElement>, place: '' | 'before' | 'behind'): void => {
    event.currentTarget.dataset.drop = place;
  };
  return {
    draggable: true,
    onDragStart: (event) => {
      event.dataTransfer.setData(DRAGGED, job.id);
      event.dataTransfer.effectAllowed = 'move';
    },
    onDragOver: (event) => {
      if (event.dataTransfer.types.includes(DRAGGED)) {
        event.preventDefault();
        mark(event, isBehind(event) ? 'behind' : 'before');
      }
    },
    onDragLeave: (event) => mark(event, ''),
    onDrop: (event) => {
      event.preventDefault();
      mark(event, '');
      const id = event.dataTransfer.getData(DRAGGED);
      void commands.execute(CommandIds.moveJob, { id, target: job.id, after: isBehind(event) });
    },
  };
}

function JobLine({
  row,
  width,
  tall,
  users,
  current,
  actions,
}: {
  row: IJobRow;
  width: number;
  tall: boolean;
  users: boolean;
  current: boolean;
  actions: readonly IJobAction[];
}): JSX.Element {
  const { trans, commands } = useMgpu();
  const { job, mine, cells } = row;
  const shown = COLUMNS.filter((column) => users || !column.amongUsers);
  const [first, ...rest] = shown.map((column) => ({ ...column, text: cells[column.name] ?? '' }));
  const name = first?.text ?? '';
  const drag = useDrag(job);
  const room = Math.max(8, Math.floor((width - 130) / 7.2) - (users ? job.user.length + 1 : 0));
  return (
    <div
      role="row"
      className={`mgp-job${tall ? ' mgp-mod-tall' : ''}`}
      data-job={job.id}
      data-state={job.state}
      tabIndex={current ? 0 : -1}
      aria-label={[name, job.state, ...rest.map((cell) => cell.text)].filter(Boolean).join(', ')}
      onDoubleClick={() => void commands.execute(CommandIds.openJob, { id: job.id })}
      {...drag}
    >
      <span className="mgp-job-glyph" role="gridcell">
        <JobGlyph job={job} held={row.held} mine={mine} label={row.held ? trans.__('held') : trans.__(job.state)} />
      </span>
      <span className="mgp-job-head" role="gridcell">
        <button
          type="button"
          className="mgp-link mgp-name"
          tabIndex={-1}
          title={name}
          onClick={() => void commands.execute(CommandIds.openJob, { id: job.id })}
        >
          {middle(name, room)}
        </button>{' '}
        {rest
          .filter((cell) => cell.at === 'head')
          .map((cell) => (
            <span key={cell.name} className={cell.number ? 'mgp-second mgp-number' : 'mgp-second'}>
              {cell.text}{' '}
            </span>
          ))}
      </span>
      <span className="mgp-job-end" role="gridcell">
        <span className="mgp-second mgp-number mgp-job-time">{textOf(row, 'end')}</span>
        <span className="mgp-actions">
          {actions.map((action) => (
            <button
              key={action.command}
              type="button"
              className="mgp-icon-button"
              aria-label={`${action.label}: ${name}`}
              title={action.label}
              tabIndex={-1}
              onClick={() => void commands.execute(action.command, { id: job.id })}
            >
              <Glyph name={action.glyph} size={14} />
            </button>
          ))}
        </span>
      </span>
      <span className="mgp-job-line mgp-second" role="gridcell">
        {textOf(row, 'below')}
      </span>
    </div>
  );
}
