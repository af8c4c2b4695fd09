/**
 * Keys, drags and the pointer in panels of notebooks (`%mgpu_panel`), which stock widgets do not report: each order is written into a
 * hidden field of the panel, and its kernel carries it out. Sends no request of its own.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { isAfter, order, stepOf, target, verbOf } from '../model/orders';

const ROW = '.mgpu-panel .mgpu-row';
const FOLLOW_MS = 150;
const FOLLOWS = 20;
const LEAVE_MS = 400;

export const keys: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:panel-keys',
  description: 'Keys and drags in the rows of %mgpu_panel.',
  autoStart: true,
  activate: (_: JupyterFrontEnd) => {
    document.body.dataset.mgpuPanel = 'true';
    // Before JupyterLab's own listener, which would use arrows and Enter for the notebook.
    window.addEventListener('keydown', pressed, true);
    document.addEventListener('pointerover', entered);
    document.addEventListener('focusin', entered);
    document.addEventListener('dragstart', begun);
    document.addEventListener('dragover', dragged);
    document.addEventListener('dragend', ended);
    document.addEventListener('drop', dropped);
  },
};

function rowOf(event: Event): HTMLElement | null {
  return event.target instanceof Element ? event.target.closest<HTMLElement>(ROW) : null;
}

function jobOf(row: Element): string {
  return row.querySelector<HTMLElement>('[data-job]')?.dataset.job ?? '';
}

function rowsAround(row: Element): HTMLElement[] {
  const rows = row.closest('.mgpu-rows')?.querySelectorAll<HTMLElement>('.mgpu-row:not(.mgpu-hide)') ?? [];
  return [...rows];
}

function tellKernel(row: Element, ...words: string[]): void {
  const field = row.closest('.mgpu-panel')?.querySelector<HTMLInputElement>('.mgpu-orders input');
  if (field) {
    field.value = order(...words);
    field.dispatchEvent(new Event('input', { bubbles: true }));
  }
}

// --- keys --------------------------------------------------------------------------------------------

function pressed(event: KeyboardEvent): void {
  const row = rowOf(event);
  if (row === null) {
    return;
  }
  const step = stepOf(event);
  const verb = event.target !== row && event.key === 'Enter' ? null : verbOf(event); // on a button of the row it presses that
  if (step === null && verb === null) {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
  if (step !== null) {
    const rows = rowsAround(row);
    go(rows[target(step, rows.indexOf(row), rows.length)]);
  } else if (verb !== null) {
    const job = jobOf(row);
    tellKernel(row, verb, job);
    if (verb === 'up' || verb === 'down') {
      follow(row, job, FOLLOWS);
    }
  }
}

/** One tab stop for all rows: the one that had the focus last. Widgets of a kernel have none by themselves. */
function go(row: HTMLElement | undefined): void {
  if (row !== undefined) {
    stops(row.closest('.mgpu-rows'), row);
    row.focus();
  }
}

function stops(list: Element | null | undefined, chosen?: HTMLElement): void {
  const rows = [...(list?.querySelectorAll<HTMLElement>('.mgpu-row') ?? [])];
  if (chosen !== undefined || rows.every((row) => row.tabIndex !== 0)) {
    for (const [number, row] of rows.entries()) {
      row.tabIndex = row === chosen || (chosen === undefined && number === 0) ? 0 : -1;
    }
  }
}

/** Keep the focus on a job that moves, unless it has gone elsewhere. */
function follow(row: HTMLElement, job: string, times: number): void {
  window.setTimeout(() => {
    if (!row.contains(document.activeElement) || times === 0) {
      return;
    }
    const now = jobOf(row) === job ? row : rowsAround(row).find((one) => jobOf(one) === job);
    if (now !== row) {
      go(now);
    }
    follow(now ?? row, job, times - 1);
  }, FOLLOW_MS);
}

// --- the pointer: rows stay while it or the focus is there ----------------------------------------------

let within: Element | null = null;
let leaving = 0;

function entered(event: Event): void {
  const row = rowOf(event);
  const list = row?.closest('.mgpu-rows') ?? null;
  if (event.target instanceof Element) {
    stops(event.target.closest('.mgpu-panel')?.querySelector('.mgpu-rows'));
  }
  if (row !== null) {
    row.draggable = row.querySelector('[data-moves]') !== null;
  }
  if (list === within) {
    window.clearTimeout(leaving);
    leaving = 0;
  } else if (list !== null) {
    leave();
    within = list;
    tellKernel(list, 'stay');
  } else if (within !== null && leaving === 0 && within.querySelector(':focus-visible') === null) {
    leaving = window.setTimeout(leave, LEAVE_MS);
  }
}

function leave(): void {
  window.clearTimeout(leaving);
  leaving = 0;
  if (within !== null) {
    tellKernel(within, 'go');
  }
  within = null;
}

// --- drags -----------------------------------------------------------------------------------------------

let moving: HTMLElement | null = null;
let moved = '';

function begun(event: DragEvent): void {
  const row = rowOf(event);
  if (row === null || !row.draggable || event.dataTransfer === null) {
    return;
  }
  moving = row;
  moved = jobOf(row);
  event.dataTransfer.effectAllowed = 'move';
  event.dataTransfer.setData('text/plain', moved);
  row.classList.add('mgpu-dragged');
}

function dragged(event: DragEvent): void {
  const over = overRow(event);
  unmark();
  if (over !== null) {
    event.preventDefault();
    over.classList.add(below(event, over) ? 'mgpu-dropafter' : 'mgpu-dropbefore');
  }
}

function dropped(event: DragEvent): void {
  const over = overRow(event);
  if (over !== null) {
    event.preventDefault();
    tellKernel(over, 'move', moved, below(event, over) ? 'after' : 'before', jobOf(over));
  }
  ended();
}

function ended(): void {
  unmark();
  moving?.classList.remove('mgpu-dragged');
  moving = null;
}

function overRow(event: DragEvent): HTMLElement | null {
  const row = rowOf(event);
  return row !== null && moving !== null && row.closest('.mgpu-rows') === moving.closest('.mgpu-rows') ? row : null;
}

function below(event: DragEvent, row: HTMLElement): boolean {
  const box = row.getBoundingClientRect();
  return isAfter(event.clientY, box.top, box.height);
}

function unmark(): void {
  for (const row of document.querySelectorAll('.mgpu-dropbefore, .mgpu-dropafter')) {
    row.classList.remove('mgpu-dropbefore', 'mgpu-dropafter');
  }
}
