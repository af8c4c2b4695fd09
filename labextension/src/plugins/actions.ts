/** Actions in other places: on files, in notebooks, on nodes. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { PageConfig, PathExt } from '@jupyterlab/coreutils';
import { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { INotebookTracker } from '@jupyterlab/notebook';
import { CommandIds } from '../commands';
import { EMPTY, flagsOf, isNodeName, magicOf, quoted, withMagic } from '../model/request';
import { gpuIcon } from '../parts/glyphs';
import { IMgpu } from '../tokens';
import { tell } from './tell';

export const actions: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:actions',
  description: 'Run files, notebooks and cells on GPUs; a terminal on a node.',
  autoStart: true,
  requires: [IMgpu],
  optional: [ICommandPalette, IFileBrowserFactory, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    mgpu: IMgpu,
    palette: ICommandPalette | null,
    files: IFileBrowserFactory | null,
    notebooks: INotebookTracker | null,
  ) => {
    const { trans, live } = mgpu;
    const { commands } = app;
    const selected = (): string => files?.tracker.currentWidget?.selectedItems().next().value?.path ?? '';

    commands.addCommand(CommandIds.runFile, {
      label: trans.__('Run on GPUs…'),
      icon: gpuIcon,
      execute: () => {
        const path = selected();
        if (path) {
          mgpu.views.open('submit', '', { command: commandFor(path, PageConfig.getOption('serverRoot')), name: PathExt.basename(path) });
        }
      },
    });
    for (const selector of ['.jp-DirListing-item[data-file-type="python"]', '.jp-DirListing-item[data-file-type="notebook"]']) {
      app.contextMenu.addItem({ command: CommandIds.runFile, selector, rank: 3.5 });
    }
    commands.addCommand(CommandIds.runCell, {
      label: trans.__('Run This Cell on GPUs'),
      caption: trans.__('Put %%mgpu_srun on top of this cell, or edit it'),
      icon: gpuIcon,
      isEnabled: () => notebooks?.activeCell?.model.type === 'code',
      execute: () => {
        const cell = notebooks?.activeCell;
        if (!cell || cell.model.type !== 'code') {
          return;
        }
        const source = cell.model.sharedModel.getSource();
        if (magicOf(source) === null) {
          cell.model.sharedModel.setSource(withMagic(source, flagsOf(EMPTY)));
        }
        const line = cell.model.sharedModel.getSource().split('\n')[0] ?? '';
        cell.editor?.focus();
        cell.editor?.setCursorPosition({ line: 0, column: line.length });
      },
    });
    commands.addCommand(CommandIds.openTerminal, {
      label: trans.__('Open Terminal on Node'),
      execute: async (args) => {
        const id = String(args.id ?? '');
        if (!live.store.nodes.has(id)) {
          return;
        }
        if (!isNodeName(id)) {
          tell(trans.__('“%1” is not the name of a node: nothing is typed into a terminal.', id));
          return;
        }
        try {
          const session = await app.serviceManager.terminals.startNew();
          await commands.execute('terminal:create-new', { name: session.name });
          session.send({
            type: 'stdin',
            content: [`${quoted(PageConfig.getOption('mgpuSrun') || 'mgpu_srun')} --pty --gpus 0 --nodelist ${quoted(id)} bash -i\r`],
          });
        } catch (error) {
          tell(error instanceof Error ? error.message : String(error));
        }
      },
    });
    if (notebooks) {
      notebooks.activeCellChanged.connect(() => commands.notifyCommandChanged(CommandIds.runCell));
    }
    for (const command of [CommandIds.runCell]) {
      palette?.addItem({ command, category: trans.__('GPUs') });
    }
  },
};

/** The command that runs a file of the file browser; the server's root may begin with a tilde, which the shell must expand. */
export function commandFor(path: string, root: string): string {
  const folder = [root.replace(/\/$/, ''), PathExt.dirname(path)].filter(Boolean).join('/');
  const tilde = /^~[^/]*/.exec(folder)?.[0] ?? '';
  const place = tilde + (folder.slice(tilde.length) ? quoted(folder.slice(tilde.length)) : '');
  const name = quoted(PathExt.basename(path));
  const run = path.endsWith('.ipynb') ? `jupyter execute --inplace ${name}` : `python ${name}`;
  return `cd ${place || '.'} && ${run}`;
}
