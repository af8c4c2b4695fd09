/** The item of the status bar: free GPUs and one's own jobs. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';
import { CommandIds } from '../commands';
import { allRows, jobCounts, totals } from '../model/select';
import { gpuIcon } from '../parts/glyphs';
import { MgpuContext, useChanges, useConnection, useMgpu } from '../parts/hooks';
import { statusText } from '../text/words';
import { IMgpu } from '../tokens';

export const status: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:status',
  description: 'Free GPUs and your jobs in the status bar.',
  autoStart: true,
  requires: [IMgpu],
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, mgpu: IMgpu, bar: IStatusBar | null) => {
    const item = ReactWidget.create(
      <MgpuContext.Provider value={mgpu}>
        <Status />
      </MgpuContext.Provider>,
    );
    item.addClass('mgp-status');
    bar?.registerStatusItem('@mgpu/labextension:status', { item, align: 'left', rank: 50, isActive: () => true });
    void app;
  },
};

function Status(): JSX.Element {
  const { live, trans, commands } = useMgpu();
  const connection = useConnection();
  useChanges((changes) => changes.nodes.size > 0 || changes.jobs.size > 0 || changes.cluster);
  const counts = jobCounts(live.store);
  return (
    <button
      type="button"
      className="mgp-status-button"
      title={trans.__('Show GPUs and jobs')}
      onClick={() => void commands.execute(CommandIds.showPanel)}
    >
      <gpuIcon.react tag="span" width="14px" height="14px" />
      <span className="mgp-number">{statusText(connection, totals(allRows(live.store)), counts.myRunning, counts.myWaiting, trans)}</span>
    </button>
  );
}
