/** Registers the main-area views. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import * as React from 'react';
import { withMagic } from '../model/request';
import { plain } from '../text/format';
import { jobName } from '../text/words';
import { IMgpu } from '../tokens';
import { DashboardView } from '../views/dashboard';
import { JobView } from '../views/job';
import { NodeView } from '../views/node';
import { type INotebook, SubmitView } from '../views/submit';

export const views: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:views',
  description: 'Views of a job, a node and the cluster, and the form for a new job.',
  autoStart: true,
  requires: [IMgpu],
  optional: [INotebookTracker],
  activate: (app: JupyterFrontEnd, mgpu: IMgpu, tracker: INotebookTracker | null) => {
    const { trans, live } = mgpu;
    mgpu.views.register({
      kind: 'job',
      title: (id) => {
        const job = live.store.jobs.get(id);
        return job === undefined ? id : jobName(job);
      },
      render: (id, given) => <JobView key={id} id={id} tab={given.tab ?? ''} />,
    });
    mgpu.views.register({ kind: 'node', title: (id) => plain(id), render: (id) => <NodeView key={id} id={id} /> });
    mgpu.views.register({ kind: 'cluster', title: () => trans.__('GPU cluster'), render: () => <DashboardView /> });
    const notebook: INotebook | null = tracker && {
      cell: () => {
        const panel = tracker.currentWidget;
        const cell = panel?.content.activeCell;
        return panel && cell?.model.type === 'code'
          ? {
              label: trans.__('Cell %1 of %2', panel.content.activeCellIndex + 1, plain(panel.title.label)),
              source: cell.model.sharedModel.getSource(),
            }
          : null;
      },
      insert: (flags) => {
        const panel = tracker.currentWidget;
        const cell = panel?.content.activeCell;
        if (panel && cell) {
          cell.model.sharedModel.setSource(withMagic(cell.model.sharedModel.getSource(), flags));
          app.shell.activateById(panel.id);
        }
      },
    };
    mgpu.views.register({
      kind: 'submit',
      title: () => trans.__('New job'),
      render: (_, given) => <SubmitView given={given} notebook={notebook} />,
    });
  },
};
