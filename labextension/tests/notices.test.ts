import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Job } from '../src/api/types.gen';
import { Notices } from '../src/model/notices';
import { Store } from '../src/model/store';
import { english } from '../src/text/words';
import { aCluster, aJob, NOW } from './given';

function after(jobs: readonly Job[], changed: readonly Job[]): string[] {
  const store = new Store();
  const notices = new Notices();
  const snapshot = store.reset(aCluster(), [], jobs);
  assert.deepEqual(notices.look(store, snapshot.jobs, true, english), []);
  for (const job of changed) {
    store.apply({ type: 'job', seq: 1, display_key: '', job });
  }
  const ids = new Set(changed.map((job) => job.id));
  const told = notices.look(store, ids, false, english).map((one) => `${one.title}: ${one.text}`);
  assert.deepEqual(notices.look(store, ids, false, english), [], 'nothing is told twice');
  return told;
}

test('a start and an end are told, with where and how', () => {
  const started = aJob('A', {
    name: 'finetune-13b',
    state: 'running',
    nodes: ['gpu-03', 'gpu-04'],
    submitted_at: NOW - 2280,
    started_at: NOW,
  });
  assert.deepEqual(after([aJob('A')], [started]), ['finetune-13b started: on gpu-03, gpu-04, after 38 m 00 s']);
  const failure = { rank: 3, node: 'n', exit_code: 1, signal: null, last_lines: [] };
  const failed = aJob('A', { name: 'train-7b', state: 'failed', exit_code: 1, failure, started_at: NOW - 2520, ended_at: NOW });
  assert.deepEqual(after([aJob('A', { state: 'running' })], [failed]), ['train-7b failed: exit 1 on rank 3, after 42 m 00 s']);
});

test('a job that came and ended between two looks is told as ended', () => {
  const done = aJob('NEW', { state: 'completed', exit_code: 0, started_at: NOW - 3, ended_at: NOW });
  assert.deepEqual(after([], [done]), ['new is done: exit 0, after 3 s']);
});

test('others are not told of, and many are told as one', () => {
  const ended = ['A', 'B', 'C', 'D'].map((id) => aJob(id, { state: id === 'A' ? 'failed' : 'completed', ended_at: NOW }));
  const before = ended.map((job) => aJob(job.id, { state: 'running' }));
  assert.deepEqual(after(before, [...ended, aJob('X', { user: 'ann', state: 'failed' })]), ['4 jobs ended, 1 failed: ']);
});
