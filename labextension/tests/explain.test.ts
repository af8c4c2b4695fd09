import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Explanation, Offer } from '../src/api/types.gen';
import { moved } from '../src/model/notices';
import { planOf, ticksOf } from '../src/model/plan';
import { Store } from '../src/model/store';
import { Wishes } from '../src/model/wishes';
import { clock } from '../src/text/format';
import * as reasons from '../src/text/reasons';
import { english } from '../src/text/words';
import { aCluster, aGpu, aJob, aNode, NOW } from './given';

const AT = NOW + 38 * 60;

function anAnswer(more: Partial<Explanation> = {}): Explanation {
  return {
    verdict: 'not_now',
    code: 'busy',
    text: 'Not now: waits for 4 GPUs free on each of 2 nodes: gpu-04 has 3.',
    job_id: 'OWN',
    where: [],
    units: [],
    place: 2,
    ahead_count: 1,
    ahead: [{ job_id: 'FIRST', user: 'user1', gpus: 32, priority: 1240 }],
    terms: [],
    priority: 1105,
    expected: { at: AT, promised: false, later_than: null },
    plan: [
      { job_id: 'OWN', nodes: ['gpu-03', 'gpu-04'], start_at: AT, end_at: AT + 7200 },
      { job_id: 'SWEEP', nodes: ['gpu-03'], start_at: null, end_at: AT },
      { job_id: 'SMALL', nodes: ['gpu-04'], start_at: null, end_at: AT - 600 },
      { job_id: 'XL', nodes: ['gpu-01'], start_at: null, end_at: AT + 8400 },
      { job_id: 'FIRST', nodes: ['gpu-01', 'gpu-03'], start_at: AT + 8400, end_at: AT + 99_999 },
    ],
    offers: [],
    history: [],
    ...more,
  };
}

function aStore(): Store {
  const store = new Store();
  const jobs = [
    aJob('OWN', { name: 'finetune-13b', gpus: 8, nodes_wanted: 2 }),
    aJob('SWEEP', { name: 'eval-sweep', user: 'user2', state: 'running', time_limit_s: 7200 }),
    aJob('SMALL', { name: 'diffusion', user: 'user3', state: 'running', time_limit_s: null }),
    aJob('FIRST', { name: 'pretrain-xl-2', user: 'user1', expected_start_at: AT + 8400 }),
  ];
  store.reset(aCluster(), [aNode('gpu-03'), aNode('gpu-04')], jobs);
  return store;
}

test('the plan has a lane for each node, and bars that follow each other', () => {
  const plan = planOf(anAnswer(), NOW);
  assert.deepEqual(
    plan?.lanes.map((lane) => [lane.node, lane.bars.map((bar) => [bar.kind, bar.jobs[0], bar.from - NOW, bar.to - NOW])]),
    [
      [
        'gpu-01',
        [
          ['held', 'XL', 0, 10_680],
          ['waiting', 'FIRST', 10_680, 11_400],
        ],
      ],
      [
        'gpu-03',
        [
          ['held', 'SWEEP', 0, 2280],
          ['this', 'OWN', 2280, 9480],
          ['waiting', 'FIRST', 10_680, 11_400],
        ],
      ],
      [
        'gpu-04',
        [
          ['held', 'SMALL', 0, 1680],
          ['this', 'OWN', 2280, 9480],
        ],
      ],
    ],
  );
  assert.equal(planOf(anAnswer({ plan: [] }), NOW), null);
});

test('what nothing ends is drawn to the edge, and up to the start where the job follows', () => {
  const plan = planOf(
    anAnswer({
      plan: [
        { job_id: 'OWN', nodes: ['a'], start_at: NOW + 60, end_at: null },
        { job_id: 'X', nodes: ['a', 'b'], start_at: null, end_at: null },
      ],
    }),
    NOW,
  );
  const [a, b] = plan?.lanes.map((lane) => lane.bars) ?? [];
  assert.deepEqual([a?.[0]?.to, a?.[0]?.open, a?.[1]?.open], [NOW + 60, true, true]);
  assert.equal(b?.[0]?.to, plan?.to);
});

test('marks of time are round, and not too many', () => {
  const ticks = ticksOf(NOW, NOW + 3 * 3600);
  assert.deepEqual(
    ticks.map((at) => clock(at)),
    ['14:30', '15:00', '15:30', '16:00', '16:30', '17:00'],
  );
  assert.equal(ticksOf(NOW, NOW + 400 * 86_400).length <= 15, true);
});

test('when, why and how sure in sentences', () => {
  const store = aStore();
  const answer = anAnswer();
  assert.equal(reasons.headline(answer, NOW, english), 'Starts at about 14:52, in 38 minutes, on gpu-03 and gpu-04.');
  assert.equal(reasons.reasonText(answer), 'Waits for 4 GPUs free on each of 2 nodes: gpu-04 has 3.');
  const last = reasons.inTheWay(answer, store, NOW, english);
  assert.equal(
    `${last?.before}${last?.job.name}${last?.after}`,
    'At 14:52 the last job in the way, eval-sweep of user2, reaches its time limit.',
  );
  assert.equal(
    reasons.backfill(anAnswer(), store, NOW, english),
    'Starts before place 1: it ends by 16:52, before pretrain-xl-2 can have its 32 GPUs at 17:12.',
  );
  assert.match(reasons.howSure(answer, store, english), /latest start .* diffusion has no time limit: its end is a guess\.$/);
  assert.match(
    reasons.howSure(anAnswer({ expected: { at: AT, promised: true, later_than: null } }), store, english),
    /Nobody who comes later/,
  );
  assert.equal(reasons.nodeWhen(answer, 'gpu-03', store, NOW, english), '14:52, when eval-sweep ends');
  assert.equal(reasons.nodeWhen(answer, 'gpu-09', store, NOW, english), '');
});

test('first lines of all verdicts', () => {
  const line = (more: Partial<Explanation>): string => reasons.headline(anAnswer({ plan: [], ...more }), NOW, english);
  assert.equal(line({ verdict: 'now', where: [{ node: 'a', gpus: [0] }] }), 'Starts now on a.');
  assert.equal(line({ verdict: 'never' }), 'Can never start here.');
  assert.equal(line({ expected: { at: null, promised: false, later_than: null } }), 'Start not known.');
  assert.equal(line({ expected: { at: null, promised: false, later_than: AT } }), 'Starts later than 14:52.');
  assert.equal(line({ expected: { at: NOW + 1, promised: false, later_than: null } }), 'Starts at about 14:14, in 1 second.');
});

test('an offer says its size, where, and what it costs', () => {
  const offer: Offer = {
    text: '2 nodes × 2 GPUs instead of 2 × 4',
    flags: ['--gpus-per-node 2'],
    patch: { gpus_per_node: 2 },
    where: [
      { node: 'gpu-03', gpus: [0, 1] },
      { node: 'gpu-04', gpus: [0, 1] },
    ],
  };
  const { nodes } = aStore();
  const job = aJob('OWN', { gpus: 8 });
  assert.deepEqual(reasons.offerWords(offer, job, nodes, english), { title: '2 × 2 H100', cost: 'gpu-03 and gpu-04. Half the GPUs.' });
  const limit = { ...offer, text: 'a limit of 1 h', patch: { time_limit_s: 3600 } };
  assert.deepEqual(reasons.offerWords(limit, job, nodes, english), { title: 'a limit of 1 h', cost: 'gpu-03 and gpu-04.' });
  const simulated = new Map([['gpu-03', aNode('gpu-03', [aGpu(0, { name: 'Simulated GPU', simulated: true })])]]);
  const one = { ...offer, where: [{ node: 'gpu-03', gpus: [0] }] };
  assert.deepEqual(reasons.offerWords(one, job, simulated, english), { title: '1 × 1 GPUs', cost: 'gpu-03. 1 of 8 GPUs.' });
  assert.equal(reasons.goneText(offer, english), 'gpu-03 was taken meanwhile. Here are the offers that hold now.');
  assert.equal(reasons.whereText(offer.where, english), 'gpu-03 (GPUs 0, 1) and gpu-04 (GPUs 0, 1)');
});

test('wishes are kept, bounded, and hostile storage is not believed', () => {
  const kept = new Map<string, string>();
  const keep = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value) };
  const wishes = new Wishes(keep);
  wishes.set('A', { start: false });
  wishes.set('B', { expected: 100 });
  assert.deepEqual(new Wishes(keep).of('A'), { start: false });
  assert.deepEqual(new Wishes(keep).watched(), ['B']);
  wishes.set('B', {});
  assert.deepEqual(new Wishes(keep).watched(), []);
  for (let number = 0; number < 500; number += 1) {
    wishes.set(`J${number}`, { start: true });
  }
  assert.equal((JSON.parse([...kept.values()][0] ?? '') as unknown[]).length, 200);
  for (const text of ['nonsense', '{}', '[1, ["A"], ["A", null], ["A", {"start": "yes", "expected": "soon"}]]']) {
    assert.deepEqual(new Wishes({ ...keep, getItem: () => text }).of('A'), {});
  }
});

test('a start that moves far is told once, to those who asked', () => {
  const store = aStore();
  const wishes = new Wishes(null);
  assert.deepEqual(moved(store, wishes, NOW, english), []);
  wishes.set('FIRST', { expected: AT + 8400 - 700 });
  assert.deepEqual(moved(store, wishes, NOW, english), [
    { kind: 'moved', bad: false, title: '“pretrain-xl-2” is expected at 17:12', text: '11 m 40 s later', job: 'FIRST' },
  ]);
  assert.deepEqual(moved(store, wishes, NOW, english), []);
});
