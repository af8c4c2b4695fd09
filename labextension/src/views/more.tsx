/** Fields of the form that few need: placement, environment, variables, retries, dependencies, arrays. */
import * as React from 'react';
import { Glyph } from '../parts/glyphs';
import { useMgpu } from '../parts/hooks';
import { plain } from '../text/format';
import { Field, type IFieldsProps } from './submit';

const RETRIES = [0, 1, 2, 3, 5, 10];

export function MoreFields({ form, set, envWrong }: IFieldsProps & { envWrong: string | undefined }): JSX.Element {
  const { trans, live } = useMgpu();
  const { cluster, nodes } = live.store;
  const text = (field: 'setup' | 'inputs' | 'outputs' | 'dependency' | 'array', label: string, hint: string, wide = false): JSX.Element => (
    <input
      type="text"
      className={wide ? 'mgp-wide mgp-code' : 'mgp-code'}
      aria-label={label}
      placeholder={hint}
      spellCheck={false}
      value={form[field]}
      onChange={(event) => set({ [field]: event.target.value })}
    />
  );
  const left = [...nodes.keys()].filter((node) => !form.exclude.includes(node)).sort();
  return (
    <details className="mgp-more mgp-rule">
      <summary>
        <b>{trans.__('More')}</b>{' '}
        <span className="mgp-second">{trans.__('placement, environment, variables, retries, dependencies, array')}</span>
      </summary>
      <Field label={trans.__('Placement')}>
        <select aria-label={trans.__('Placement')} value={form.policy} onChange={(event) => set({ policy: event.target.value })}>
          <option value="">{trans.__('as the cluster says (%1)', policyName(cluster?.strategy ?? '', trans))}</option>
          {(cluster?.strategies ?? []).map((name) => (
            <option key={name} value={name}>
              {policyName(name, trans)}
            </option>
          ))}
        </select>{' '}
        <span className="mgp-second">{trans.__('never on')}</span>{' '}
        {form.exclude.map((node) => (
          <button
            key={node}
            type="button"
            className="mgp-chip"
            aria-label={trans.__('Allow %1 again', plain(node))}
            onClick={() => set({ exclude: form.exclude.filter((one) => one !== node) })}
          >
            {plain(node)} <Glyph name="close" size={10} />
          </button>
        ))}{' '}
        <select
          aria-label={trans.__('Never on')}
          value=""
          onChange={(event) => event.target.value && set({ exclude: [...form.exclude, event.target.value] })}
        >
          <option value="">{trans.__('add a node')}</option>
          {left.map((node) => (
            <option key={node} value={node}>
              {plain(node)}
            </option>
          ))}
        </select>
      </Field>
      <Field label={trans.__('Set up')}>{text('setup', trans.__('Set up'), 'source ~/venv/bin/activate', true)}</Field>
      <Field label={trans.__('Environment')}>
        <textarea
          rows={2}
          aria-label={trans.__('Environment')}
          aria-invalid={envWrong !== undefined}
          placeholder="WANDB_MODE=offline"
          spellCheck={false}
          value={form.env}
          onChange={(event) => set({ env: event.target.value })}
        />
        {envWrong !== undefined && (
          <div className="mgp-second">
            <Glyph name="warn" tone="warn" size={12} /> {trans.__('“%1”: write NAME=value, one a line.', plain(envWrong))}
          </div>
        )}
      </Field>
      <Field label={trans.__('Variables')}>
        <span className="mgp-second">{trans.__('in')}</span> {text('inputs', trans.__('Variables in'), 'cfg, tokens')}{' '}
        <span className="mgp-second">{trans.__('out')}</span> {text('outputs', trans.__('Variables out'), 'scores')}{' '}
        <span className="mgp-second">{trans.__('of the notebook; only in a cell')}</span>
      </Field>
      <Field label={trans.__('If it fails')}>
        <select
          aria-label={trans.__('If it fails')}
          value={form.retries}
          onChange={(event) => set({ retries: Number(event.target.value) })}
        >
          {RETRIES.map((count) => (
            <option key={count} value={count}>
              {count === 0 ? trans.__('do not retry') : trans._n('retry once', 'retry %1 times', count)}
            </option>
          ))}
        </select>{' '}
        <span className="mgp-second">{trans.__('Waiting never uses up a retry.')}</span>
      </Field>
      <Field label={trans.__('After')}>{text('dependency', trans.__('After'), 'afterok:K7P2M9QX')}</Field>
      <Field label={trans.__('Array')}>
        {text('array', trans.__('Array'), '1-100%8')} <span className="mgp-second">{trans.__('many jobs, 8 at once')}</span>
      </Field>
    </details>
  );
}

function policyName(name: string, trans: ReturnType<typeof useMgpu>['trans']): string {
  switch (name) {
    case 'fill_first':
      return trans.__('fullest nodes first');
    case 'spread':
      return trans.__('emptiest nodes first');
    case 'topology':
      return trans.__('same switch first');
    case 'round_robin':
      return trans.__('one node after the other');
    default:
      return plain(name);
  }
}
