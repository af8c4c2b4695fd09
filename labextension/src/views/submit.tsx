/** The form for a new job, with a live answer to when and where it would start. */
import * as React from 'react';
import { RequestError } from '../api/request';
import type { Explanation } from '../api/types.gen';
import { CommandIds } from '../commands';
import { EMPTY, flagsOf, type IForm, quoted, seconds, specOf } from '../model/request';
import { allRows, nodeRow } from '../model/select';
import { Glyph, type GlyphName } from '../parts/glyphs';
import { useChanges, useMgpu } from '../parts/hooks';
import { SIDEBAR, Tile } from '../parts/tile';
import { freshKey } from '../plugins/tell';
import { moment, plain } from '../text/format';
import { gpuKind, nodeNote } from '../text/words';
import { whereText } from './explain';

const PAUSE_MS = 250;

interface IAnswer {
  readonly explanation: Explanation | null;
  readonly error: string;
  readonly checking: boolean;
}

/** Ask 250 ms after the last key; the old answer stays until the new one is here. */
function useDryRun(form: IForm, ready: boolean): IAnswer {
  const { client } = useMgpu();
  const [answer, set] = React.useState<IAnswer>({ explanation: null, error: '', checking: false });
  const key = JSON.stringify(form);
  React.useEffect(() => {
    if (!ready) {
      return;
    }
    let over = false;
    set((before) => ({ ...before, checking: true }));
    const timer = window.setTimeout(() => {
      const spec = specOf(form.text.trim() ? form : { ...form, what: 'command', text: 'true' });
      client.dryRun(spec).then(
        (explanation) => !over && set({ explanation, error: '', checking: false }),
        (error: Error) => !over && set((before) => ({ ...before, error: error.message, checking: false })),
      );
    }, PAUSE_MS);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [client, key, ready]);
  return answer;
}

export function SubmitView({ given, insert }: { given: Record<string, string>; insert: ((flags: string) => void) | null }): JSX.Element {
  const mgpu = useMgpu();
  const { trans, client, live, commands } = mgpu;
  useChanges((changes) => changes.nodes.size + changes.readings.size > 0);
  const [form, setForm] = React.useState<IForm>(() => formOf(given));
  const [problem, setProblem] = React.useState('');
  const [busy, setBusy] = React.useState(false);
  React.useEffect(() => {
    if (Object.keys(given).length) {
      setForm(formOf(given));
    }
  }, [given]);
  const timeWrong = form.time.trim() !== '' && seconds(form.time) === null;
  const answer = useDryRun(form, !timeWrong);
  const rows = allRows(live.store);
  const free = rows.reduce((sum, row) => sum + row.free, 0);
  const all = rows.reduce((sum, row) => sum + row.tiles.length, 0);
  const kinds = [...new Set(rows.flatMap((row) => row.node.gpus.map((gpu) => gpuKind(gpu.name))))];
  const set = (more: Partial<IForm>): void => {
    setProblem('');
    setForm((before) => ({ ...before, ...more }));
  };
  const submit = (): void => {
    if (!form.text.trim()) {
      setProblem(trans.__('Say what to run.'));
      return;
    }
    setBusy(true);
    client.submit(specOf(form), freshKey()).then(
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
        <h1 className="mgp-title">{trans.__('New job')}</h1>
        <Field label={trans.__('What')}>
          <div className="mgp-switch" role="radiogroup" aria-label={trans.__('What')}>
            <button type="button" role="radio" aria-checked={form.what === 'command'} onClick={() => set({ what: 'command' })}>
              {trans.__('Command')}
            </button>
            <button type="button" role="radio" aria-checked={form.what === 'script'} onClick={() => set({ what: 'script' })}>
              {trans.__('Python')}
            </button>
          </div>
          <textarea
            rows={form.what === 'script' ? 6 : 3}
            aria-label={trans.__('What to run')}
            spellCheck={false}
            value={form.text}
            onChange={(event) => set({ text: event.target.value })}
            placeholder={form.what === 'script' ? 'print("hello")' : 'python train.py'}
          />
        </Field>
        <Field label={trans.__('Name')}>
          <input
            type="text"
            aria-label={trans.__('Name')}
            value={form.name}
            maxLength={200}
            onChange={(event) => set({ name: event.target.value })}
          />
        </Field>
        <Field label={trans.__('Nodes')}>
          <input
            type="number"
            min={1}
            max={10000}
            aria-label={trans.__('Nodes')}
            value={form.nodes}
            onChange={(event) => set({ nodes: Math.max(1, Number(event.target.value) || 1) })}
          />{' '}
          ×{' '}
          <input
            type="number"
            min={0}
            max={1024}
            aria-label={trans.__('GPUs on each')}
            value={form.gpus}
            onChange={(event) => set({ gpus: Math.max(0, Number(event.target.value) || 0) })}
          />{' '}
          {trans.__('GPUs on each')} <span className="mgp-second">{trans.__('= %1 in total', form.nodes * form.gpus)}</span>
          <div className="mgp-second">
            {trans.__('Free now: %1 of %2. Largest free block on one node: %3.', free, all, Math.max(0, ...rows.map((row) => row.free)))}
          </div>
        </Field>
        <Field label={trans.__('Type')}>
          {['', ...kinds].map((kind) => (
            <button
              key={kind}
              type="button"
              className="mgp-chip"
              aria-pressed={form.gpuType === (kind === 'sim' ? 'Simulated' : kind)}
              onClick={() => set({ gpuType: kind })}
            >
              {kind === '' ? trans.__('any') : kind}
            </button>
          ))}
        </Field>
        <Field label={trans.__('Time limit')}>
          <input
            type="text"
            aria-label={trans.__('Time limit')}
            aria-invalid={timeWrong}
            value={form.time}
            placeholder="02:00:00"
            onChange={(event) => set({ time: event.target.value })}
          />{' '}
          <span className="mgp-second">{trans.__('hh:mm:ss. Shorter jobs often start sooner.')}</span>
        </Field>
        <Field label={trans.__('Wiring')}>
          <label>
            <input type="checkbox" checked={form.distributed} onChange={(event) => set({ distributed: event.target.checked })} />{' '}
            {trans.__('PyTorch, one process per GPU')}
          </label>
        </Field>
        {problem && (
          <p role="alert" className="mgp-problem">
            <Glyph name="bad" tone="bad" size={13} /> {plain(problem)}
          </p>
        )}
        <div className="mgp-buttons">
          <button type="submit" className="mgp-button mgp-mod-primary" disabled={busy}>
            {trans.__('Submit')}
          </button>
          {insert && (
            <button type="button" className="mgp-button" onClick={() => insert(flagsOf(form))}>
              {trans.__('Insert into notebook')}
            </button>
          )}
          <button
            type="button"
            className="mgp-button"
            onClick={() => void navigator.clipboard.writeText(`mgpu_srun ${flagsOf(form)} -- bash -c ${quoted(form.text)}`)}
          >
            {trans.__('Copy as command')}
          </button>
        </div>
      </form>
      <aside>
        <div className="mgp-caption">{trans.__('If you submit now')}</div>
        <DryRun answer={answer} timeWrong={timeWrong} />
        <Picks answer={answer.explanation} />
        <h3>{trans.__('The same in a cell')}</h3>
        <pre className="mgp-join-line">{`%%mgpu_srun ${flagsOf(form)}`}</pre>
      </aside>
    </div>
  );
}

function formOf(given: Record<string, string>): IForm {
  const { script, command, name } = given;
  return { ...EMPTY, what: script === undefined ? 'command' : 'script', text: script ?? command ?? '', name: name ?? '' };
}

function Field({ label, children }: { label: string; children: React.ReactNode }): JSX.Element {
  return (
    <div className="mgp-field">
      <span className="mgp-field-label">{label}</span>
      <div>{children}</div>
    </div>
  );
}

/** The answer in its five forms; the box stays as it is while a new one is looked for. */
function DryRun({ answer, timeWrong }: { answer: IAnswer; timeWrong: boolean }): JSX.Element {
  const { trans, live } = useMgpu();
  const told = answer.explanation;
  let glyph: GlyphName = 'queued';
  let title = trans.__('Checking…');
  let text = '';
  if (timeWrong) {
    glyph = 'warn';
    title = trans.__('Time limit is not a time');
    text = trans.__('Write hours, minutes and seconds, like 02:00:00.');
  } else if (answer.error) {
    glyph = 'warn';
    title = trans.__('Not accepted');
    text = answer.error;
  } else if (told !== null) {
    if (told.verdict === 'now') {
      glyph = 'running';
      title = trans.__('Starts now');
      text = told.where.length ? trans.__('on %1.', whereText(told.where)) : told.text;
    } else if (told.verdict === 'never') {
      glyph = 'cancelled';
      title = trans.__('Can never start here');
      text = told.text;
    } else {
      title =
        told.expected.at === null
          ? trans.__('Waits; the start is not known')
          : trans.__('Starts at about %1', moment(told.expected.at, live.now()));
      text = told.text;
    }
  }
  const tone = glyph === 'running' ? 'mine' : glyph === 'warn' ? 'warn' : glyph === 'cancelled' ? 'bad' : undefined;
  return (
    <div
      className={`mgp-frame mgp-dry${answer.checking && !timeWrong ? ' mgp-mod-old' : ''}`}
      role="status"
      data-verdict={timeWrong ? 'error' : (told?.verdict ?? '')}
    >
      <Glyph name={glyph} tone={tone} />
      <div>
        <b>{title}</b>
        <div>{plain(text)}</div>
        {told && told.offers.length > 0 && (
          <div className="mgp-second">{trans.__('Would start now: %1', told.offers.map((offer) => plain(offer.text)).join('; '))}</div>
        )}
      </div>
    </div>
  );
}

/** The wall with the GPUs that it would take. */
function Picks({ answer }: { answer: Explanation | null }): JSX.Element {
  const { live, trans } = useMgpu();
  const { store } = live;
  const user = store.cluster?.user ?? '';
  const picked = new Map(answer?.verdict === 'now' ? answer.where.map((one) => [one.node, new Set(one.gpus)]) : []);
  const nodes = [...store.nodes.values()].sort((a, b) => Number(picked.has(b.id)) - Number(picked.has(a.id))).slice(0, 8);
  return (
    <div className="mgp-frame">
      {nodes.map((node) => {
        const row = nodeRow(node, store.readings.get(node.id), user);
        return (
          <div className="mgp-node" key={node.id}>
            <div className="mgp-node-text mgp-name">{plain(node.id)}</div>
            <div className="mgp-tiles" style={{ gap: 3, width: 189 }}>
              {row.tiles.slice(0, 16).map((tile) => (
                <Tile
                  key={tile.index}
                  size={SIDEBAR}
                  state={tile.state}
                  busy={tile.busy}
                  memory={tile.memory}
                  simulated={tile.simulated}
                  pick={picked.get(node.id)?.has(tile.index) ?? false}
                />
              ))}
            </div>
            <div className="mgp-second">{nodeNote(row, live.now(), trans).text}</div>
          </div>
        );
      })}
    </div>
  );
}
