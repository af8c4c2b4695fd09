/** Puts the sidebar into the page. */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IStateDB } from '@jupyterlab/statedb';
import { MenuSvg } from '@jupyterlab/ui-components';
import { CommandIds } from '../commands';
import { MgpuPanel } from '../sidebar/panel';
import { IMgpu } from '../tokens';

const FOLDS = 'mgpu:folds';

export const panel: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:panel',
  description: 'The sidebar: every GPU, every job.',
  autoStart: true,
  requires: [IMgpu],
  optional: [ILayoutRestorer, ICommandPalette, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    mgpu: IMgpu,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    state: IStateDB | null,
  ) => {
    const { trans } = mgpu;
    const widget = new MgpuPanel(mgpu);
    app.shell.add(widget, 'left', { rank: 350 });
    restorer?.add(widget, widget.id);
    if (state !== null) {
      void Promise.all([app.restored, state.fetch(FOLDS)]).then(([, saved]) => {
        if (Array.isArray(saved)) {
          widget.folds = saved.map(Boolean);
        }
        widget.folded.connect(() => void state.save(FOLDS, widget.folds));
      });
    }
    app.commands.addCommand(CommandIds.showPanel, {
      label: trans.__('Show GPUs and Jobs'),
      execute: () => app.shell.activateById(widget.id),
    });
    app.commands.addCommand(CommandIds.filter, {
      label: trans.__('Filter GPUs and Jobs'),
      execute: () => {
        app.shell.activateById(widget.id);
        widget.openFilter();
      },
    });
    const menu = new MenuSvg({ commands: app.commands });
    for (const command of [CommandIds.newJob, CommandIds.openDashboard, CommandIds.addMachine, CommandIds.filter, CommandIds.refresh]) {
      menu.addItem({ command });
    }
    app.commands.addCommand('mgpu:open-menu', {
      label: trans.__('More about GPUs'),
      isVisible: () => false,
      execute: (args) => menu.open(Number(args.x ?? 0), Number(args.y ?? 0)),
    });
    for (const command of [CommandIds.showPanel, CommandIds.filter]) {
      palette?.addItem({ command, category: trans.__('GPUs') });
    }
  },
};
