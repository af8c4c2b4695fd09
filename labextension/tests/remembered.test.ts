import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cellsOf, jobOf, remember } from '../src/model/remembered';

const job = (id: string): { job_id: string; cell_id: string; array: boolean } => ({ job_id: id, cell_id: 'c', array: false });

test('only what is an id is taken from an output', () => {
  assert.deepEqual(jobOf({ job_id: 'K7P2M9QX' }), { job_id: 'K7P2M9QX', array: false });
  assert.deepEqual(jobOf({ job_id: 'K7P2M9QX', array: true }), { job_id: 'K7P2M9QX', array: true });
  for (const hostile of [null, 7, 'K7P2M9QX', {}, { job_id: '<script>' }, { job_id: 'k7p2m9qx' }, { job_id: ['K7P2M9QX'] }]) {
    assert.equal(jobOf(hostile), null);
  }
});

test('a job is remembered once, newest last, a hundred at most', () => {
  assert.deepEqual(remember(undefined, job('AAAAAAAA')), { jobs: [job('AAAAAAAA')] });
  assert.equal(remember({ jobs: [job('AAAAAAAA')] }, job('AAAAAAAA')), null);
  let kept: unknown = { other: 1, jobs: 'hostile' };
  for (let number = 0; number < 120; number += 1) {
    kept = remember(kept, job(`A${String(number).padStart(7, '0')}`)) ?? kept;
  }
  const { jobs, other } = kept as { jobs: { job_id: string }[]; other: number };
  assert.equal(other, 1);
  assert.equal(jobs.length, 100);
  assert.equal(jobs[99]?.job_id, 'A0000119');
});

test('the cells of jobs are found, whatever else is written there', () => {
  const kept = {
    jobs: [{ ...job('AAAAAAAA'), cell_id: 'one' }, { ...job('BBBBBBBB'), cell_id: 'two' }, null, 7, { job_id: 'AAAAAAAA', cell_id: 8 }],
  };
  assert.deepEqual(cellsOf(kept, ['AAAAAAAA', '']), new Set(['one']));
  assert.deepEqual(cellsOf(kept, ['CCCCCCCC', 'BBBBBBBB']), new Set(['two']));
  for (const hostile of [undefined, null, 7, 'jobs', { jobs: 'x' }, []]) {
    assert.deepEqual(cellsOf(hostile, ['AAAAAAAA']), new Set());
  }
});
