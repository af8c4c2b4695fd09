import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Job } from '../src/api/types.gen';
import { Held, type IHeld, type IRules, isMissed, LATEST_S, type Place, QUIET_S, SHORT_S } from '../src/model/missed';
import { GATHER_S, type IEvent, type INotice, Notices, Told } from '../src/model/notices';
import { Store } from '../src/model/store';
import { english } from '../src/text/words';
import { aCluster, aJob, NOW } from './given';

const RULES: IRules = { start: true, end: true, failure: true, background: true, unseen: true, long: true, seconds: 60 };
const DONE: Partial<Job> = { state: 'completed', exit_code: 0, submitted_at: NOW - 4, started_at: NOW - 3, ended_at: NOW };
const LONG: Partial<Job> = { ...DONE, submitted_at: NOW - 61, started_at: NOW - 60 };
const FAILED: Partial<Job> = { ...DONE, state: 'failed', exit_code: 1 };

function ended(id: string, more: Partial<Job> = {}): IEvent {
  return { kind: 'ended', job: aJob(id, { ...DONE, ...more }) };
}

function started(id: string, more: Partial<Job> = {}): IEvent {
  return { kind: 'started', job: aJob(id, { state: 'running', nodes: ['gpu-03'], submitted_at: NOW - 90, started_at: NOW, ...more }) };
}

function said(notice: INotice): string {
  return `${notice.bad ? '! ' : ''}${notice.title}: ${notice.text}`;
}

/** What happens between two looks, as `kind id`. */
function between(jobs: readonly Job[], changed: readonly Job[]): string[] {
  const store = new Store();
  const notices = new Notices();
  const snapshot = store.reset(aCluster(), [], jobs);
  assert.deepEqual(notices.look(store, snapshot.jobs, true), [], 'what was so before the page was opened is no news');
  for (const job of changed) {
    store.apply({ type: 'job', seq: 1, display_key: '', job });
  }
  const ids = new Set(changed.map((job) => job.id));
  const events = notices.look(store, ids, false).map((one) => `${one.kind} ${one.job.id}`);
  assert.deepEqual(notices.look(store, ids, false), [], 'nothing happens twice');
  return events;
}

test('a job starts and ends once; one that came and ended between two looks has ended; others’ jobs are not mine', () => {
  assert.deepEqual(between([aJob('A')], [aJob('A', { state: 'running' })]), ['started A']);
  assert.deepEqual(between([aJob('A', { state: 'running' })], [aJob('A', FAILED)]), ['ended A']);
  assert.deepEqual(between([], [aJob('NEW', DONE)]), ['ended NEW']);
  assert.deepEqual(between([], [aJob('X', { user: 'ann', state: 'failed' })]), []);
});

test('only what one would miss is told', () => {
  const mine = { ...DONE, state: 'cancelled' as const, reason: 'Cancelled by me.' };
  const rows: [string, IEvent, Place, Partial<IRules>, boolean][] = [
    ['a short job in sight', ended('A'), 'seen', {}, false],
    ['one that failed in sight', ended('A', FAILED), 'seen', {}, false],
    ['out of sight', ended('A'), 'unseen', {}, true],
    ['out of sight, unwanted', ended('A'), 'unseen', { unseen: false }, false],
    ['in the background', ended('A'), 'nowhere', {}, true],
    ['in the background, unwanted', ended('A'), 'nowhere', { background: false }, false],
    ['long, in sight', ended('A', LONG), 'seen', {}, true],
    ['long, in sight, unwanted', ended('A', LONG), 'seen', { long: false }, false],
    ['not as long as is set', ended('A', LONG), 'seen', { seconds: 62 }, false],
    ['long, in an unwanted background', ended('A', LONG), 'nowhere', { background: false }, true],
    ['ends are unwanted', ended('A'), 'nowhere', { end: false }, false],
    ['failures are wanted', ended('A', FAILED), 'nowhere', { end: false }, true],
    ['failures are unwanted', ended('A', FAILED), 'nowhere', { failure: false }, false],
    ['cancelled by myself', ended('A', mine), 'nowhere', {}, false],
    ['cancelled by another', ended('A', { ...mine, reason: 'Cancelled by ann.' }), 'nowhere', {}, true],
    ['a start after a wait', started('A'), 'nowhere', {}, true],
    ['a start after a wait, in sight', started('A'), 'seen', {}, true],
    ['starts are unwanted', started('A'), 'nowhere', { start: false }, false],
    ['a start without a wait', started('A', { submitted_at: NOW - 3 }), 'nowhere', {}, false],
  ];
  for (const [what, event, place, rules, told] of rows) {
    assert.equal(isMissed(event, place, { ...RULES, ...rules }, 'me'), told, what);
  }
});

function aHeld(event: IEvent, asked = false): IHeld {
  return { event, seen: false, asked };
}

/** Ids of what comes out of what was held, by the time at which it is asked for. */
function out(held: Held, at: number, ...active: Job[]): string[] {
  const store = new Store();
  store.reset(aCluster(), [], active);
  return held.due(NOW + at, store).map((one) => `${one.event.kind} ${one.event.job.id}`);
}

test('ends that follow each other come together, and not too late', () => {
  const held = new Held();
  assert.equal(held.next(), null);
  held.add(aHeld(ended('A')), NOW);
  assert.deepEqual(out(held, QUIET_S - 0.1), []);
  held.add(aHeld(ended('B')), NOW + QUIET_S - 0.1);
  assert.deepEqual(out(held, QUIET_S), []);
  assert.equal(held.next(), NOW + 2 * QUIET_S - 0.1);
  assert.deepEqual(out(held, 2 * QUIET_S), ['ended A', 'ended B']);
  assert.equal(held.next(), null);
  for (let at = 0; at < LATEST_S; at += 1) {
    held.add(aHeld(ended(`J${at}`)), NOW + at);
  }
  assert.equal(out(held, LATEST_S).length, LATEST_S);
});

test('of a short job the start is not told', () => {
  const held = new Held();
  held.add(aHeld(started('A')), NOW);
  held.add(aHeld(started('B')), NOW);
  assert.deepEqual(out(held, SHORT_S - 1), []);
  held.add(aHeld(ended('A')), NOW + SHORT_S - 1);
  assert.deepEqual(out(held, SHORT_S), ['started B']);
  assert.deepEqual(out(held, SHORT_S + QUIET_S), ['ended A']);
  held.add(aHeld(started('C'), true), NOW);
  assert.deepEqual(out(held, QUIET_S), ['started C'], 'somebody asked for it: it does not wait');
});

test('jobs of an array are told when the last one is over', () => {
  const held = new Held();
  const last = aJob('Z', { array_id: 'ARRAY', state: 'running' });
  held.add(aHeld(ended('A', { array_id: 'ARRAY' })), NOW);
  held.add(aHeld(ended('B', { array_id: 'ARRAY' })), NOW);
  held.add(aHeld(ended('C')), NOW);
  assert.deepEqual(out(held, QUIET_S, last), ['ended C']);
  assert.equal(held.next(), null, 'nothing to look for before another job ends');
  held.add(aHeld({ kind: 'ended', job: { ...last, ...DONE } }), NOW + 50);
  assert.deepEqual(out(held, 60, { ...last, ...DONE }), ['ended A', 'ended B', 'ended Z']);
});

test('one notification says all that happened since it was put there', () => {
  const told = new Told();
  const say = (events: IEvent[], at: number, isThere: boolean): string => said(told.say(events, NOW + at, isThere, english));
  assert.equal(say([ended('A')], 0, false), '“a” is done: exit 0, after 3 s');
  assert.equal(say([ended('B')], 100, true), '2 jobs ended: “b”, “a”');
  assert.equal(say([ended('C', FAILED), ended('D')], 200, true), '! 4 jobs ended, 1 failed: “d”, “c”, “b” + 1');
  assert.equal(say([ended('E')], 300, false), '“e” is done: exit 0, after 3 s', 'the one before was closed');
  assert.equal(say([ended('F')], 300 + GATHER_S + 1, true), '“f” is done: exit 0, after 3 s', 'long ago');
});

test('a start that is still there gives way to the end of the same job', () => {
  const told = new Told();
  assert.equal(said(told.say([started('A')], NOW, false, english)), '“a” started: on gpu-03, after 1 m 30 s');
  assert.equal(said(told.say([ended('A')], NOW + 20, true, english)), '“a” is done: exit 0, after 3 s');
  const all = told.say([started('B'), ended('C', FAILED)], NOW + 30, true, english);
  assert.deepEqual(all, {
    kind: 'ended',
    bad: true,
    title: '3 jobs started or ended, 1 failed',
    text: '“c”, “b”, “a”',
    job: '',
  });
});

test('how a job ended is one sentence in quotes', () => {
  const failure = { rank: 3, node: 'n', exit_code: 1, signal: null, last_lines: [] };
  const rows: [Partial<Job>, string][] = [
    [{ ...FAILED, failure }, '! “a” failed: exit 1 on rank 3, after 3 s'],
    [{ ...FAILED, failure, started_at: null }, '! “a” failed: exit 1 on rank 3'],
    [{ ...FAILED, started_at: null }, '! “a” failed: exit 1'],
    [{ ...FAILED, exit_code: null }, '! “a” failed: after 3 s'],
    [{ ...FAILED, exit_code: null, started_at: null, reason: 'Its node was lost.' }, '! “a” failed: Its node was lost'],
    [{ ...DONE, state: 'timeout' }, '! “a” reached its time limit: after 3 s'],
    [{ ...DONE, state: 'cancelled', reason: 'Cancelled by ann.' }, '“a” was cancelled: Cancelled by ann'],
    [{ ...DONE, state: 'cancelled', reason: '' }, '“a” was cancelled: after 3 s'],
    [{ ...DONE, name: 'x'.repeat(80) }, `“${'x'.repeat(30)}…${'x'.repeat(29)}” is done: exit 0, after 3 s`],
  ];
  for (const [more, text] of rows) {
    assert.equal(said(new Told().say([ended('A', more)], NOW, false, english)), text);
  }
  const two = started('A', { started_at: null, nodes: ['gpu-03', 'gpu-04'] });
  assert.equal(said(new Told().say([two], NOW, false, english)), '“a” started: on gpu-03, gpu-04');
});
