/** Commands about jobs, for buttons, keys, menus and the palette. Each asks the server once and shows an error once. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, Dialog, ICommandPalette, InputDialog, showDialog } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Job } from '../api/types.gen';
import { CommandIds } from '../commands';
import { priorityFor, priorityOneStep, waiting } from '../model/priority';
import { plain } from '../text/format';
import { jobName } from '../text/words';
import { IMgpu } from '../tokens';
import { freshKey, tell } from './tell';

export const jobs: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:jobs',
  description: 'Commands about jobs and the cluster.',
  autoStart: true,
  requires: [IMgpu],
  optional: [ICommandPalette],
  activate: (app: JupyterFrontEnd, mgpu: IMgpu, palette: ICommandPalette | null) => {
    const { trans, client, live, views } = mgpu;
    const { commands } = app;
    const category = trans.__('GPUs');
    const jobOf = (args: ReadonlyPartialJSONObject): Job | undefined => live.store.jobs.get(String(args.id ?? ''));
    const order = (id: string, label: string, give: (job: string) => Promise<unknown>): void => {
      commands.addCommand(id, {
        label,
        execute: (args) => give(String(args.id ?? '')).catch((error: Error) => tell(error.message)),
      });
    };

    commands.addCommand(CommandIds.openJob, {
      label: trans.__('Open Job'),
      execute: (args) => views.open('job', String(args.id ?? ''), given(args)),
    });
    commands.addCommand(CommandIds.openNode, {
      label: trans.__('Open Node'),
      execute: (args) => views.open('node', String(args.id ?? '')),
    });
    commands.addCommand(CommandIds.explainJob, {
      label: trans.__('Why Does It Wait'),
      execute: (args) => views.open('job', String(args.id ?? ''), { tab: 'explain' }),
    });
    commands.addCommand(CommandIds.openDashboard, { label: trans.__('GPU Cluster Dashboard'), execute: () => views.open('cluster') });
    commands.addCommand(CommandIds.newJob, { label: trans.__('New GPU Job'), execute: (args) => views.open('submit', '', given(args)) });
    commands.addCommand(CommandIds.refresh, { label: trans.__('Connect to the GPU Cluster Again'), execute: () => live.tryNow() });

    order(CommandIds.cancelJob, trans.__('Cancel Job'), async (id) => {
      const job = live.store.jobs.get(id);
      if (job?.array_id && (await severalMeant(job))) {
        return client.cancel(job.array_id);
      }
      return client.cancel(id);
    });
    order(CommandIds.holdJob, trans.__('Hold Job'), (id) => client.change(id, { hold: true }));
    order(CommandIds.releaseJob, trans.__('Release Job'), (id) => client.change(id, { release: true }));
    order(CommandIds.requeueJob, trans.__('Requeue Job'), (id) => client.requeue(id));
    order(CommandIds.rerunJob, trans.__('Run Job Again'), (id) => client.rerun(id, freshKey()));
    const setPriority = (job: Job, priority: number): Promise<unknown> =>
      client.change(job.id, { priority }).catch((error: Error) => tell(error.message));
    for (const [id, label, up] of [
      [CommandIds.raiseJob, trans.__('Raise Priority'), true],
      [CommandIds.lowerJob, trans.__('Lower Priority'), false],
    ] as const) {
      commands.addCommand(id, {
        label,
        isEnabled: (args) => args.id === undefined || jobOf(args)?.state === 'queued',
        execute: (args) => {
          const job = jobOf(args);
          return job && setPriority(job, priorityOneStep(waiting(live.store), job, up));
        },
      });
    }
    commands.addCommand(CommandIds.moveJob, {
      label: trans.__('Move Job in the Queue'),
      execute: (args) => {
        const job = jobOf(args);
        const queue = waiting(live.store);
        const target = queue.findIndex((one) => one.id === args.target);
        const priority = job && target >= 0 ? priorityFor(queue, job.id, target + (args.after === true ? 1 : 0)) : null;
        return job && priority !== null ? setPriority(job, priority) : undefined;
      },
    });
    commands.addCommand(CommandIds.setPriority, {
      label: trans.__('Set Priority…'),
      execute: async (args) => {
        const job = jobOf(args);
        const answer = job && (await InputDialog.getNumber({ title: trans.__('Priority of %1', jobName(job)), value: job.priority }));
        return job && answer?.button.accept && answer.value !== null ? setPriority(job, Math.round(answer.value)) : undefined;
      },
    });
    commands.addCommand(CommandIds.copyJobId, {
      label: trans.__('Copy Job Id'),
      execute: (args) => Clipboard.copyToSystem(String(args.id ?? '')),
    });

    const severalMeant = async (job: Job): Promise<boolean> => {
      const answer = await showDialog({
        title: trans.__('Cancel %1', jobName(job)),
        body: trans.__('It is one of the array %1.', plain(job.array_id ?? '')),
        buttons: [
          Dialog.cancelButton({ label: trans.__('Cancel this job') }),
          Dialog.warnButton({ label: trans.__('Cancel the whole array') }),
        ],
      });
      return answer.button.accept;
    };

    app.contextMenu.addItem({ type: 'separator', selector: '.mgp-job', rank: 2 });
    for (const [rank, command] of [
      CommandIds.openJob,
      CommandIds.explainJob,
      CommandIds.holdJob,
      CommandIds.releaseJob,
      CommandIds.raiseJob,
      CommandIds.lowerJob,
      CommandIds.setPriority,
      CommandIds.editJob,
      CommandIds.requeueJob,
      CommandIds.cancelJob,
      CommandIds.rerunJob,
      CommandIds.copyJobId,
    ].entries()) {
      const id = `${command}-here`;
      const node = (): HTMLElement | undefined => app.contextMenuHitTest((one) => one.classList.contains('mgp-job'));
      const here = (): ReadonlyPartialJSONObject => ({ id: node()?.dataset.job ?? '' });
      commands.addCommand(id, {
        label: () => commands.label(command),
        isVisible: () => fits(command, live.store.jobs.get(String(here().id)), (job) => live.store.reason(job)[0] === 'held'),
        execute: () => commands.execute(command, here()),
      });
      app.contextMenu.addItem({ command: id, selector: '.mgp-job', rank: rank + 3 });
    }
    for (const command of [CommandIds.openDashboard, CommandIds.newJob, CommandIds.refresh]) {
      palette?.addItem({ command, category });
    }
  },
};

function given(args: ReadonlyPartialJSONObject): Record<string, string> {
  return Object.fromEntries(
    Object.entries(args).flatMap(([name, value]) => (name !== 'id' && typeof value === 'string' ? [[name, value]] : [])),
  );
}

/** Which commands are possible for a job in its state. */
export function fits(command: string, job: Job | undefined, held: (job: Job) => boolean): boolean {
  if (job === undefined) {
    return false;
  }
  const over = job.ended_at !== null;
  switch (command) {
    case CommandIds.explainJob:
    case CommandIds.raiseJob:
    case CommandIds.lowerJob:
    case CommandIds.setPriority:
      return job.state === 'queued';
    case CommandIds.holdJob:
      return job.state === 'queued' && !held(job);
    case CommandIds.releaseJob:
      return job.state === 'queued' && held(job);
    case CommandIds.requeueJob:
      return job.state === 'running' || job.state === 'starting';
    case CommandIds.cancelJob:
    case CommandIds.editJob:
      return !over;
    case CommandIds.rerunJob:
      return over;
    default:
      return true;
  }
}
