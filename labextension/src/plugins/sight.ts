/** Tells whether somebody has a job before their eyes: in a cell of a notebook, or in the job's own view. */
import type { Cell } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Job } from '../api/types.gen';
import type { Place } from '../model/missed';
import { cellsOf } from '../model/remembered';

export function placeOf(job: Job, notebooks: INotebookTracker | null): Place {
  const views = [...document.querySelectorAll<HTMLElement>(`[data-job-view="${CSS.escape(job.id)}"]`)];
  const found = views.map((view) => view.offsetParent !== null);
  notebooks?.forEach((panel) => {
    const ids = cellsOf(panel.content.model?.getMetadata('mgpu') as unknown, [job.id, job.array_id ?? '']);
    found.push(...panel.content.widgets.filter((cell) => ids.has(cell.model.id)).map((cell) => isInSight(cell, panel)));
  });
  if (found.length === 0) {
    return 'nowhere';
  }
  return found.includes(true) && !document.hidden ? 'seen' : 'unseen';
}

/** A cell far away is not in the page at all; one that is may be scrolled out of its notebook. */
function isInSight(cell: Cell, panel: NotebookPanel): boolean {
  if (!panel.isVisible || !cell.node.isConnected) {
    return false;
  }
  const shown = panel.content.node.getBoundingClientRect();
  const { top, bottom } = cell.node.getBoundingClientRect();
  return bottom > shown.top && top < shown.bottom;
}
