import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as format from '../src/text/format';
import { NOW } from './given';

test('durations have two units at most', () => {
  assert.deepEqual([0, 40, 124, 3600 + 720, 3 * 86_400 + 4 * 3600 + 59, -5].map(format.duration), [
    '0 s',
    '40 s',
    '2 m 04 s',
    '1 h 12 m',
    '3 d 4 h',
    '0 s',
  ]);
  assert.deepEqual([42 * 60 + 17, 8280, 30].map(format.minutes), ['42 m', '2 h 18 m', '30 s']);
  assert.equal(format.stopwatch(2537), '00:42:17');
});

test('times are clock times, with the day when it is another one', () => {
  assert.equal(format.clock(NOW), '14:14');
  assert.equal(format.clock(NOW + 35, true), '14:14:35');
  assert.equal(format.moment(NOW + 38 * 60, NOW), '14:52');
  assert.equal(format.moment(NOW + 86_400, NOW), '18 Nov 14:14');
});

test('sizes', () => {
  assert.deepEqual(format.usedOf(58_470, 81_920), ['57.1', '80 GiB']);
  assert.deepEqual(
    [0.34, 9.96, 870.4, 999.6, 4610].map((watts) => format.kilo(watts, 'W')),
    ['0.3 W', '10.0 W', '870 W', '1000 W', '4.61 kW'],
  );
  // An A100 of 80 GB, an H100 of 80 GB, an RTX 4090 of 24 GB as NVML counts them, and a large host.
  assert.deepEqual([81_920, 81_559, 24_564, 1_536_000].map(format.mebibytes), ['80 GiB', '79.6 GiB', '24 GiB', '1.5 TiB']);
  assert.deepEqual([0, 999, 421_888, 2_202_009, 1_048_400, 5 * 2 ** 40].map(format.bytes), [
    '0 B',
    '999 B',
    '412 KiB',
    '2.1 MiB',
    '1 MiB',
    '5 TiB',
  ]);
  assert.deepEqual([format.size(2, 8), format.size(12, 12), format.size(2, 3), format.size(1, 0)], ['2×4', '12×1', '2×(3/2)', '1×0']);
  assert.equal(format.grouped(1240), '1,240');
  assert.equal(format.percent(88.6), '89 %');
});

test('places', () => {
  assert.deepEqual([1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(format.ordinal), [
    '1st',
    '2nd',
    '3rd',
    '4th',
    '11th',
    '12th',
    '13th',
    '21st',
    '102nd',
    '111th',
  ]);
  assert.equal(format.ranges([0, 1, 2, 6, 4, 5, 9, 10, 2]), '0–2, 4–6, 9, 10');
});

test('names are cut in the middle, by letters', () => {
  assert.equal(format.middle('train-long-name-v17', 11), 'train…e-v17');
  assert.equal(format.middle('short', 11), 'short');
  assert.equal(format.middle('💥💥💥💥💥', 3), '💥…💥');
});

test('what cannot be seen or turns text around is shown as such', () => {
  assert.equal(format.plain('a\u202eb\u0000c\nd'), 'a\ufffdb\ufffdc d');
  assert.equal(format.plain('a\u200bb\ud800c\u009bd'), 'a\ufffdb\ufffdc\ufffdd');
  assert.equal(format.plain(`a${'\u0301'.repeat(50)}b`), `a${'\u0301'.repeat(4)}b`);
  assert.equal(format.plain('x'.repeat(5000)).length, 4096);
  assert.equal(format.plain('<b>“ü”</b>'), '<b>“ü”</b>');
});
