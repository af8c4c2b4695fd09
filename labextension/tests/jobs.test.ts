import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FLAGS } from '../src/api/flags.gen';
import { changeOf } from '../src/model/edit';
import { folded, merged, TAIL } from '../src/model/folds';
import type { ILine } from '../src/model/log';
import { priorityFor, priorityOneStep } from '../src/model/priority';
import { bodyOf, EMPTY, filled, flagOf, flagsOf, hasVariables, ON, otherSizes, problemsOf, withoutVariables } from '../src/model/request';
import { holders, isSlow, jobPower, nodeRow } from '../src/model/select';
import { Store } from '../src/model/store';
import { piecesOf, placedAt } from '../src/model/way';
import { askedLine, english, failureText } from '../src/text/words';

import { aCluster, aGpu, aJob, aNode, NOW } from './given';

const line = (number: number, rank: number, text: string, at: number | null = null): ILine => ({ number, rank, stderr: false, text, at });

test('what ranks say alike stands once', () => {
  const lines = [line(0, 0, 'nccl up'), line(1, 0, 'step 1'), line(2, 1, 'nccl up'), line(3, 1, 'other'), line(4, 0, 'nccl up')];
  assert.deepEqual(
    merged(lines).map((one) => [one.line.text, one.ranks]),
    [
      ['nccl up', [0, 1]],
      ['step 1', [0]],
      ['other', [1]],
      ['nccl up', [0]],
    ],
  );
});

test('long stretches of one rank are folded, but not the end, and open again', () => {
  const lines = merged(Array.from({ length: 100 + TAIL }, (_, number) => line(number, 0, `line ${number}`, NOW + number)));
  const shown = folded(lines, new Set());
  assert.equal(shown.length, TAIL + 7);
  assert.deepEqual(shown[3], { kind: 'fold', name: 0, rank: 0, count: 94, from: NOW + 3, to: NOW + 96 });
  assert.equal(folded(lines, new Set([0])).length, lines.length);
  assert.equal(folded(lines.slice(0, 90), new Set()).length, 90);
});

test('priorities that move a job in the queue', () => {
  const queue = [aJob('A', { priority: 5 }), aJob('B', { priority: 0 }), aJob('C', { priority: 0 }), aJob('D', { priority: 0 })];
  assert.equal(priorityFor(queue, 'D', 1), 1);
  assert.equal(priorityFor(queue, 'D', 0), 6);
  assert.equal(priorityFor(queue, 'A', 4), -1);
  assert.equal(priorityFor(queue, 'A', 0), null);
  assert.equal(priorityFor(queue, 'A', 1), null);
  assert.equal(priorityFor(queue, 'nobody', 0), null);
  assert.equal(priorityOneStep(queue, queue[1] as never, true), 6);
  assert.equal(priorityOneStep(queue, queue[1] as never, false), -1);
  assert.equal(priorityOneStep(queue, queue[0] as never, true), 6);
  assert.equal(priorityOneStep(queue, queue[3] as never, false), -1);
});

test('all fields of the form reach the job and the line', () => {
  const values = {
    distributed: 'distributed',
    exclusive: ON,
    policy: 'topology',
    exclude: 'gpu-06 gpu-07',
    slurm_time: '02:00:00',
    name: 'it is',
    env_setup_cmd: 'source ~/venv/bin/activate',
    env: 'A=1\n B = 2=3\n',
    inputs: 'cfg, tokens',
    outputs: 'scores',
    retries: '2',
    dependency: 'afterok:K7P2M9QX',
    array: '1-10%2',
  };
  const form = { ...EMPTY, text: 'python a.py', values };
  assert.deepEqual(problemsOf(form), { env: 'B ' });
  const good = { ...form, ...filled(form, 'env', 'A=1\nB=2=3\n'), flags: ' --debug ' };
  assert.deepEqual(problemsOf(good), {});
  assert.deepEqual(problemsOf({ ...EMPTY, values: { slurm_time: 'soon', env: 'A' } }), { env: 'A' });
  // The same as tests/notebook/test_panel_form.py expects of the panel.
  assert.equal(
    flagsOf(good),
    '--gpus 1 --distributed --exclusive --exclude gpu-06,gpu-07 --policy topology -t 02:00:00 --dependency afterok:K7P2M9QX --array 1-10%2 ' +
      "--name 'it is' --env A=1 --env B=2=3 --retries 2 --env-setup-cmd 'source ~/venv/bin/activate' --in cfg,tokens --out scores --debug",
  );
  assert.deepEqual([hasVariables(good), hasVariables(withoutVariables(good))], [true, false]);
  assert.deepEqual(
    FLAGS.filter((flag) => flagOf(flag.dest) !== flag),
    [],
  );
  assert.deepEqual(
    ['name', 'nodes', 'gpus_per_node', 'gpu_type', 'slurm_time'].map((dest) => flagOf(dest).dest),
    ['name', 'nodes', 'gpus_per_node', 'gpu_type', 'slurm_time'],
  );
  assert.equal(bodyOf('%%mgpu_srun --gpus 1\nimport torch'), 'import torch');
  assert.equal(bodyOf('import torch'), 'import torch');
});

test('other sizes are near, whole, and fit a node', () => {
  const sizes = (nodes: number, gpus: number): string[] =>
    otherSizes({ ...EMPTY, nodes, gpus }, 8).map((one) => `${one.nodes}x${one.gpus}`);
  assert.deepEqual(sizes(2, 2), ['2x1', '1x2', '1x4', '4x1']);
  assert.deepEqual(sizes(1, 1), ['1x2', '2x1']);
  assert.deepEqual(sizes(1, 8), ['1x4', '2x4', '2x8']);
});

test('who has the GPUs of a node', () => {
  const held = { state: 'held' as const, job_id: 'J', user: 'user1' };
  const node = aNode('n', [aGpu(0, held), aGpu(1, held), aGpu(2), aGpu(3, { state: 'unhealthy', reason: '12 memory errors' })]);
  assert.deepEqual(
    holders(nodeRow(node, undefined, 'me')).map((one) => [one.state, one.job, one.gpus, one.reason]),
    [
      ['others', 'J', [0, 1], ''],
      ['free', null, [2], ''],
      ['unhealthy', null, [3], '12 memory errors'],
    ],
  );
});

test('power of a job, each GPU once', () => {
  const store = new Store();
  store.reset(aCluster(), [aNode('n', [aGpu(0, { power_w: 200 }), aGpu(1, { power_w: 300 })])], []);
  const placement = { node: 'n', gpu_indices: [0, 1] } as never;
  assert.equal(jobPower(store, aJob('J', { placements: [placement, placement] })), 500);
  assert.equal(jobPower(store, aJob('J')), null);
});

test('what was asked for, and what failed first', () => {
  const store = new Store();
  store.reset(aCluster(), [], []);
  const job = aJob('J', { nodes_wanted: 2, gpus: 8, time_limit_s: 7200, submitted_at: NOW - 180 });
  assert.equal(askedLine(job, store, NOW, english), '2 nodes × 4 GPUs, 2 h limit, submitted 14:11 by me');
  const failure = { rank: 3, node: 'gpu-01', exit_code: 1, signal: null, last_lines: [] };
  assert.equal(failureText(failure, english), 'rank 3 on gpu-01 ended first, exit 1');
  assert.equal(failureText({ ...failure, exit_code: null, signal: 9 }, english), 'rank 3 on gpu-01 was killed by signal 9');
});

test('the way of a job, piece by piece', () => {
  const texts = (job: ReturnType<typeof aJob>, placed: number | null): string[] =>
    piecesOf(job, placed, NOW, english).map((one) => `${one.mark}: ${one.text}`);
  const times = { submitted_at: NOW - 200, started_at: NOW - 100, time_limit_s: 3600 };
  const running = aJob('J', { state: 'running', ...times, placements: [{}, {}] as never });
  assert.deepEqual(texts(running, NOW - 110), [
    'submitted: Queued 1 m 30 s',
    'placed: Starting 10 s',
    'all 2 ranks up: Running 1 m 40 s',
    'now: Left until the time limit 58 m 20 s',
  ]);
  assert.deepEqual(texts(aJob('J', { submitted_at: NOW - 5 }), null), ['submitted: Queued 5 s']);
  assert.deepEqual(texts(aJob('J', { state: 'completed', ...times, ended_at: NOW - 40 }), null), [
    'submitted: Queued 1 m 40 s',
    'started: Ran 1 m 00 s',
  ]);
  assert.equal(placedAt([{ attempt: 2, planned_at: 7 } as never], 2), 7);
  assert.equal(placedAt(undefined, 1), null);
});

test('a GPU that is much less busy than the others is marked', () => {
  const gpus = [94, 91, 58, 93].map((busy_mean) => ({ busy_mean }) as never);
  assert.deepEqual(
    gpus.map((gpu) => isSlow(gpu, gpus)),
    [false, false, true, false],
  );
  assert.equal(isSlow(gpus[2] as never, gpus.slice(2)), false);
});

test('editing a job changes what was typed anew', () => {
  const before = { time: '01:00:00', priority: '3' };
  const change = (more: Partial<typeof before>) => changeOf(before, { ...before, ...more });
  assert.deepEqual([{}, { time: ' 02:00:00 ' }, { priority: '-7' }, { time: '90', priority: '0' }].map(change), [
    {},
    { time_limit_s: 7200 },
    { priority: -7 },
    { time_limit_s: 5400, priority: 0 },
  ]);
  assert.deepEqual(
    [{ time: 'soon' }, { time: '' }, { time: '0' }, { priority: 'high' }, { priority: '1.5' }, { time: 'x', priority: 'y' }].map(change),
    ['time', 'time', 'time', 'priority', 'priority', 'time'],
  );
  assert.deepEqual(changeOf({ time: '', priority: '0' }, { time: '', priority: '1' }), { priority: 1 });
});
