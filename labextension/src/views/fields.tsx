/** One field of the form for one flag, from the table of flags: its control, label, hint and note. */
import * as React from 'react';
import type { IFlag } from '../api/flags.gen';
import { filled, type IForm, ON, saidIn } from '../model/request';
import { Glyph } from '../parts/glyphs';
import { useMgpu } from '../parts/hooks';
import { plain } from '../text/format';

export interface IFieldsProps {
  readonly form: IForm;
  readonly set: (more: Partial<IForm>) => void;
}

interface IFlagProps extends IFieldsProps {
  readonly flag: IFlag;
  /** What is wrong with it, where the form itself can tell; empty when the answer beside the form says it. */
  readonly wrong?: string | undefined;
}

export function Field({ label, children }: { label: string; children: React.ReactNode }): JSX.Element {
  return (
    <div className="mgp-field">
      <span className="mgp-field-label">{label}</span>
      <div>{children}</div>
    </div>
  );
}

export function FlagField(props: IFlagProps): JSX.Element {
  const { flag, wrong } = props;
  const { trans } = useMgpu();
  return (
    <Field label={trans.__(flag.label)}>
      <Control {...props} /> {flag.note && <span className="mgp-second">{trans.__(flag.note)}</span>}
      {wrong && (
        <div className="mgp-second">
          <Glyph name="warn" tone="warn" size={12} /> {wrong}
        </div>
      )}
    </Field>
  );
}

function Control({ flag, form, set, wrong }: IFlagProps): JSX.Element {
  const { trans } = useMgpu();
  const value = saidIn(form, flag.dest);
  const put = (text: string): void => set(filled(form, flag.dest, text));
  const shared = { 'aria-label': trans.__(flag.label), title: trans.__(flag.help), spellCheck: false, placeholder: trans.__(flag.hint) };
  switch (flag.control) {
    case 'choice':
      return flag.dest === 'policy' ? <Policies flag={flag} value={value} put={put} /> : <Choices flag={flag} value={value} put={put} />;
    case 'switches':
      return (
        <>
          {flag.choices.map(([one, words]) => (
            <label key={one} className="mgp-radio">
              <input type="radio" name={`mgpu-${flag.dest}`} checked={value === one} onChange={() => put(one)} /> {trans.__(words)}
            </label>
          ))}
        </>
      );
    case 'switch':
      return (
        <input
          type="checkbox"
          aria-label={trans.__(flag.label)}
          title={trans.__(flag.help)}
          checked={value === ON}
          onChange={(event) => put(event.target.checked ? ON : '')}
        />
      );
    case 'nodes':
      return <Nodes flag={flag} value={value} put={put} />;
    case 'pairs':
      return (
        <textarea {...shared} rows={2} aria-invalid={wrong !== undefined} value={value} onChange={(event) => put(event.target.value)} />
      );
    default:
      return (
        <input
          {...shared}
          type="text"
          className={flag.main ? '' : 'mgp-wide mgp-code'}
          aria-invalid={wrong !== undefined}
          maxLength={flag.dest === 'name' ? 200 : undefined}
          value={value}
          onChange={(event) => put(event.target.value)}
        />
      );
  }
}

interface IOneProps {
  readonly flag: IFlag;
  readonly value: string;
  readonly put: (text: string) => void;
}

function Choices({ flag, value, put }: IOneProps): JSX.Element {
  const { trans } = useMgpu();
  return (
    <select aria-label={trans.__(flag.label)} title={trans.__(flag.help)} value={value} onChange={(event) => put(event.target.value)}>
      {flag.choices.map(([one, words]) => (
        <option key={one} value={one}>
          {trans.__(words)}
        </option>
      ))}
    </select>
  );
}

/** The strategies of this cluster, including its own. */
function Policies({ flag, value, put }: IOneProps): JSX.Element {
  const { trans, live } = useMgpu();
  const { cluster } = live.store;
  const words = new Map(flag.choices);
  const named = (name: string): string => (words.has(name) ? trans.__(words.get(name) ?? '') : plain(name));
  const choices = [
    ['', trans.__('%1 (%2)', named(''), named(cluster?.strategy ?? ''))] as const,
    ...(cluster?.strategies ?? []).map((name) => [name, named(name)] as const),
  ];
  return <Choices flag={{ ...flag, choices }} value={value} put={put} />;
}

/** Nodes in a row, each with a chip that removes it. */
function Nodes({ flag, value, put }: IOneProps): JSX.Element {
  const { trans, live } = useMgpu();
  const chosen = value.split(',').filter(Boolean);
  const left = [...live.store.nodes.keys()].filter((node) => !chosen.includes(node)).sort();
  return (
    <>
      {chosen.map((node) => (
        <button
          key={node}
          type="button"
          className="mgp-chip"
          aria-label={trans.__('Allow %1 again', plain(node))}
          onClick={() => put(chosen.filter((one) => one !== node).join(','))}
        >
          {plain(node)} <Glyph name="close" size={10} />
        </button>
      ))}{' '}
      <select
        aria-label={trans.__(flag.label)}
        value=""
        onChange={(event) => event.target.value && put([...chosen, event.target.value].join(','))}
      >
        <option value="">{trans.__('add a node')}</option>
        {left.map((node) => (
          <option key={node} value={node}>
            {plain(node)}
          </option>
        ))}
      </select>
    </>
  );
}
