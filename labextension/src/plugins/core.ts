/** Makes the one data layer of the page and decides when it runs: while the page is visible, or the user wants notices. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { ServerConnection } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { DisposableDelegate } from '@lumino/disposable';
import { Client } from '../api/client';
import { address, Rest } from '../api/request';
import { type IHost, type ISocket, Live } from '../model/live';
import type { IRules } from '../model/missed';
import type { NodeSort } from '../model/select';
import { Store } from '../model/store';
import { Wishes } from '../model/wishes';
import { patterns } from '../parts/tile';
import { IMgpu, type ISettings } from '../tokens';
import { Views } from '../views/opener';

export const SETTINGS_ID = '@mgpu/labextension:core';

const TELLS: IRules = { start: true, end: true, failure: true, background: true, unseen: true, long: true, seconds: 60 };
const DEFAULTS: ISettings = { nodeSort: 'free', queueMine: true, notify: true, tells: TELLS, notifyBrowser: false };

export const core: JupyterFrontEndPlugin<IMgpu> = {
  id: SETTINGS_ID,
  description: 'The live state of the GPU cluster, for all views of the page.',
  autoStart: true,
  provides: IMgpu,
  optional: [ISettingRegistry, ITranslator, ILayoutRestorer],
  activate: (app: JupyterFrontEnd, registry: ISettingRegistry | null, translator: ITranslator | null, restorer: ILayoutRestorer | null) => {
    const server = app.serviceManager.serverSettings;
    const client = new Client(
      new Rest(server.baseUrl, (url, init) => ServerConnection.makeRequest(url, { cache: 'no-store', ...init }, server)),
    );
    const live = new Live(client, new Store(), hostOf(server));
    const settings = { ...DEFAULTS };
    const trans = (translator ?? nullTranslator).load('mgpu');
    const mgpu: IMgpu = {
      client,
      live,
      trans,
      settings,
      wishes: new Wishes(kept()),
      commands: app.commands,
      views: new Views(app, live, restorer),
    };
    (mgpu.views as Views).mgpu = mgpu;
    document.body.appendChild(patterns());
    document.body.dataset.mgpuLab = ''; // headers of cells show buttons for our commands where this extension carries them out

    const look = (): void => {
      if (document.hidden && !settings.notifyBrowser) {
        live.pause();
      } else {
        live.resume();
      }
    };
    document.addEventListener('visibilitychange', look);
    void app.started.then(look);
    if (registry !== null) {
      registry.load(SETTINGS_ID).then(
        (loaded) => {
          const read = (): void => {
            const given = loaded.composite;
            settings.nodeSort = (given.nodeSort as NodeSort | undefined) ?? DEFAULTS.nodeSort;
            settings.queueMine = given.queue !== 'all';
            settings.notify = given.notify !== false;
            settings.tells = {
              start: given.notifyStart !== false,
              end: given.notifyEnd !== false,
              failure: given.notifyFailure !== false,
              background: given.notifyBackground !== false,
              unseen: given.notifyUnseen !== false,
              long: given.notifyLong !== false,
              seconds: typeof given.notifyLongSeconds === 'number' ? given.notifyLongSeconds : TELLS.seconds,
            };
            settings.notifyBrowser = given.notifyBrowser === true;
            look();
          };
          loaded.changed.connect(read);
          read();
        },
        () => undefined, // without its schema the defaults apply
      );
    }
    return mgpu;
  },
};

/** The browser's storage; none where it is forbidden. */
function kept(): Storage | null {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

/** Sockets and time of a browser. */
function hostOf(server: ServerConnection.ISettings): IHost {
  return {
    open: (path, query) => {
      const token = server.appendToken && server.token !== '' ? { token: server.token } : {};
      return new server.WebSocket(address(server.wsUrl, path, { ...query, ...token })) as unknown as ISocket;
    },
    now: () => Date.now() / 1000,
    after: (ms, call) => {
      const timer = window.setTimeout(call, ms);
      return new DisposableDelegate(() => window.clearTimeout(timer));
    },
  };
}
