/** Tells people what they would otherwise miss of their jobs: in the page, by the browser if they want, and to screen readers. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification as Toast } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { CommandIds } from '../commands';
import { Held, type IHeld, isMissed } from '../model/missed';
import { type IEvent, type INotice, moved, Notices, noticeOf, Told } from '../model/notices';
import { IMgpu } from '../tokens';
import { placeOf } from './sight';

const SHOWN_MS = 8000;
const SAID_MS = 1000; // at most one sentence a second

export const notify: JupyterFrontEndPlugin<void> = {
  id: '@mgpu/labextension:notify',
  description: 'Notifications of what one would otherwise miss of one’s jobs.',
  autoStart: true,
  requires: [IMgpu],
  optional: [INotebookTracker],
  activate: (_: JupyterFrontEnd, mgpu: IMgpu, notebooks: INotebookTracker | null) => {
    const { live, trans, settings, wishes } = mgpu;
    const notices = new Notices();
    const held = new Held();
    const toast = new JobToast(mgpu);
    const say = liveRegion();
    let timer: number | undefined;

    const isWanted = ({ event, seen, asked }: IHeld): boolean =>
      asked || isMissed(event, seen ? 'seen' : placeOf(event.job, notebooks), settings.tells, event.job.user);
    const look = (): void => {
      window.clearTimeout(timer);
      const due = held.due(live.now(), live.store).filter(isWanted);
      const shown = due.filter((one) => one.asked || settings.notify).map((one) => one.event);
      if (shown.length) {
        toast.add(shown);
      }
      if (due.length && settings.notifyBrowser && document.hidden) {
        byBrowser(noticeOf(due.map((one) => one.event).reverse(), trans));
      }
      const next = held.next();
      timer = next === null ? undefined : window.setTimeout(look, Math.max(0, next - live.now()) * 1000);
    };

    live.changed.connect((_sender, changes) => {
      const events = notices.look(live.store, changes.jobs, changes.cluster);
      for (const event of events) {
        // what somebody said of this job goes before what they said of all
        const wish = event.kind === 'started' ? wishes.of(event.job.id).start : undefined;
        if (wish !== false) {
          const seen = placeOf(event.job, notebooks) === 'seen';
          held.add({ event, seen, asked: wish === true }, live.now());
        }
      }
      if (events.length) {
        say(spoken(noticeOf([...events].reverse(), trans), mgpu));
        look();
      }
      for (const notice of changes.queue ? moved(live.store, wishes, live.now(), trans) : []) {
        say(spoken(notice, mgpu));
        Toast.info(spoken(notice, mgpu), { autoClose: SHOWN_MS, actions: actionsOf(notice, mgpu) });
        if (settings.notifyBrowser && document.hidden) {
          byBrowser(notice);
        }
      }
    });
  },
};

/** The one notification about starts and ends; it grows while it is there. */
class JobToast {
  private readonly _told = new Told();
  private _id = '';

  constructor(private readonly _mgpu: IMgpu) {}

  add(events: readonly IEvent[]): void {
    const now = this._mgpu.live.now();
    const isThere = this._told.goesOn(now) && Toast.manager.has(this._id);
    const notice = this._told.say(events, now, isThere, this._mgpu.trans);
    const type = notice.bad ? 'error' : 'info';
    const message = spoken(notice, this._mgpu); // JupyterLab shows it as text
    const options = { autoClose: SHOWN_MS, actions: actionsOf(notice, this._mgpu) };
    if (isThere) {
      Toast.manager.update({ id: this._id, type, message, ...options });
    } else {
      this._id = Toast.manager.notify(message, type, options);
    }
  }
}

function spoken(notice: INotice, { trans }: IMgpu): string {
  return notice.text ? trans.__('%1: %2', notice.title, notice.text) : notice.title;
}

function actionsOf(notice: INotice, { trans, commands }: IMgpu): Toast.IAction[] {
  if (notice.job === '') {
    return [{ label: trans.__('Show'), callback: () => void commands.execute(CommandIds.showPanel) }];
  }
  return notice.bad
    ? [{ label: trans.__('Log'), callback: () => void commands.execute(CommandIds.openJob, { id: notice.job, tab: 'log' }) }]
    : [{ label: trans.__('Open'), callback: () => void commands.execute(CommandIds.openJob, { id: notice.job }) }];
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

/** One polite live region for the whole page; sentences follow each other and do not replace each other. */
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
