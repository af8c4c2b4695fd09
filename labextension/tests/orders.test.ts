import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type IKey, isAfter, order, stepOf, target, verbOf } from '../src/model/orders';

function key(name: string, fields: Partial<IKey> = {}): IKey {
  return { key: name, altKey: false, ctrlKey: false, metaKey: false, ...fields };
}

test('arrows move between rows, with Alt they change the priority', () => {
  assert.deepEqual(
    ['ArrowUp', 'ArrowDown', 'Home', 'End', 'a'].map((name) => stepOf(key(name))),
    ['previous', 'next', 'first', 'last', null],
  );
  assert.equal(stepOf(key('ArrowUp', { altKey: true })), null);
  assert.deepEqual(
    ['ArrowUp', 'ArrowDown', 'Enter'].map((name) => verbOf(key(name, { altKey: true }))),
    ['up', 'down', null],
  );
  assert.deepEqual(
    ['Enter', 'Delete', '?', 'x'].map((name) => verbOf(key(name))),
    ['open', 'end', 'why', null],
  );
  assert.equal(verbOf(key('Delete', { ctrlKey: true })), null);
});

test('steps end at the first and the last row', () => {
  assert.deepEqual(
    [target('previous', 0, 3), target('next', 2, 3), target('next', 0, 3), target('last', 0, 3), target('first', 2, 3)],
    [0, 2, 1, 2, 0],
  );
});

test('a drop below the middle is behind, and no two lines are the same', () => {
  assert.deepEqual([isAfter(4, 0, 10), isAfter(6, 0, 10)], [false, true]);
  assert.notEqual(order('up', 'A'), order('up', 'A'));
  assert.match(order('move', 'A', 'before', 'B'), /^\d+ move A before B$/);
});
