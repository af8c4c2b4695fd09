import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allRows, filterRows, historyRows, jobBusy, jobCounts, nodeRow, queueRows, sortRows, tileState, totals } from '../src/model/select';
import { Store } from '../src/model/store';
import { aCluster, aGpu, aJob, aNode } from './given';

test('the state of a tile says who has the GPU, and then why nobody can have it', () => {
  const online = aNode('n1');
  const draining = aNode('n1', [], { state: 'draining' });
  const cases = [
    [tileState(online, aGpu(0), 'me'), 'free'],
    [tileState(online, aGpu(0, { state: 'held', job_id: 'A', user: 'me' }), 'me'), 'mine'],
    [tileState(online, aGpu(0, { state: 'held', job_id: 'A', user: 'ann' }), 'me'), 'others'],
    [tileState(online, aGpu(0, { state: 'outside' }), 'me'), 'outside'],
    [tileState(online, aGpu(0, { state: 'unhealthy', job_id: 'A' }), 'me'), 'unhealthy'],
    [tileState(online, aGpu(0, { state: 'settling' }), 'me'), 'closed'],
    [tileState(draining, aGpu(0), 'me'), 'closed'],
    [tileState(draining, aGpu(0, { state: 'held', job_id: 'A', user: 'me' }), 'me'), 'mine'],
  ];
  for (const [found, expected] of cases) {
    assert.equal(found, expected);
  }
});

test('rows are made anew only when something changed', () => {
  const store = new Store();
  store.reset(aCluster(), [aNode('n1'), aNode('n2')], []);
  const before = allRows(store);
  store.apply({ type: 'samples', at: 1, nodes: { n1: { gpus: { '0': [50, 40_960, 40, 100] } } } });
  const after = allRows(store);
  assert.notEqual(after[0], before[0]);
  assert.equal(after[1], before[1]);
  assert.equal(after[0]?.tiles[0]?.busy, 0.5);
  assert.equal(after[0]?.tiles[0]?.memory, 0.5);
});

test('MIG instances are fields of one tile and count each', () => {
  const node = aNode('n1', [aGpu(0, { mig_parent: 'P' }), aGpu(1, { mig_parent: 'P', state: 'held', job_id: 'A', user: 'me' }), aGpu(2)]);
  const row = nodeRow(node, undefined, 'me');
  assert.equal(row.tiles.length, 2);
  assert.deepEqual(
    row.tiles[0]?.parts.map((part) => part.state),
    ['free', 'mine'],
  );
  assert.equal(totals([row]).gpus, 3);
});

test('totals', () => {
  const store = new Store();
  store.reset(
    aCluster(),
    [
      aNode('n1', [aGpu(0, { utilisation_percent: 90, state: 'held', job_id: 'A', user: 'me' }), aGpu(1, { utilisation_percent: 10 })]),
      aNode('n2', [aGpu(0, { utilisation_percent: null })], { state: 'offline' }),
    ],
    [],
  );
  const sums = totals(allRows(store));
  assert.deepEqual(sums, { free: 1, mine: 1, others: 0, outside: 0, unhealthy: 0, closed: 1, gpus: 3, nodes: 2, busyPercent: 50 });
});

test('nodes are found by name, job and user, and sorted by what counts', () => {
  const store = new Store();
  const held = (user: string): ReturnType<typeof aGpu> => aGpu(0, { state: 'held', job_id: 'A', user });
  store.reset(
    aCluster(),
    [
      aNode('gpu-10', [held('ann')], { rack: 'r1' }),
      aNode('gpu-9', [aGpu(0)], { rack: 'r2' }),
      aNode('gpu-2', [held('me')], { rack: 'r2' }),
    ],
    [aJob('A', { name: 'Train-7b' })],
  );
  const ids = (rows: ReturnType<typeof allRows>): string[] => rows.map((row) => row.node.id);
  const all = allRows(store);
  assert.deepEqual(ids(filterRows(all, 'ANN', store)), ['gpu-10']);
  assert.deepEqual(ids(filterRows(all, 'train', store)), ['gpu-10', 'gpu-2']);
  assert.deepEqual(ids(filterRows(all, 'train me', store)), ['gpu-2']);
  assert.deepEqual(ids(filterRows(all, '  ', store)).length, 3);
  assert.deepEqual(ids(sortRows(all, 'name')), ['gpu-10', 'gpu-2', 'gpu-9']);
  assert.deepEqual(ids(sortRows(all, 'free')), ['gpu-9', 'gpu-2', 'gpu-10']);
  assert.deepEqual(ids(sortRows(all, 'mine')), ['gpu-2', 'gpu-9', 'gpu-10']);
});

test('jobs that run stand first, then the queue in its order, then who waits aside', () => {
  const store = new Store();
  store.reset(
    aCluster(),
    [],
    [aJob('HELD'), aJob('SECOND'), aJob('FIRST', { user: 'ann' }), aJob('RUNS', { state: 'running', started_at: 5 })],
    [aJob('OLD', { state: 'failed', ended_at: 5 }), aJob('NEW', { state: 'completed', ended_at: 9 })],
  );
  store.apply({ type: 'queue', version: 2, inserted: [[0, ['FIRST', 'SECOND']]] });
  assert.deepEqual(
    queueRows(store, false).map((job) => job.id),
    ['RUNS', 'FIRST', 'SECOND', 'HELD'],
  );
  assert.deepEqual(
    queueRows(store, true).map((job) => job.id),
    ['RUNS', 'SECOND', 'HELD'],
  );
  assert.deepEqual(
    queueRows(store, false, 'ann').map((job) => job.id),
    ['FIRST'],
  );
  assert.deepEqual(
    historyRows(store, false).map((job) => job.id),
    ['NEW', 'OLD'],
  );
  assert.deepEqual(jobCounts(store), { waiting: 3, running: 1, myWaiting: 2, myRunning: 1 });
});

test('how busy a job is comes from its own GPUs', () => {
  const store = new Store();
  store.reset(
    aCluster(),
    [aNode('n1', [aGpu(0, { utilisation_percent: 80 }), aGpu(1, { utilisation_percent: 100 }), aGpu(2, { utilisation_percent: 3 })])],
    [],
  );
  const placement = { node: 'n1', rank: 0, gpus: [], gpu_indices: [0, 1] };
  assert.equal(jobBusy(store, aJob('A', { placements: [placement] as never })), 90);
  assert.equal(jobBusy(store, aJob('B')), null);
});
