import assert from 'node:assert/strict';
import { test } from 'node:test';
import { activeRow, COLUMNS, endedRow } from '../src/model/rows';
import { Store } from '../src/model/store';
import { english } from '../src/text/words';
import { aCluster, aJob, aNode, NOW } from './given';

test('a row of the queue is the same object until something in it changes', () => {
  const store = new Store();
  store.reset(aCluster(), [aNode('n1')], [aJob('A'), aJob('B'), aJob('R', { state: 'running', started_at: NOW - 60 })]);
  store.apply({
    type: 'queue',
    version: 1,
    inserted: [[0, ['A', 'B']]],
    reasons: { '7': ['busy', 'Waits for GPUs'] },
    why: { A: 7, B: 7 },
  });
  const row = (id: string, now = NOW) => activeRow(store.jobs.get(id) ?? aJob(id), store, now, english);
  const before = row('B');
  assert.match(before.cells.line ?? '', /2nd in queue. Waits for GPUs/);
  assert.equal(row('B'), before);
  store.apply({ type: 'samples', at: NOW, nodes: { n1: { cpu: 3 } } });
  assert.equal(row('B'), before);
  store.apply({ type: 'queue', version: 2, base: 1, removed: ['A'] });
  assert.match(row('B').cells.line ?? '', /1st in queue/);
  store.apply({ type: 'queue', version: 3, base: 2, reasons: { '7': ['busy', 'Waits for more GPUs'] } });
  assert.match(row('B').cells.line ?? '', /more GPUs/);
  const at = row('B');
  store.apply({ type: 'queue', version: 4, base: 3, expected: { B: NOW + 600 } });
  assert.notEqual(row('B'), at);
  assert.notEqual(row('B', NOW + 15), row('B'));
  store.apply({ type: 'job', seq: 99, display_key: '', job: aJob('B', { state: 'running', started_at: NOW }) });
  assert.doesNotMatch(row('B').cells.line ?? '', /queue/);
  assert.notEqual(row('R'), row('R'), 'what runs is drawn with its newest readings');
});

test('each column says its part of a job, whether it runs, waits or is over', () => {
  const store = new Store();
  const runs = aJob('R', { state: 'running', started_at: NOW - 120, name: 'train', nodes: ['n1'], nodes_wanted: 1, gpus: 2 });
  const over = aJob('O', {
    state: 'completed',
    started_at: NOW - 60,
    ended_at: NOW - 20,
    exit_code: 0,
    user: 'bob',
    gpus: 4,
    nodes_wanted: 2,
  });
  store.reset(aCluster(), [aNode('n1')], [runs, over]);
  const { job: _, ...active } = activeRow(runs, store, NOW, english);
  assert.deepEqual(active, {
    held: false,
    mine: runs.user === store.cluster?.user,
    cells: { name: 'train', size: '1×2', user: runs.user, line: 'n1', time: '2 m' },
  });
  const ended = endedRow(over, 1.5, store, NOW, english);
  assert.deepEqual([ended.mine, ended.cells.size, ended.cells.line], [false, '2×2', 'exit 0 · 40 s · asked 4, used 1.5']);
  assert.deepEqual(
    COLUMNS.map((column) => column.name),
    Object.keys(ended.cells),
  );
});
