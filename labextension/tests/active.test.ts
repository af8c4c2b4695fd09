import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Store } from '../src/model/store';
import { activeRow } from '../src/text/active';
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
  assert.match(before.line, /2nd in queue. Waits for GPUs/);
  assert.equal(row('B'), before);
  store.apply({ type: 'samples', at: NOW, nodes: { n1: { cpu: 3 } } });
  assert.equal(row('B'), before);
  store.apply({ type: 'queue', version: 2, base: 1, removed: ['A'] });
  assert.match(row('B').line, /1st in queue/);
  store.apply({ type: 'queue', version: 3, base: 2, reasons: { '7': ['busy', 'Waits for more GPUs'] } });
  assert.match(row('B').line, /more GPUs/);
  const at = row('B');
  store.apply({ type: 'queue', version: 4, base: 3, expected: { B: NOW + 600 } });
  assert.notEqual(row('B'), at);
  assert.notEqual(row('B', NOW + 15), row('B'));
  store.apply({ type: 'job', seq: 99, display_key: '', job: aJob('B', { state: 'running', started_at: NOW }) });
  assert.doesNotMatch(row('B').line, /queue/);
  assert.notEqual(row('R'), row('R'), 'what runs is drawn with its newest readings');
});
