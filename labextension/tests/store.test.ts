import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StreamEventsFrame } from '../src/api/types.gen';
import { ENDED_KEPT, Store } from '../src/model/store';
import { aCluster, aGpu, aJob, aNode } from './given';

function aStore(): Store {
  const store = new Store();
  store.reset(aCluster(), [aNode('n1'), aNode('n2')], [aJob('A'), aJob('B')]);
  return store;
}

test('a snapshot replaces everything and says what changed', () => {
  const store = aStore();
  const changes = store.reset(aCluster({ seq: 20 }), [aNode('n3')], [aJob('C')], [aJob('D', { state: 'completed' })]);
  assert.deepEqual([...store.nodes.keys()], ['n3']);
  assert.deepEqual([...store.jobs.keys()], ['D', 'C']);
  assert.deepEqual([...changes.nodes], ['n1', 'n2', 'n3']);
  assert.equal(store.seq, 20);
  assert.equal(store.needsSnapshot, false);
});

test('frames move the place to resume from forwards only', () => {
  const store = aStore();
  store.apply({ type: 'job', seq: 15, display_key: '', job: aJob('A', { state: 'running' }) });
  store.apply({ type: 'node', seq: 13, node: aNode('n1') });
  store.apply({ type: 'ready', seq: 14 });
  assert.equal(store.seq, 15);
  assert.equal(store.jobs.get('A')?.state, 'running');
});

test('samples change only what they name, and leave other nodes untouched', () => {
  const store = aStore();
  const before = store.readings.get('n2');
  const changes = store.apply({ type: 'samples', at: 1, nodes: { n1: { gpus: { '1': [46, 12_390, 54, 171] } } } });
  assert.deepEqual(store.readings.get('n1')?.gpus.get(1), [46, 12_390, 54, 171]);
  assert.deepEqual(store.readings.get('n1')?.gpus.get(0), [0, 0, 30, 50]);
  assert.equal(store.readings.get('n1')?.cpu, 1);
  assert.equal(store.readings.get('n2'), before);
  assert.deepEqual([...changes.readings], ['n1']);
  store.apply({ type: 'samples', at: 2, nodes: { n1: { cpu: null } } });
  assert.equal(store.readings.get('n1')?.cpu, null);
  assert.deepEqual(store.readings.get('n1')?.gpus.get(1), [46, 12_390, 54, 171]);
});

test('the queue follows its differences', () => {
  const store = aStore();
  store.apply({
    type: 'queue',
    version: 5,
    inserted: [[0, ['A', 'B', 'C']]],
    reasons: { 7: ['busy', 'Waits for 4 GPUs'] },
    why: { A: 7, B: 7 },
    expected: { A: 100 },
  });
  assert.deepEqual(store.queue, ['A', 'B', 'C']);
  assert.equal(store.place('B'), 2);
  assert.deepEqual(store.reason(aJob('B')), ['busy', 'Waits for 4 GPUs']);
  assert.equal(store.expectedStart(aJob('A')), 100);
  store.apply({
    type: 'queue',
    version: 6,
    base: 5,
    removed: ['A', 'C'],
    inserted: [
      [0, ['C']],
      [2, ['D']],
    ],
    reasons: { 7: ['busy', 'Waits for 2 GPUs'] },
    expected: { B: null },
  });
  assert.deepEqual(store.queue, ['C', 'B', 'D']);
  assert.equal(store.place('A'), null);
  assert.deepEqual(store.reason(aJob('B')), ['busy', 'Waits for 2 GPUs']);
  assert.deepEqual(store.reason(aJob('A', { reason: 'told before', reason_code: 'old' })), ['old', 'told before']);
  assert.equal(store.expectedStart(aJob('B', { expected_start_at: 50 })), null);
  assert.equal(store.queueVersion, 6);
  store.apply({ type: 'queue', version: 9, inserted: [[0, ['Z']]] });
  assert.deepEqual(store.queue, ['Z']);
  assert.deepEqual(store.reason(aJob('B')), ['', '']);
});

test('what is gone is forgotten, and a reset asks for a snapshot', () => {
  const store = aStore();
  store.apply({ type: 'gone', seq: 30, nodes: ['n1'], jobs: ['A'] });
  assert.equal(store.nodes.has('n1') || store.readings.has('n1') || store.jobs.has('A'), false);
  store.apply({ type: 'reset', seq: 3, message: '' });
  assert.equal(store.seq, 3);
  assert.equal(store.needsSnapshot, true);
  store.apply({ type: 'ping' });
});

test('jobs that ended are kept within a bound, the newest of them', () => {
  const store = aStore();
  for (let number = 0; number < ENDED_KEPT + 50; number += 1) {
    store.apply({ type: 'job', seq: number, display_key: '', job: aJob(`E${number}`, { state: 'failed' }) });
  }
  assert.equal(store.jobs.size, ENDED_KEPT + 2);
  assert.equal(store.jobs.has('E49'), false);
  assert.equal(store.jobs.has('E50') && store.jobs.has('A'), true);
});

test('a node frame brings its readings', () => {
  const store = aStore();
  const frame: StreamEventsFrame = {
    type: 'node',
    seq: 11,
    node: aNode('n1', [aGpu(0, { utilisation_percent: 77, memory_used_bytes: 2 ** 30 })]),
  };
  store.apply(frame);
  assert.deepEqual(store.readings.get('n1')?.gpus.get(0), [77, 1024, 30, 50]);
});
