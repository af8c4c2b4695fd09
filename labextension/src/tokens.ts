/** What plugins share. */
import type { CommandRegistry } from '@lumino/commands';
import { Token } from '@lumino/coreutils';
import type { Client } from './api/client';
import type { Live } from './model/live';
import type { IRules } from './model/missed';
import type { NodeSort } from './model/select';
import type { Wishes } from './model/wishes';
import type { ITrans } from './text/words';
import type { IViews } from './views/registry';

/** JupyterLab's settings of this extension; read when needed, so that a change counts at once. */
export interface ISettings {
  readonly nodeSort: NodeSort;
  readonly queueMine: boolean;
  readonly notify: boolean;
  /** Of what people are told; changed as a whole. */
  readonly tells: IRules;
  readonly notifyBrowser: boolean;
}

/** The one data layer of a page. */
export interface IMgpu {
  readonly client: Client;
  readonly live: Live;
  readonly trans: ITrans;
  /** Buttons run commands; see commands.ts. */
  readonly commands: CommandRegistry;
  readonly settings: ISettings;
  /** Notices that a user asked for about single jobs. */
  readonly wishes: Wishes;
  /** Where main-area views register and are opened. */
  readonly views: IViews;
}

export const IMgpu = new Token<IMgpu>('@mgpu/labextension:IMgpu', 'The live state of the GPU cluster, its client and its views.');
