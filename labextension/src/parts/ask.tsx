/** A dialog with a sentence and a few fields. Knows no job and no node. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

export interface IField<K extends string> {
  readonly name: K;
  readonly label: string;
  readonly value: string;
  /** What is wrong with it. */
  readonly problem?: string;
}

interface IQuestion<K extends string> {
  readonly title: string;
  readonly sentence?: string;
  readonly fields: readonly IField<K>[];
  readonly accept: string;
  readonly refuse: string;
}

/** Return what was typed; null when the user cancelled. */
export async function ask<K extends string>(question: IQuestion<K>): Promise<Record<K, string> | null> {
  const answer = await showDialog({
    title: question.title,
    body: new Fields(question),
    buttons: [Dialog.cancelButton({ label: question.refuse }), Dialog.okButton({ label: question.accept })],
    focusNodeSelector: 'input',
  });
  return answer.button.accept ? answer.value : null;
}

class Fields<K extends string> extends ReactWidget implements Dialog.IBodyWidget<Record<K, string>> {
  private readonly _typed: Record<K, string>;

  constructor(private readonly _question: IQuestion<K>) {
    super();
    this._typed = Object.fromEntries(_question.fields.map((field) => [field.name, field.value])) as Record<K, string>;
    this.addClass('mgp-dialog');
    this.addClass('mgp-ask');
  }

  getValue(): Record<K, string> {
    return this._typed;
  }

  protected render(): JSX.Element {
    const { sentence, fields } = this._question;
    return (
      <>
        {sentence && <p className="mgp-second">{sentence}</p>}
        {fields.map(({ name, label, value, problem }) => (
          <label key={name}>
            <span>{label}</span>
            <input
              type="text"
              className="jp-mod-styled"
              defaultValue={value}
              aria-invalid={problem !== undefined}
              onChange={(event) => {
                this._typed[name] = event.target.value;
              }}
            />
            {problem && <span role="alert">{problem}</span>}
          </label>
        ))}
      </>
    );
  }
}
