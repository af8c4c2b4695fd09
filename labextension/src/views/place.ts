/** Where a view is put: into the main area, and where that holds only one document (Notebook 7) beside the files or below the notebook. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { SplitPanel, TabPanel, type Widget } from '@lumino/widgets';

const LEAST = 0.3; // of the height of the page
const GIVEN = 0.5;

/** Put a view into the page. */
export function place(widget: Widget, shell: JupyterFrontEnd.IShell): void {
  shell.add(widget, 'main');
  if (widget.isAttached) {
    return;
  }
  if (shell.currentWidget instanceof TabPanel) {
    shell.currentWidget.addWidget(widget);
    return;
  }
  shell.add(widget, 'down');
  const tabs = tabsOf(widget);
  const split = tabs?.parent;
  if (tabs && split instanceof SplitPanel) {
    tabs.show();
    // the area below has no height of its own before it is dragged
    const sizes = split.relativeSizes();
    if ((sizes[split.widgets.indexOf(tabs)] ?? 0) < LEAST) {
      split.setRelativeSizes(split.widgets.map((one) => (one === tabs ? GIVEN : (1 - GIVEN) / (split.widgets.length - 1))));
    }
  }
}

/** Bring a view to the front. */
export function show(widget: Widget, shell: JupyterFrontEnd.IShell): void {
  const tabs = tabsOf(widget);
  if (tabs === null) {
    shell.activateById(widget.id);
    return;
  }
  tabs.show();
  tabs.currentWidget = widget;
  widget.activate();
}

function tabsOf(widget: Widget): TabPanel | null {
  for (let one = widget.parent; one !== null; one = one.parent) {
    if (one instanceof TabPanel) {
      return one;
    }
  }
  return null;
}
