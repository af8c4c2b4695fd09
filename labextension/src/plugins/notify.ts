/** Tells people when their jobs start and end: in the page, by the browser if they want, and to screen readers. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification as Toast } from '@jupyterlab/apputils';
import { CommandIds } from '../commands';
import { type INotice, moved, Notices } from '../model/notices';
import { IMgpu } from '../tokens';

const SHOWN_MS = 8000;
const SAID_MS = 1000; // at most one sentence a second

export const notify: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:notify',
  description: 'Notifications when a job starts or ends.',
  autoStart: true,
  requires: [IMgpu],
  activate: (_: JupyterFrontEnd, mgpu: IMgpu) => {
    const { live, trans, settings, wishes } = mgpu;
    const notices = new Notices();
    const say = liveRegion();
    live.changed.connect((_sender, changes) => {
      const told = notices.look(live.store, changes.jobs, changes.cluster, trans);
      for (const notice of changes.queue ? [...told, ...moved(live.store, wishes, live.now(), trans)] : told) {
        // what somebody said of this job goes before what they said of all
        const wish = notice.kind === 'moved' ? true : notice.kind === 'started' ? wishes.of(notice.job).start : undefined;
        say(`${notice.title} ${notice.text}`);
        if (wish ?? settings.notify) {
          show(notice, mgpu);
        }
        if ((wish ?? true) && settings.notifyBrowser && document.hidden) {
          byBrowser(notice);
        }
      }
    });
  },
};

function show(notice: INotice, mgpu: IMgpu): void {
  const { trans, commands } = mgpu;
  const actions = notice.job
    ? [
        {
          label: notice.bad ? trans.__('Log') : trans.__('Open'),
          callback: () => void commands.execute(CommandIds.openJob, notice.bad ? { id: notice.job, tab: 'log' } : { id: notice.job }),
        },
      ]
    : [];
  const text = notice.text ? `${notice.title}: ${notice.text}` : notice.title; // JupyterLab shows it as text
  (notice.bad ? Toast.error : Toast.info)(text, { autoClose: SHOWN_MS, actions });
}

function byBrowser(notice: INotice): void {
  if (!('Notification' in window)) {
    return;
  }
  void window.Notification.requestPermission().then((answer) => {
    if (answer === 'granted') {
      new window.Notification(notice.title, { body: notice.text, tag: `mgpu-${notice.job}-${notice.kind}` });
    }
  });
}

/** One polite region for the whole page; sentences follow each other and do not push each other out. */
function liveRegion(): (text: string) => void {
  const region = document.createElement('div');
  region.className = 'mgp-live-region';
  region.setAttribute('role', 'status');
  region.setAttribute('aria-live', 'polite');
  document.body.appendChild(region);
  const waiting: string[] = [];
  let timer: number | undefined;
  const next = (): void => {
    const text = waiting.shift();
    timer = text === undefined ? undefined : window.setTimeout(next, SAID_MS);
    if (text !== undefined) {
      region.textContent = text;
    }
  };
  return (text) => {
    waiting.push(text);
    if (timer === undefined) {
      next();
    }
  };
}
