/** "Edit": another time limit or priority for a job that waits, another limit for one that runs. All else is an offer or a new job. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { Job, JobChange } from '../api/types.gen';
import { CommandIds } from '../commands';
import { changeOf, type ITyped } from '../model/edit';
import { isFinal } from '../model/store';
import { stopwatch } from '../text/format';
import { type ITrans, jobName } from '../text/words';
import { IMgpu } from '../tokens';
import { tell } from './tell';

export const editing: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:editing',
  description: 'Changes jobs that are not over.',
  autoStart: true,
  requires: [IMgpu],
  activate: (app: JupyterFrontEnd, mgpu: IMgpu) => {
    const { trans, live, client } = mgpu;
    app.commands.addCommand(CommandIds.editJob, {
      label: trans.__('Edit Job…'),
      execute: async (args) => {
        const job = live.store.jobs.get(String(args.id ?? ''));
        if (job === undefined || isFinal(job)) {
          return;
        }
        const change = await asked(job, trans);
        if (change !== null && Object.keys(change).length > 0) {
          await client.change(job.id, change).catch((error: Error) => tell(error.message));
        }
      },
    });
  },
};

/** Ask until it makes sense or the person gives up. */
async function asked(job: Job, trans: ITrans): Promise<JobChange | null> {
  const before: ITyped = { time: job.time_limit_s === null ? '' : stopwatch(job.time_limit_s), priority: String(job.priority) };
  let typed = before;
  let wrong: keyof ITyped | null = null;
  for (;;) {
    const answer: Dialog.IResult<ITyped> = await showDialog({
      title: trans.__('Edit %1', jobName(job)),
      body: new Fields(typed, wrong, job.state === 'queued', trans),
      buttons: [Dialog.cancelButton({ label: trans.__('Leave it') }), Dialog.okButton({ label: trans.__('Change') })],
      focusNodeSelector: 'input',
    });
    if (!answer.button.accept || answer.value === null) {
      return null;
    }
    const change = changeOf(before, answer.value);
    if (typeof change !== 'string') {
      return change;
    }
    typed = answer.value;
    wrong = change;
  }
}

class Fields extends ReactWidget implements Dialog.IBodyWidget<ITyped> {
  constructor(
    private _typed: ITyped,
    private readonly _wrong: keyof ITyped | null,
    private readonly _waits: boolean,
    private readonly _trans: ITrans,
  ) {
    super();
    this.addClass('mgp-dialog');
    this.addClass('mgp-edit');
  }

  getValue(): ITyped {
    return this._typed;
  }

  protected render(): JSX.Element {
    const trans = this._trans;
    const fields: [keyof ITyped, string, string][] = [
      ['time', trans.__('Time limit'), trans.__('Time limit is not a time. Write hours, minutes and seconds, like 02:00:00.')],
    ];
    if (this._waits) {
      fields.push(['priority', trans.__('Priority'), trans.__('Priority is not a whole number.')]);
    }
    return (
      <>
        {fields.map(([name, label, problem]) => (
          <label key={name}>
            <span>{label}</span>
            <input
              type="text"
              className="jp-mod-styled"
              defaultValue={this._typed[name]}
              aria-invalid={this._wrong === name}
              onChange={(event) => {
                this._typed = { ...this._typed, [name]: event.target.value };
              }}
            />
            {this._wrong === name && <span role="alert">{problem}</span>}
          </label>
        ))}
      </>
    );
  }
}
