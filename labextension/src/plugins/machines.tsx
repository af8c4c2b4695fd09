/** "Add a machine": makes the join line, for administrators. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';
import { CommandIds } from '../commands';
import { MgpuContext } from '../parts/hooks';
import { JoinLine } from '../sidebar/states';
import { IMgpu } from '../tokens';

export const machines: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:machines',
  description: 'Adds machines to the cluster.',
  autoStart: true,
  requires: [IMgpu],
  optional: [ICommandPalette],
  activate: (app: JupyterFrontEnd, mgpu: IMgpu, palette: ICommandPalette | null) => {
    const { trans, live } = mgpu;
    app.commands.addCommand(CommandIds.addMachine, {
      label: trans.__('Add a Machine…'),
      isEnabled: () => live.store.cluster?.admin ?? false,
      execute: async () => {
        const body = ReactWidget.create(
          <MgpuContext.Provider value={mgpu}>
            <JoinLine />
          </MgpuContext.Provider>,
        );
        body.addClass('mgp-dialog');
        await showDialog({ title: trans.__('Add a machine'), body, buttons: [Dialog.okButton({ label: trans.__('Close') })] });
      },
    });
    palette?.addItem({ command: CommandIds.addMachine, category: trans.__('GPUs') });
    live.changed.connect((_, changes) => {
      if (changes.cluster) {
        app.commands.notifyCommandChanged(CommandIds.addMachine);
      }
    });
  },
};
