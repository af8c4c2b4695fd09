import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pieces } from '../src/parts/sparkline';
import { inSight } from '../src/parts/virtual';

test('a gap in the values is a gap in the line', () => {
  assert.deepEqual(pieces([0, 100, null, 50], 100, 30, 12), ['M0.0 11.0L10.0 1.0', 'M30.0 6.0']);
  assert.deepEqual(pieces([], 100, 30, 12), []);
  assert.deepEqual(pieces([200, -5], 100, 10, 12), ['M0.0 1.0L10.0 11.0']);
});

test('only rows in sight, and a few beyond, are drawn', () => {
  const tops = Array.from({ length: 1001 }, (_, index) => index * 32);
  assert.deepEqual(inSight(tops, 0, 320), [0, 14]);
  assert.deepEqual(inSight(tops, 16_000, 16_320), [496, 514]);
  assert.deepEqual(inSight(tops, 31_990, 40_000), [995, 1000]);
  assert.deepEqual(inSight([0], 0, 500), [0, 0]);
});
