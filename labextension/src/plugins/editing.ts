/** "Edit": another time limit or priority for a waiting job, another limit for a running one. All else is an offer or a new job. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { Job, JobChange } from '../api/types.gen';
import { CommandIds } from '../commands';
import { changeOf, type ITyped } from '../model/edit';
import { isFinal } from '../model/store';
import { ask } from '../parts/ask';
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
        const id = String(args.id ?? '');
        try {
          const job = live.store.jobs.get(id) ?? (await client.job(id)); // the stream may be a moment behind
          const change = isFinal(job) ? null : await asked(job, trans);
          if (change !== null && Object.keys(change).length > 0) {
            await client.change(id, change);
          }
        } catch (error) {
          tell(error instanceof Error ? error.message : String(error));
        }
      },
    });
  },
};

/** Ask until the input is valid or the user cancels. */
async function asked(job: Job, trans: ITrans): Promise<JobChange | null> {
  const before: ITyped = { time: job.time_limit_s === null ? '' : stopwatch(job.time_limit_s), priority: String(job.priority) };
  let typed = before;
  let wrong = '';
  for (;;) {
    const time = {
      name: 'time' as const,
      label: trans.__('Time limit'),
      value: typed.time,
      problem: wrong === 'time' ? trans.__('Time limit is not a time. Write hours, minutes and seconds, like 02:00:00.') : undefined,
    };
    const priority = {
      name: 'priority' as const,
      label: trans.__('Priority'),
      value: typed.priority,
      problem: wrong === 'priority' ? trans.__('Priority is not a whole number.') : undefined,
    };
    const answer = await ask<keyof ITyped>({
      title: trans.__('Edit %1', jobName(job)),
      fields: job.state === 'queued' ? [time, priority] : [time],
      accept: trans.__('Change'),
      refuse: trans.__('Leave it'),
    });
    if (answer === null) {
      return null;
    }
    typed = { ...before, ...answer };
    const change = changeOf(before, typed);
    if (typeof change !== 'string') {
      return change;
    }
    wrong = change;
  }
}
