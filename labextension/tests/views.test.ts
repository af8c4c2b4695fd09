import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OutputFrame } from '../src/api/types.gen';
import * as edit from '../src/model/edit';
import { KEPT_LINES, Log, shown } from '../src/model/log';
import * as request from '../src/model/request';

const output = (text: string, more: Partial<OutputFrame> = {}): OutputFrame => ({
  type: 'output',
  rank: 0,
  stream: 'stdout',
  offset: 0,
  attempt: 1,
  data: Buffer.from(text).toString('base64'),
  ...more,
});

test('output becomes lines, also when a letter is cut in two', () => {
  const log = new Log();
  const bytes = Buffer.from('ä one\ntwo');
  log.take(output('', { data: bytes.subarray(0, 1).toString('base64') }));
  log.take(output('', { data: bytes.subarray(1).toString('base64'), offset: 1 }));
  log.take(output('err\n', { rank: 3, stream: 'stderr' }));
  assert.deepEqual(
    log.lines.map((line) => [line.rank, line.stderr, line.text]),
    [
      [0, false, 'ä one'],
      [3, true, 'err'],
    ],
  );
  assert.deepEqual(log.position, { offsets: `0:${bytes.length},3:4`, attempt: 1 });
  log.take({ type: 'end', job: {} as never });
  assert.equal(log.lines[2]?.text, 'two');
  assert.equal(log.over, true);
});

test('a new attempt begins anew, and says so', () => {
  const log = new Log();
  log.take(output('a\n'));
  log.take(output('b\n', { attempt: 2 }));
  assert.deepEqual(
    log.lines.map((line) => line.text),
    ['a', '— attempt 2 —', 'b'],
  );
  assert.deepEqual(log.position, { offsets: '0:2', attempt: 2 });
});

test('what is kept has a bound', () => {
  const log = new Log();
  log.take(output('x\n'.repeat(KEPT_LINES * 2)));
  assert.equal(log.lines.length + log.cut, KEPT_LINES * 2);
  assert.equal(log.lines.length <= KEPT_LINES * 1.2, true);
});

test('colours are left out, and a bar shows its last state', () => {
  assert.equal(shown('\u001b[31mred\u001b[0m'), 'red');
  assert.equal(shown('10 %\r50 %\r100 %'), '100 %');
  assert.equal(shown('done\r'), 'done');
  assert.equal(shown('\u001b]0;title\u0007text'), 'text');
  assert.equal(shown('\u001b]8;;javascript:alert(1)\u0007link\u001b]8;;\u0007 and'), 'link and');
});

test('times as people write them', () => {
  assert.deepEqual(['02:00:00', '30:00', '90', '1-00:00:00', 'soon', '', '1:2:3:4'].map(edit.seconds), [
    7200,
    1800,
    5400,
    86_400,
    null,
    null,
    null,
  ]);
});

test('a form is a job and the same flags', () => {
  const form = {
    ...request.EMPTY,
    text: 'python a.py',
    nodes: 2,
    gpus: 4,
    values: { name: "it's", gpu_type: 'H100', slurm_time: '02:00:00', distributed: 'distributed' },
  };
  assert.equal(request.flagsOf(form), `--nodes 2 --gpus-per-node 4 --gpu-type H100 --distributed -t 02:00:00 --name 'it'\\''s'`);
  assert.deepEqual(request.lineOf({ ...request.EMPTY, text: ' a && b ' }), { line: '%mgpu_srun --gpus 1 -- a && b' });
  assert.deepEqual(request.lineOf({ ...request.EMPTY, what: 'script', text: 'print(1)', values: { name: '-x' } }), {
    line: '%%mgpu_srun --gpus 1 --name=-x',
    cell: 'print(1)',
  });
  assert.equal(request.shellLine({ ...request.EMPTY, text: 'a && b' }), `mgpu_srun --gpus 1 -- 'a && b'`);
  assert.equal(request.shellLine({ ...request.EMPTY, text: `python -c 'a; b'` }), `mgpu_srun --gpus 1 -- python -c 'a; b'`);
  assert.deepEqual(['-t soon is not a time: write …', 'There is no flag -x'].map(request.isAboutTime), [true, false]);
});

test('the line of a cell is put there once, and changed after that', () => {
  assert.equal(request.withMagic('import torch', '--gpus 1'), '%%mgpu_srun --gpus 1\nimport torch');
  assert.equal(request.withMagic('%%mgpu_srun --gpus 1\nimport torch', '--gpus 2'), '%%mgpu_srun --gpus 2\nimport torch');
  assert.equal(request.magicOf('\n%%mgpu_srun --gpus 1\nx'), '%%mgpu_srun --gpus 1');
  assert.equal(request.magicOf('x\n%%mgpu_srun'), null);
});

test('only the name of a node is typed into a terminal', () => {
  assert.deepEqual(['gpu-03', 'a.b_c', 'N1'].map(request.isNodeName), [true, true, true]);
  assert.deepEqual(
    ['', '-x', 'a b', "a';id;'", 'a\u0003b', 'a\r', 'a\n', 'a\u001b]0;x\u0007', 'x'.repeat(64)].map(request.isNodeName),
    new Array(9).fill(false),
  );
});
