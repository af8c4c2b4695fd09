/** The live answer of the dry run: when and where, its GPUs, the same with other sizes, the same in a cell. */
import * as React from 'react';
import type { Client } from '../api/client';
import type { Explanation, LineRequest } from '../api/types.gen';
import { ownOf } from '../model/plan';
import { filled, type IForm, lineOf, otherSizes, type problemsOf, saidIn, withoutVariables } from '../model/request';
import { nodeRow, TILE_STATES } from '../model/select';
import { Glyph, type GlyphName } from '../parts/glyphs';
import { useMgpu, useNow } from '../parts/hooks';
import { LegendTile, SIDEBAR, Tile } from '../parts/tile';
import { clock, duration, moment, plain } from '../text/format';
import { listed, reasonText, whereText } from '../text/reasons';
import { shortName, stateWord } from '../text/words';

const PAUSE_MS = 250;
const SIZES_MS = 700; // other sizes are tried when the user has stopped typing
const NODES = 8;

export interface IDryRun {
  readonly explanation: Explanation | null;
  readonly error: string;
  readonly checking: boolean;
  readonly at: number;
}

/** The request to try: without a command only the size counts. */
function trialOf(form: IForm): LineRequest {
  return lineOf(form.text.trim() ? form : { ...withoutVariables(form), what: 'command', text: 'true' });
}

async function tried(client: Client, form: IForm): Promise<Explanation> {
  return client.dryRun((await client.parse(trialOf(form))).spec);
}

/** Ask 250 ms after the last key; the old answer stays until the new one is here. */
export function useDryRun(form: IForm, ready: boolean): IDryRun {
  const { client, live } = useMgpu();
  const [answer, set] = React.useState<IDryRun>({ explanation: null, error: '', checking: false, at: 0 });
  const key = JSON.stringify(trialOf(form));
  React.useEffect(() => {
    if (!ready) {
      return;
    }
    let over = false;
    set((before) => ({ ...before, checking: true }));
    const timer = window.setTimeout(() => {
      tried(client, form).then(
        (explanation) => !over && set({ explanation, error: '', checking: false, at: live.now() }),
        (error: Error) => !over && set((before) => ({ ...before, error: error.message, checking: false, at: live.now() })),
      );
    }, PAUSE_MS);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [client, key, ready]);
  return answer;
}

interface IAnswerProps {
  readonly form: IForm;
  readonly answer: IDryRun;
  readonly wrong: ReturnType<typeof problemsOf>;
  readonly set: (more: Partial<IForm>) => void;
  readonly nodes: number;
}

export function Answer({ form, answer, wrong, set, nodes }: IAnswerProps): JSX.Element {
  const { trans } = useMgpu();
  const now = useNow(1);
  const { line } = lineOf(form);
  return (
    <aside className="mgp-answer">
      <div className="mgp-caption">
        {trans.__('If you submit now')}
        {answer.at > 0 && <span className="mgp-far mgp-number">{trans.__('checked %1 ago', duration(now - answer.at))}</span>}
      </div>
      <DryRun answer={answer} wrong={wrong} set={set} />
      {nodes > 0 && <Picks answer={answer.explanation} />}
      <OtherSizes form={form} answer={answer} set={set} ready={Object.keys(wrong).length === 0} />
      <h3>
        {trans.__('The same in a cell')}
        <button
          type="button"
          className="mgp-icon-button mgp-far"
          aria-label={trans.__('Copy the line')}
          onClick={() => void navigator.clipboard.writeText(line)}
        >
          <Glyph name="copy" size={14} />
        </button>
      </h3>
      <pre className="mgp-join-line">{line}</pre>
    </aside>
  );
}

interface ITold {
  readonly glyph: GlyphName;
  readonly title: string;
  readonly text: string;
}

/** The answer in its five forms. */
function told(answer: IDryRun, wrong: IAnswerProps['wrong'], now: number, trans: ReturnType<typeof useMgpu>['trans']): ITold {
  const { explanation } = answer;
  if (wrong.time) {
    return {
      glyph: 'warn',
      title: trans.__('Time limit is not a time'),
      text: trans.__('Write hours, minutes and seconds, like 02:00:00.'),
    };
  }
  if (wrong.env !== undefined) {
    return { glyph: 'warn', title: trans.__('Environment is not clear'), text: trans.__('Write NAME=value, one a line.') };
  }
  if (answer.error) {
    return { glyph: 'warn', title: trans.__('Not accepted'), text: answer.error };
  }
  if (explanation === null) {
    return { glyph: 'queued', title: trans.__('Checking…'), text: '' };
  }
  switch (explanation.verdict) {
    case 'now':
      return {
        glyph: 'running',
        title: trans.__('Starts now'),
        text: explanation.where.length ? trans.__('on %1.', whereText(explanation.where, trans)) : explanation.text,
      };
    case 'never':
      return { glyph: 'cancelled', title: trans.__('Can never start here'), text: reasonText(explanation) };
    default: {
      const { at } = explanation.expected;
      return {
        glyph: 'queued',
        title: at === null ? trans.__('Waits; the start is not known') : trans.__('Starts at about %1', moment(at, now)),
        text: reasonText(explanation),
      };
    }
  }
}

/** The box stays as it is while a new answer is fetched. */
function DryRun({ answer, wrong, set }: Pick<IAnswerProps, 'answer' | 'wrong' | 'set'>): JSX.Element {
  const { trans, live } = useMgpu();
  const { glyph, title, text } = told(answer, wrong, live.now(), trans);
  const isWrong = Object.keys(wrong).length > 0;
  const tone = glyph === 'running' ? 'mine' : glyph === 'warn' ? 'warn' : glyph === 'cancelled' ? 'bad' : undefined;
  const offers = isWrong || answer.error ? [] : (answer.explanation?.offers ?? []);
  const verdict = isWrong || answer.error ? 'error' : (answer.explanation?.verdict ?? '');
  return (
    <div className={`mgp-frame mgp-dry${answer.checking && !isWrong ? ' mgp-mod-old' : ''}`} role="status" data-verdict={verdict}>
      <Glyph name={glyph} tone={tone} />
      <div>
        <b className="mgp-big">{title}</b>
        <div>{plain(text)}</div>
        {offers.length > 0 && (
          <div className="mgp-buttons">
            {offers.slice(0, 3).map((offer) => {
              const size = sizeOf(offer.patch);
              return size === null ? (
                <span key={offer.text} className="mgp-second">
                  {plain(offer.text)}
                </span>
              ) : (
                <button key={offer.text} type="button" className="mgp-button" title={plain(offer.text)} onClick={() => set(size)}>
                  {trans.__('%1 × %2 now', size.nodes, size.gpus)}
                </button>
              );
            })}
          </div>
        )}
      </div>
    </div>
  );
}

/** The size of an offer, if the form can hold it. */
function sizeOf(patch: { readonly [name: string]: unknown }): Pick<IForm, 'nodes' | 'gpus'> | null {
  const nodes = typeof patch.nodes === 'number' ? patch.nodes : 1;
  const all = typeof patch.gpus === 'number' ? patch.gpus / nodes : null;
  const gpus = typeof patch.gpus_per_node === 'number' ? patch.gpus_per_node : all;
  return gpus !== null && Number.isInteger(gpus) && Object.keys(patch).every((name) => ['nodes', 'gpus', 'gpus_per_node'].includes(name))
    ? { nodes, gpus }
    : null;
}

/** The wall with the GPUs that it would take. */
function Picks({ answer }: { answer: Explanation | null }): JSX.Element {
  const { live, trans } = useMgpu();
  const { store } = live;
  const user = store.cluster?.user ?? '';
  const picked = new Map(answer?.verdict === 'now' ? answer.where.map((one) => [one.node, new Set(one.gpus)]) : []);
  const nodes = [...store.nodes.values()].sort((a, b) => Number(picked.has(b.id)) - Number(picked.has(a.id))).slice(0, NODES);
  const rows = nodes.map((node) => nodeRow(node, store.readings.get(node.id), user));
  const states = new Set(rows.flatMap((row) => row.tiles.map((tile) => tile.state)));
  return (
    <div className="mgp-frame mgp-picks">
      {rows.map((row) => {
        const own = picked.get(row.node.id);
        const left = own
          ? trans.__('%1 of %2 free', own.size, row.free)
          : row.node.state === 'online'
            ? row.free
              ? trans.__('%1 free', row.free)
              : trans.__('full')
            : row.node.state;
        return (
          <div className="mgp-pick" key={row.node.id}>
            <span className="mgp-name" title={`${plain(row.node.id)}, ${shortName(row.node)}`}>
              {plain(row.node.id)}
            </span>
            <div className="mgp-tiles" style={{ gap: 3, width: 189 }}>
              {row.tiles.slice(0, 16).map((tile) => (
                <Tile
                  key={tile.index}
                  size={SIDEBAR}
                  state={tile.state}
                  busy={tile.busy}
                  memory={tile.memory}
                  simulated={tile.simulated}
                  pick={own?.has(tile.index) ?? false}
                />
              ))}
            </div>
            <span className="mgp-second">{left}</span>
          </div>
        );
      })}
      <div className="mgp-legend">
        {picked.size > 0 && (
          <span className="mgp-legend-entry">
            <Tile size={{ width: 15, height: 14, strip: 0 }} state="free" busy={0} memory={0} simulated={false} pick />{' '}
            {trans.__('this job')}
          </span>
        )}
        {TILE_STATES.filter((state) => states.has(state)).map((state) => (
          <span key={state} className="mgp-legend-entry">
            <LegendTile state={state} /> {stateWord(state, trans)}
          </span>
        ))}
      </div>
    </div>
  );
}

interface ISize {
  readonly nodes: number;
  readonly gpus: number;
  readonly answer: Explanation | null;
}

/** A few sizes near the requested one, and when each would start. */
function OtherSizes({ form, answer, set, ready }: Pick<IAnswerProps, 'form' | 'answer' | 'set'> & { ready: boolean }): JSX.Element | null {
  const { trans, client, live } = useMgpu();
  const [sizes, setSizes] = React.useState<readonly ISize[]>([]);
  const widest = Math.max(0, ...[...live.store.nodes.values()].map((node) => node.gpus.length));
  const key = JSON.stringify([trialOf({ ...form, ...filled(form, 'name', ''), text: '' }), widest]);
  React.useEffect(() => {
    if (!ready || form.gpus === 0) {
      setSizes([]);
      return;
    }
    let over = false;
    const timer = window.setTimeout(async () => {
      const out: ISize[] = [];
      for (const size of otherSizes(form, widest)) {
        const explanation = await tried(client, { ...form, ...size }).catch(() => null);
        if (over) {
          return;
        }
        out.push({ ...size, answer: explanation });
      }
      setSizes(out);
    }, SIZES_MS);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [client, key, ready]);
  if (sizes.length === 0 || answer.explanation === null) {
    return null;
  }
  const type = saidIn(form, 'gpu_type');
  const kind = type ? ` ${plain(type)}` : '';
  const row = (size: Pick<ISize, 'nodes' | 'gpus'>, told: Explanation | null, chosen: boolean): JSX.Element => (
    <tr key={`${size.nodes} ${size.gpus}`} className={chosen ? 'mgp-mod-chosen' : ''}>
      <td className="mgp-number">{`${size.nodes} × ${size.gpus}${kind}`}</td>
      <td className="mgp-number">{startText(told, live.now(), trans)}</td>
      <td className="mgp-right">
        {chosen ? (
          <span className="mgp-second">{trans.__('chosen')}</span>
        ) : (
          <button type="button" className="mgp-link" onClick={() => set(size)}>
            {trans.__('Use')}
          </button>
        )}
      </td>
    </tr>
  );
  return (
    <>
      <h3>{trans.__('With other sizes')}</h3>
      <table className="mgp-table mgp-sizes">
        <thead>
          <tr>
            <th>{trans.__('Size')}</th>
            <th>{trans.__('Starts')}</th>
            <th />
          </tr>
        </thead>
        <tbody>
          {row(form, answer.explanation, true)}
          {sizes.filter((one) => one.nodes !== form.nodes || one.gpus !== form.gpus).map((one) => row(one, one.answer, false))}
        </tbody>
      </table>
    </>
  );
}

/** `now, gpu-05` or `14:52, gpu-03`. */
function startText(told: Explanation | null, now: number, trans: ReturnType<typeof useMgpu>['trans']): string {
  if (told === null) {
    return '–';
  }
  if (told.verdict === 'never') {
    return trans.__('never');
  }
  const nodes = told.verdict === 'now' ? told.where.map((one) => one.node) : (ownOf(told)?.nodes ?? []);
  const on = nodes.length ? `, ${listed(nodes.slice(0, 2).map(plain), trans)}${nodes.length > 2 ? ` + ${nodes.length - 2}` : ''}` : '';
  const at = told.expected.at;
  const when = told.verdict === 'now' ? trans.__('now') : at === null ? trans.__('not known') : clock(Math.max(at, now));
  return `${when}${on}`;
}
