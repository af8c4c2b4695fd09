/** Copies ids of jobs from the metadata of outputs into that of the notebook, so that it remembers them when outputs are cleared. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { Cell, CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';
import { jobOf, remember } from '../model/remembered';

export const memory: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:memory',
  description: 'A notebook remembers the jobs of its cells.',
  autoStart: true,
  optional: [INotebookTracker],
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker | null) => {
    tracker?.widgetAdded.connect((_sender, panel) => {
      void panel.context.ready.then(() => watch(panel));
    });
  },
};

function watch(panel: NotebookPanel): void {
  const seen = new WeakSet<Cell>();
  const look = (): void => {
    for (const cell of panel.content.widgets) {
      if (cell.model.type === 'code' && !seen.has(cell)) {
        seen.add(cell);
        watchCell(panel, cell as CodeCell);
      }
    }
  };
  panel.content.model?.cells.changed.connect(() => window.setTimeout(look, 0));
  look();
}

function watchCell(panel: NotebookPanel, cell: CodeCell): void {
  cell.model.outputs.changed.connect((outputs) => {
    const model = panel.content.model;
    for (let index = 0; model !== null && index < outputs.length; index += 1) {
      const job = jobOf(outputs.get(index).metadata.mgpu);
      if (job === null) {
        continue;
      }
      const after = remember(model.getMetadata('mgpu') as unknown, { ...job, cell_id: cell.model.id });
      if (after !== null) {
        model.setMetadata('mgpu', after as unknown as ReadonlyPartialJSONValue);
      }
    }
  });
}
