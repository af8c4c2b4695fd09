import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from '../src/api/client';
import { type Query, Rest } from '../src/api/request';
import type { Health, StreamEventsFrame } from '../src/api/types.gen';
import { type IHost, type ISocket, Live, SILENCE_MS } from '../src/model/live';
import { Store } from '../src/model/store';
import { aCluster, aJob, aNode } from './given';

class FakeSocket implements ISocket {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  closed = false;
  constructor(readonly query: Query) {}
  close(): void {
    this.closed = true;
  }
  say(frame: StreamEventsFrame): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }
}

/** A server and a clock that the test moves. */
class World implements IHost {
  time = 1000;
  readonly sockets: FakeSocket[] = [];
  private _timers: { at: number; call: () => void }[] = [];
  readonly asked: string[] = [];
  up = true;
  health: Partial<Health> = { status: 'ok' };
  refusal: [number, string] | null = null;
  readonly live: Live;

  constructor() {
    const rest = new Rest('http://lab/', async (url) => {
      const path = url.replace(/^.*\/v1\//, '').replace(/\?.*/, '');
      this.asked.push(path);
      if (!this.up) {
        throw new TypeError('no network');
      }
      if (this.refusal !== null && path !== 'health') {
        return new Response(JSON.stringify({ code: 'x', message: this.refusal[1] }), { status: this.refusal[0] });
      }
      const answers: { [path: string]: unknown } = {
        cluster: aCluster({ seq: 50 }),
        nodes: { nodes: [aNode('n1')], expected: [] },
        jobs: { jobs: [aJob('A')], next_cursor: null },
        health: this.health,
      };
      return new Response(JSON.stringify(answers[path]));
    });
    this.live = new Live(new Client(rest), new Store(), this);
  }

  open = (_: string, query: Query): ISocket => {
    const socket = new FakeSocket(query);
    this.sockets.push(socket);
    return socket;
  };

  now = (): number => this.time;

  after = (ms: number, call: () => void): { dispose: () => void; isDisposed: boolean } => {
    const timer = { at: this.time + ms / 1000, call };
    this._timers.push(timer);
    return {
      dispose: () => {
        this._timers = this._timers.filter((one) => one !== timer);
      },
      isDisposed: false,
    };
  };

  async pass(seconds: number): Promise<void> {
    const until = this.time + seconds;
    for (;;) {
      await settled();
      const next = this._timers.filter((one) => one.at <= until).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) {
        break;
      }
      this._timers = this._timers.filter((one) => one !== next);
      this.time = next.at;
      next.call();
    }
    this.time = until;
    await settled();
  }

  get newest(): FakeSocket {
    return this.sockets[this.sockets.length - 1] as FakeSocket;
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 30; turn += 1) {
    await Promise.resolve();
  }
  await new Promise((resolve) => setImmediate(resolve));
}

async function connected(): Promise<World> {
  const world = new World();
  world.live.resume();
  await world.pass(0);
  world.newest.say({ type: 'ready', seq: 50 });
  return world;
}

test('a snapshot, then one socket from where the snapshot is', async () => {
  const world = await connected();
  assert.deepEqual(world.newest.query, { since: 50, samples: 1, queue: 1 });
  assert.equal(world.live.connection.state, 'live');
  assert.equal(world.live.store.nodes.size, 1);
  assert.equal(world.sockets.length, 1);
});

test('changes are gathered and told together', async () => {
  const world = await connected();
  await world.pass(1);
  const told: number[] = [];
  world.live.changed.connect((_, changes) => told.push(changes.jobs.size));
  for (const id of ['A', 'B', 'C']) {
    world.newest.say({ type: 'job', seq: 60, display_key: '', job: aJob(id) });
  }
  assert.deepEqual(told, []);
  await world.pass(0.2);
  assert.deepEqual(told, [3]);
});

test('after a break it goes on from where it stopped, without a new snapshot and without a word', async () => {
  const world = await connected();
  const states: string[] = [];
  world.live.connectionChanged.connect((_, now) => states.push(now.state));
  world.newest.say({ type: 'queue', version: 7, inserted: [[0, ['A']]] });
  world.newest.say({ type: 'job', seq: 77, display_key: '', job: aJob('B') });
  world.asked.length = 0;
  world.newest.onclose?.();
  await world.pass(0);
  assert.deepEqual(world.newest.query, { since: 77, samples: 1, queue: 7 });
  assert.deepEqual(world.asked, ['health']);
  assert.deepEqual(states, []);
});

test('a server that is gone is tried again, later and later, and what is shown is called old', async () => {
  const world = await connected();
  world.up = false;
  world.newest.onclose?.();
  await world.pass(0);
  assert.equal(world.live.connection.state, 'stale');
  assert.equal(world.live.connection.heardAt, 1000);
  assert.equal(world.live.connection.retryAt, 1001);
  world.up = true;
  await world.pass(1);
  assert.equal(world.sockets.length, 2);
  assert.equal(world.live.connection.state, 'stale', 'until the server has said that all was sent');
  world.newest.say({ type: 'ready', seq: 90 });
  assert.equal(world.live.connection.state, 'live');
});

test('pressing the button does not wait', async () => {
  const world = await connected();
  world.up = false;
  world.newest.onclose?.();
  await world.pass(20);
  world.up = true;
  world.live.tryNow();
  await world.pass(0);
  assert.equal(world.sockets.length > 1, true);
  assert.equal(world.newest.closed, false);
});

test('silence is a dead connection', async () => {
  const world = await connected();
  await world.pass(SILENCE_MS / 1000 - 1);
  world.newest.say({ type: 'ping' });
  await world.pass(SILENCE_MS / 1000 - 1);
  assert.equal(world.sockets.length, 1);
  await world.pass(2);
  assert.equal(world.sockets.length, 2);
  assert.equal(world.sockets[0]?.closed, true);
});

test('a master that stopped is told with its reason', async () => {
  const world = await connected();
  world.health = { status: 'failed', message: 'store_full: no space left.' };
  world.newest.onclose?.();
  await world.pass(0);
  assert.equal(world.live.connection.state, 'stopped');
  assert.equal(world.live.connection.problem, 'store_full: no space left.');
});

test('signed out is told as such', async () => {
  const world = new World();
  world.refusal = [401, 'Log in first.'];
  world.live.resume();
  await world.pass(0);
  assert.equal(world.live.connection.state, 'signed-out');
});

test('a reset makes the snapshot anew', async () => {
  const world = await connected();
  world.asked.length = 0;
  world.newest.say({ type: 'reset', seq: 3, message: 'another master' });
  await world.pass(0);
  assert.deepEqual([...new Set(world.asked)], ['cluster', 'nodes', 'jobs']);
  assert.equal(world.sockets[0]?.closed, true);
  assert.equal(world.newest.query.since, 50);
});

test('hidden: no connection and no timer; seen again: on from there', async () => {
  const world = await connected();
  world.live.pause();
  assert.equal(world.newest.closed, true);
  world.asked.length = 0;
  await world.pass(600);
  assert.deepEqual(world.asked, []);
  world.live.resume();
  await world.pass(0);
  assert.equal(world.sockets.length, 2);
  assert.deepEqual(world.asked, []);
});
