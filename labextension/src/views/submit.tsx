/** The form for a new job, with a live answer to "when would it start, and where?". */
import * as React from 'react';
import { FLAGS } from '../api/flags.gen';
import { RequestError } from '../api/request';
import { CommandIds } from '../commands';
import {
  bodyOf,
  EMPTY,
  filled,
  flagOf,
  flagsOf,
  hasVariables,
  type IForm,
  isAboutTime,
  lineOf,
  problemsOf,
  saidIn,
  shellLine,
} from '../model/request';
import { allRows } from '../model/select';
import { Chip, Switch } from '../parts/facts';
import { Glyph } from '../parts/glyphs';
import { useChanges, useMgpu } from '../parts/hooks';
import { freshKey } from '../plugins/tell';
import { grouped, plain } from '../text/format';
import { gpuKind } from '../text/words';
import { Answer, useDryRun } from './answer';
import { Field, FlagField, type IFieldsProps } from './fields';
import { MoreFields } from './more';

/** What the form reads from the notebook in front, and writes to it. */
export interface INotebook {
  /** The active cell; null when there is none. */
  cell(): { readonly label: string; readonly source: string } | null;
  insert(flags: string): void;
}

export function SubmitView({ given, notebook }: { given: Record<string, string>; notebook: INotebook | null }): JSX.Element {
  const { trans, client, live, commands } = useMgpu();
  useChanges((changes) => changes.nodes.size + changes.readings.size > 0);
  const [form, setForm] = React.useState<IForm>(() => formOf(given));
  const [problem, setProblem] = React.useState('');
  const [busy, setBusy] = React.useState(false);
  React.useEffect(() => {
    if (Object.keys(given).length) {
      setForm(formOf(given));
    }
  }, [given]);
  const unclear = problemsOf(form);
  const answer = useDryRun(form, Object.keys(unclear).length === 0);
  const wrong = { ...unclear, ...(isAboutTime(answer.error) ? { time: true as const } : {}) };
  const set = (more: Partial<IForm>): void => {
    setProblem('');
    setForm((before) => ({ ...before, ...more }));
  };
  const submit = (): void => {
    if (!form.text.trim()) {
      setProblem(trans.__('Say what to run.'));
      return;
    }
    if (hasVariables(form)) {
      setProblem(trans.__('Variables belong to a notebook: insert the line into a cell and run it there.'));
      return;
    }
    setBusy(true);
    const key = freshKey();
    const sent = client.parse(lineOf(form)).then((read) => client.submit(read.spec, key));
    sent.then(
      (made) => {
        setBusy(false);
        void commands.execute(CommandIds.openJob, { id: made.job_id });
      },
      (error: Error) => {
        setBusy(false);
        setProblem(error instanceof RequestError ? error.message : String(error));
      },
    );
  };
  const cell = notebook?.cell() ?? null;
  return (
    <div className="mgp-columns mgp-submit">
      <form
        aria-label={trans.__('New job')}
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && event.ctrlKey) {
            submit();
          }
        }}
      >
        <div className="mgp-view-title">
          <h1 className="mgp-title">{trans.__('New job')}</h1>
          <span className="mgp-space" />
          <LastJob form={form} set={set} />
        </div>
        <What form={form} set={set} cell={cell} />
        <Resources form={form} set={set} timeWrong={wrong.time === true} />
        <MoreFields form={form} set={set} envWrong={wrong.env} />
        {problem && (
          <p role="alert" className="mgp-problem">
            <Glyph name="bad" tone="bad" size={13} /> {plain(problem)}
          </p>
        )}
        <div className="mgp-buttons">
          <button type="submit" className="mgp-button mgp-mod-primary" disabled={busy}>
            {trans.__('Submit')}
          </button>
          {cell && notebook && (
            <button type="button" className="mgp-button" onClick={() => notebook.insert(flagsOf(form))}>
              {trans.__('Insert into notebook')}
            </button>
          )}
          <button type="button" className="mgp-button" onClick={() => void navigator.clipboard.writeText(shellLine(form))}>
            {trans.__('Copy as command')}
          </button>
          <span className="mgp-space" />
          <span className="mgp-second">
            {trans.__('Submit:')} <kbd>Ctrl</kbd> <kbd>Enter</kbd>
          </span>
        </div>
      </form>
      <Answer form={form} answer={answer} wrong={wrong} set={set} nodes={live.store.nodes.size} />
    </div>
  );
}

function formOf(given: Record<string, string>): IForm {
  const { script, command, name } = given;
  return {
    ...EMPTY,
    what: script === undefined ? 'command' : 'script',
    text: script ?? command ?? '',
    ...filled(EMPTY, 'name', name ?? ''),
  };
}

/** Start with the size, limit and name of the user's newest job. */
function LastJob({ form, set }: IFieldsProps): JSX.Element | null {
  const { trans, live } = useMgpu();
  const user = live.store.cluster?.user;
  const last = [...live.store.jobs.values()]
    .filter((job) => job.user === user && job.nodes_wanted > 0 && job.gpus % job.nodes_wanted === 0)
    .reduce<{ submitted_at: number; nodes_wanted: number; gpus: number; name: string; time_limit_s: number | null } | null>(
      (newest, job) => (newest === null || job.submitted_at > newest.submitted_at ? job : newest),
      null,
    );
  if (last === null) {
    return null;
  }
  const use = (): void =>
    set({
      nodes: last.nodes_wanted,
      gpus: last.gpus / last.nodes_wanted,
      values: { ...form.values, name: last.name, slurm_time: last.time_limit_s === null ? '' : limitText(last.time_limit_s) },
    });
  return (
    <button type="button" className="mgp-link" onClick={use}>
      {trans.__('Start from: last job')}
    </button>
  );
}

function limitText(seconds: number): string {
  const two = (value: number): string => String(Math.floor(value)).padStart(2, '0');
  return `${two(seconds / 3600)}:${two((seconds % 3600) / 60)}:${two(seconds % 60)}`;
}

function What({ form, set, cell }: IFieldsProps & { cell: ReturnType<INotebook['cell']> }): JSX.Element {
  const { trans } = useMgpu();
  const choices: [IForm['what'], string][] = [
    ...(cell ? ([['cell', cell.label]] as [IForm['what'], string][]) : []),
    ['script', trans.__('Python')],
    ['command', trans.__('Command')],
  ];
  return (
    <>
      <Field label={trans.__('What')}>
        <Switch
          label={trans.__('What')}
          choices={choices}
          value={form.what}
          set={(what) => set(what === 'cell' && cell ? { what, text: bodyOf(cell.source) } : { what })}
        />
        <textarea
          rows={form.what === 'command' ? 3 : 6}
          aria-label={trans.__('What to run')}
          spellCheck={false}
          value={form.text}
          onChange={(event) => set({ text: event.target.value })}
          placeholder={form.what === 'command' ? 'python train.py' : 'print("hello")'}
        />
      </Field>
      <FlagField flag={flagOf('name')} form={form} set={set} />
    </>
  );
}

/** Fields with a place or a drawing of their own. */
const OWN = new Set(['name', 'nodes', 'gpus_per_node', 'gpu_type']);

function Resources({ form, set, timeWrong }: IFieldsProps & { timeWrong: boolean }): JSX.Element {
  const { trans, live } = useMgpu();
  const rows = allRows(live.store);
  const free = new Map<string, { free: number; largest: number }>();
  for (const row of rows) {
    for (const kind of new Set(row.node.gpus.map((gpu) => gpuKind(gpu.name)))) {
      const here = row.tiles.filter((tile) => tile.state === 'free' && gpuKind(tile.gpu.name) === kind).length;
      const known = free.get(kind) ?? { free: 0, largest: 0 };
      free.set(kind, { free: known.free + here, largest: Math.max(known.largest, here) });
    }
  }
  const type = saidIn(form, 'gpu_type');
  const all = rows.reduce((sum, row) => sum + row.tiles.length, 0);
  const sum = rows.reduce((count, row) => count + row.free, 0);
  const blocks = [...free].map(([kind, told]) => (kind === 'sim' ? String(told.largest) : `${told.largest} × ${kind}`)).join(', ');
  return (
    <>
      <div className="mgp-caption mgp-rule">{trans.__('GPUs')}</div>
      <Field label={trans.__(flagOf('nodes').label)}>
        <input
          type="number"
          min={1}
          max={10000}
          aria-label={trans.__(flagOf('nodes').label)}
          value={form.nodes}
          onChange={(event) => set({ nodes: Math.max(1, Number(event.target.value) || 1) })}
        />{' '}
        ×{' '}
        <input
          type="number"
          min={0}
          max={1024}
          aria-label={trans.__(flagOf('gpus_per_node').label)}
          value={form.gpus}
          onChange={(event) => set({ gpus: Math.max(0, Number(event.target.value) || 0) })}
        />{' '}
        {trans.__(flagOf('gpus_per_node').label)}{' '}
        <span className="mgp-second">{trans.__('= %1 in total', grouped(form.nodes * form.gpus))}</span>
        <div className="mgp-second">{trans.__('Free now: %1 of %2. Largest free block on one node: %3.', sum, all, blocks || 0)}</div>
      </Field>
      <Field label={trans.__(flagOf('gpu_type').label)}>
        <Chip on={type === ''} set={() => set(filled(form, 'gpu_type', ''))}>
          {trans.__('any')}
        </Chip>{' '}
        {[...free].map(([kind, told]) => {
          const name = kind === 'sim' ? 'Simulated' : kind;
          return (
            <React.Fragment key={kind}>
              <Chip on={type === name} set={() => set(filled(form, 'gpu_type', name))}>
                {plain(name)} <span className="mgp-second">{trans.__('%1 free', told.free)}</span>
              </Chip>{' '}
            </React.Fragment>
          );
        })}
      </Field>
      {FLAGS.filter((flag) => flag.main && !OWN.has(flag.dest)).map((flag) => (
        <FlagField key={flag.dest} flag={flag} form={form} set={set} wrong={flag.dest === 'slurm_time' && timeWrong ? '' : undefined} />
      ))}
    </>
  );
}
