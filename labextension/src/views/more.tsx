/** Fields of the form that few need: all flags of the table that are not shown before, and a line for other flags. */
import * as React from 'react';
import { FLAGS } from '../api/flags.gen';
import { useMgpu } from '../parts/hooks';
import { plain } from '../text/format';
import { Field, FlagField, type IFieldsProps } from './fields';

export function MoreFields({ form, set, envWrong }: IFieldsProps & { envWrong: string | undefined }): JSX.Element {
  const { trans } = useMgpu();
  const told = envWrong === undefined ? undefined : trans.__('“%1”: write NAME=value, one a line.', plain(envWrong));
  return (
    <details className="mgp-more mgp-rule">
      <summary>
        <b>{trans.__('More')}</b>{' '}
        <span className="mgp-second">{trans.__('placement, environment, variables, retries, dependencies, array')}</span>
      </summary>
      {FLAGS.filter((flag) => !flag.main).map((flag) => (
        <FlagField key={flag.dest} flag={flag} form={form} set={set} wrong={flag.control === 'pairs' ? told : undefined} />
      ))}
      <Field label={trans.__('More flags')}>
        <input
          type="text"
          className="mgp-wide mgp-code"
          aria-label={trans.__('More flags')}
          placeholder="--gpu-mem 20G --results out/*"
          spellCheck={false}
          value={form.flags}
          onChange={(event) => set({ flags: event.target.value })}
        />
      </Field>
    </details>
  );
}
