import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IConnection } from '../src/model/live';
import { allRows, nodeRow, totals } from '../src/model/select';
import { Store } from '../src/model/store';
import * as words from '../src/text/words';
import { aCluster, aGpu, aJob, aNode, NOW } from './given';

const { english } = words;
const connected = (state: IConnection['state'], heardAt: number | null = NOW - 42): IConnection => ({
  state,
  heardAt,
  retryAt: null,
  problem: '',
});

test('the live mark', () => {
  assert.deepEqual(
    (['live', 'connecting', 'stale', 'stopped'] as const).map((state) => words.liveMark(connected(state), NOW, english)),
    ['live', 'connecting', '42 s old', 'stopped'],
  );
  assert.equal(words.liveMark(connected('stale', null), NOW, english), 'no connection');
});

test('the status bar', () => {
  const store = new Store();
  store.reset(aCluster(), [aNode('n1')], []);
  const sums = totals(allRows(store));
  assert.equal(words.statusText(connected('live'), sums, 1, 3, english), '2 free · 1 running · 3 waiting');
  assert.equal(words.statusText(connected('stale'), sums, 1, 3, english), 'GPUs: no connection');
  assert.equal(words.statusText(connected('live'), totals([]), 0, 0, english), 'GPUs: none yet');
});

test('notes of nodes', () => {
  const note = (more: Parameters<typeof aNode>[2], gpus = [aGpu(0), aGpu(1)]): string =>
    words.nodeNote(nodeRow(aNode('gpu-06', gpus, more), undefined, 'me'), NOW, english).text;
  assert.equal(note({}), 'H100 · 2 free');
  assert.equal(note({}, [aGpu(0, { state: 'held', job_id: 'A', user: 'x' })]), 'H100 · full');
  assert.equal(note({ state: 'draining' }), 'draining');
  assert.equal(note({ state: 'suspect', last_seen_at: NOW - 12 }), 'not heard for 12 s');
  assert.equal(note({ state: 'offline', last_seen_at: NOW - 22 * 60 }), 'offline since 13:52');
  assert.equal(note({}, []), '');
  const orders = { ...aNode('x').orders, state: 'draining' as const, reason: 'kernel update', by: 'admin', at: NOW - 24 * 60 };
  assert.equal(words.nodeReason(aNode('gpu-06', [], { orders }), NOW, english), 'gpu-06: “kernel update” by admin, since 13:50');
  assert.equal(words.nodeReason(aNode('gpu-06'), NOW, english), '');
});

test('what draining does', () => {
  const [one, two] = [aJob('A', { name: 'ablate', user: 'user1' }), aJob('B', { name: 'eval', user: 'user2' })];
  assert.deepEqual(
    [words.drainText([], 0, english), words.drainText([one], 2, english), words.drainText([one, two], 1, english)],
    [
      'It takes no new jobs.',
      'It takes no new jobs. ablate of user1 goes on to its end. The 2 jobs expected here move to other nodes.',
      'It takes no new jobs. ablate, eval go on to their ends. The job expected here moves to another node.',
    ],
  );
});

test('names of GPUs are short', () => {
  assert.deepEqual(['NVIDIA H100 80GB HBM3', 'NVIDIA A100-SXM4-40GB', 'NVIDIA GeForce RTX 4090', 'Tesla T4', 'Odd'].map(words.gpuKind), [
    'H100',
    'A100',
    'RTX 4090',
    'T4',
    'Odd',
  ]);
});

test('what is read out of a tile', () => {
  const node = aNode('gpu-02', [
    aGpu(2, { state: 'held', job_id: 'J', user: 'me', rank: 6, utilisation_percent: 58, memory_used_bytes: 56.3 * 2 ** 30 }),
  ]);
  const store = new Store();
  store.reset(aCluster(), [node], []);
  const tile = allRows(store)[0]?.tiles[0];
  assert.ok(tile);
  assert.equal(
    words.tileLabel(tile, aJob('J', { name: 'train-7b' }), english),
    'gpu-02, GPU 2, mine, train-7b rank 6, 58 percent busy, 56.3 of 80 GiB',
  );
});

test('lines of jobs', () => {
  const store = new Store();
  store.reset(aCluster(), [aNode('gpu-01', [aGpu(0, { utilisation_percent: 89 })])], []);
  store.apply({
    type: 'queue',
    version: 2,
    inserted: [[0, ['A', 'B']]],
    reasons: { 1: ['busy', 'Waits for 4 free H100 on each of 2 nodes.'] },
    why: { B: 1 },
    expected: { B: NOW + 38 * 60 },
  });
  const line = (more: Parameters<typeof aJob>[1], id = 'J'): string => words.jobLine(aJob(id, more), store, NOW, english);
  const placements = [{ node: 'gpu-01', rank: 0, gpus: [], gpu_indices: [0] }] as never;
  assert.equal(
    line({ state: 'running', nodes: ['gpu-01', 'gpu-02'], placements, started_at: NOW - 2520, time_limit_s: 2520 + 8280 }),
    'gpu-01, gpu-02 · 89 % busy · 2 h 18 m left',
  );
  assert.equal(line({}, 'B'), '2nd in queue, starts ≈ 14:52. Waits for 4 free H100 on each of 2 nodes');
  assert.equal(words.jobTime(aJob('B'), store, NOW, english), '≈ 14:52');
  assert.equal(line({ reason_code: 'held', reason: 'It is held: release it.' }), 'Held; starts only when released');
  assert.equal(words.jobTime(aJob('H', { reason_code: 'held' }), store, NOW, english), 'held');
  assert.equal(line({ reason: 'Waits for X to succeed.' }), 'Waits for X to succeed');
  assert.equal(words.jobTime(aJob('R', { state: 'running', started_at: NOW - 2520 }), store, NOW, english), '42 m');
});

test('lines of jobs that ended', () => {
  const ended = { started_at: NOW - 2067, ended_at: NOW };
  const line = (more: Parameters<typeof aJob>[1], used: number | null = null): string =>
    words.endedLine(aJob('J', { ...ended, ...more }), used, english);
  assert.equal(line({ state: 'completed', exit_code: 0, gpus: 4 }, 1.3), 'exit 0 · 34 m 27 s · asked 4, used 1.3');
  assert.equal(
    line({ state: 'failed', exit_code: 1, failure: { rank: 3, node: 'n', exit_code: 1, signal: null, last_lines: [] } }),
    'exit 1 on rank 3 · 34 m 27 s',
  );
  assert.equal(line({ state: 'timeout', time_limit_s: 3600 }), 'time limit 1 h reached');
  assert.equal(line({ state: 'cancelled', started_at: NOW - 40 }), 'cancelled after 40 s');
  assert.equal(line({ state: 'cancelled', started_at: null }), 'cancelled before it started');
});

test('names of users cannot turn a line around', () => {
  assert.equal(words.jobName(aJob('J', { name: 'a\u202eb' })), 'a\ufffdb');
  assert.equal(words.nodeList(['a', 'b', 'c', 'd', 'e']), 'a, b, c + 2');
});
