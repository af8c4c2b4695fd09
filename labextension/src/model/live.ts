/**
 * Keeps the store in step with the server: one snapshot, then one WebSocket for all views, resumed after a break from where it stopped.
 *
 * Theory of operation. `resume` and `pause` say whether anybody watches. While somebody does, there is one connection or a time at which
 * the next one is tried. A lost connection is tried again at once; only when that fails, too, is the data called old. The state says
 * what is wrong in a way that a person can act on: no server, no master, or signed out. Changes are gathered and passed on at most ten
 * times a second. Knows no widget.
 */
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';
import type { Client } from '../api/client';
import { type Query, RequestError } from '../api/request';
import type { StreamEventsFrame } from '../api/types.gen';
import { type IChanges, noChanges, type Store } from './store';

export const GATHER_MS = 100;
export const SILENCE_MS = 35_000; // the server sends something every 15 s
const BACKOFF_S = [1, 2, 4, 8, 15, 30];

export type ConnectionState = 'connecting' | 'live' | 'stale' | 'stopped' | 'signed-out';

export interface IConnection {
  readonly state: ConnectionState;
  /** When the server was last heard, in seconds since 1970. */
  readonly heardAt: number | null;
  /** When the next try begins. */
  readonly retryAt: number | null;
  /** What the server says is wrong. */
  readonly problem: string;
}

/** The part of a WebSocket that is used. */
export interface ISocket {
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: (() => void) | null;
  close(): void;
}

/** What is passed in from outside: sockets and time. */
export interface IHost {
  open(path: string, query: Query): ISocket;
  /** Seconds since 1970. */
  now(): number;
  after(ms: number, call: () => void): IDisposable;
}

export class Live implements IDisposable {
  private _connection: IConnection = { state: 'connecting', heardAt: null, retryAt: null, problem: '' };
  private readonly _changed = new Signal<this, IChanges>(this);
  private readonly _connectionChanged = new Signal<this, IConnection>(this);
  private _socket: ISocket | null = null;
  private _retry: IDisposable | null = null;
  private _silence: IDisposable | null = null;
  private _telling: IDisposable | null = null;
  private _gathered: IChanges = noChanges();
  private _wanted = false;
  private _failures = 0;
  private _turn = 0; // counts connections; messages of an older one are ignored
  private _disposed = false;

  constructor(
    readonly client: Client,
    readonly store: Store,
    private readonly _host: IHost,
  ) {}

  get connection(): IConnection {
    return this._connection;
  }

  /** The changes, at most ten times a second. */
  get changed(): ISignal<this, IChanges> {
    return this._changed;
  }

  get connectionChanged(): ISignal<this, IConnection> {
    return this._connectionChanged;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** Open another socket of the server, for data that only one view needs. */
  open(path: string, query: Query): ISocket {
    return this._host.open(path, query);
  }

  now(): number {
    return this._host.now();
  }

  /** Connect, because somebody watches. */
  resume(): void {
    if (!this._wanted && !this._disposed) {
      this._wanted = true;
      this._failures = 0;
      void this._connect();
    }
  }

  /** Close the connection, because nobody watches; keep the data. */
  pause(): void {
    this._wanted = false;
    this._drop();
  }

  /** Try again now. */
  tryNow(): void {
    if (this._wanted && this._socket === null) {
      this._drop();
      void this._connect();
    }
  }

  dispose(): void {
    if (!this._disposed) {
      this.pause();
      this._disposed = true;
      this._telling?.dispose();
      Signal.clearData(this);
    }
  }

  private _drop(): void {
    this._turn += 1;
    this._retry?.dispose();
    this._silence?.dispose();
    this._retry = this._silence = null;
    const socket = this._socket;
    this._socket = null;
    if (socket !== null) {
      socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }

  private async _connect(): Promise<void> {
    const turn = ++this._turn;
    try {
      if (this.store.needsSnapshot) {
        await this._snapshot(turn);
      }
      if (turn !== this._turn) {
        return;
      }
      this._listen(turn);
    } catch (error) {
      if (turn === this._turn) {
        this._failed(error);
      }
    }
  }

  private async _snapshot(turn: number): Promise<void> {
    const cluster = await this.client.cluster(); // first: changes meanwhile come after its `seq`
    const [nodes, jobs, ended] = await Promise.all([this.client.nodes(), this.client.active(), this.client.ended()]);
    if (turn === this._turn) {
      this.store.queueVersion = null;
      this._tell(this.store.reset(cluster, nodes.nodes, jobs, ended));
    }
  }

  private _listen(turn: number): void {
    const query = { since: this.store.seq, samples: 1, queue: this.store.queueVersion ?? 1 };
    const socket = this._host.open('events', query);
    this._socket = socket;
    this._watchSilence(turn);
    socket.onmessage = (event) => {
      if (turn === this._turn) {
        this._take(JSON.parse(String(event.data)) as StreamEventsFrame, turn);
      }
    };
    socket.onclose = () => {
      if (turn === this._turn) {
        void this._lost();
      }
    };
  }

  private _take(frame: StreamEventsFrame, turn: number): void {
    this._watchSilence(turn);
    this.store.apply(frame, this._gathered);
    this._tell(this._gathered);
    if (frame.type === 'reset') {
      this._drop();
      void this._connect();
    } else if (frame.type === 'ready' || this._connection.state === 'live') {
      this._failures = 0;
      this._say('live', { heardAt: this._host.now() });
    }
  }

  private _watchSilence(turn: number): void {
    this._silence?.dispose();
    this._silence = this._host.after(SILENCE_MS, () => {
      if (turn === this._turn) {
        void this._lost();
      }
    });
  }

  private async _lost(): Promise<void> {
    this._drop();
    const turn = ++this._turn;
    try {
      const health = await this.client.health();
      if (turn !== this._turn) {
        return;
      }
      if (health.status === 'failed' || health.status === 'starting') {
        throw new RequestError(503, 'master-down', health.message);
      }
      if (this._failures === 0) {
        this._failures = 1;
        await this._connect();
        return;
      }
      throw new RequestError(0, 'unreachable', '');
    } catch (error) {
      if (turn === this._turn) {
        this._failed(error);
      }
    }
  }

  private _failed(error: unknown): void {
    const wait = BACKOFF_S[Math.min(this._failures, BACKOFF_S.length - 1)] as number;
    this._failures += 1;
    const refused = error instanceof RequestError ? error : new RequestError(0, 'unreachable', String(error));
    const state = refused.isSignedOut ? 'signed-out' : refused.isUnreachable || refused.status === 404 ? 'stale' : 'stopped';
    this._say(state, { retryAt: this._host.now() + wait, problem: refused.message });
    this._retry?.dispose();
    this._retry = this._host.after(wait * 1000, () => {
      this._retry = null;
      void this._connect();
    });
  }

  private _say(state: ConnectionState, more: Partial<IConnection>): void {
    const before = this._connection;
    this._connection = { state, heardAt: before.heardAt, retryAt: null, problem: '', ...more };
    if (before.state !== state || before.retryAt !== this._connection.retryAt) {
      this._connectionChanged.emit(this._connection);
    }
  }

  private _tell(changes: IChanges): void {
    if (changes !== this._gathered) {
      merge(this._gathered, changes);
    }
    this._telling ??= this._host.after(GATHER_MS, () => {
      this._telling = null;
      const gathered = this._gathered;
      this._gathered = noChanges();
      this._changed.emit(gathered);
    });
  }
}

function merge(into: IChanges, more: IChanges): void {
  for (const kind of ['nodes', 'readings', 'jobs'] as const) {
    for (const id of more[kind]) {
      into[kind].add(id);
    }
  }
  into.queue ||= more.queue;
  into.cluster ||= more.cluster;
}
