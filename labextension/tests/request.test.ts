import assert from 'node:assert/strict';
import { test } from 'node:test';
import { address, RequestError, Rest } from '../src/api/request';

const answering = (status: number, body: string): { rest: Rest; asked: [string, RequestInit][] } => {
  const asked: [string, RequestInit][] = [];
  const rest = new Rest('http://lab/base/', async (url, init) => {
    asked.push([url, init]);
    return new Response(body, { status });
  });
  return { rest, asked };
};

test('addresses', () => {
  assert.equal(
    address('http://lab/base/', 'jobs', { state: 'active', cursor: undefined, name: 'a&b=ü' }),
    'http://lab/base/mgpu/api/v1/jobs?state=active&name=a%26b%3D%C3%BC',
  );
  assert.equal(address('http://lab', 'cluster'), 'http://lab/mgpu/api/v1/cluster');
});

test('a body is JSON, and an answer is returned', async () => {
  const { rest, asked } = answering(201, '{"job_id": "A"}');
  assert.deepEqual(await rest.ask('POST', 'jobs', { body: { gpus: 1 }, headers: { 'Idempotency-Key': 'k' } }), { job_id: 'A' });
  assert.equal(asked[0]?.[1].body, '{"gpus":1}');
  assert.deepEqual(asked[0]?.[1].headers, { 'Content-Type': 'application/json', 'Idempotency-Key': 'k' });
});

test('a refusal speaks in the words of the server', async () => {
  const { rest } = answering(403, '{"code": "forbidden", "message": "Only ann can cancel this job.", "details": {"user": "ann"}}');
  await assert.rejects(rest.ask('POST', 'jobs/A/cancel'), (error: unknown) => {
    assert.ok(error instanceof RequestError);
    assert.deepEqual(
      [error.status, error.code, error.message, error.details],
      [403, 'forbidden', 'Only ann can cancel this job.', { user: 'ann' }],
    );
    assert.equal(error.isUnreachable || error.isSignedOut, false);
    return true;
  });
});

test('what is no answer of ours is told apart', async () => {
  const silent = new Rest('http://lab/', async () => {
    throw new TypeError('failed to fetch');
  });
  await assert.rejects(
    silent.get('cluster'),
    (error: unknown) => error instanceof RequestError && error.isUnreachable && error.status === 0,
  );
  await assert.rejects(
    answering(502, '<html>').rest.get('cluster'),
    (error: unknown) => error instanceof RequestError && error.isUnreachable,
  );
  await assert.rejects(answering(401, '').rest.get('cluster'), (error: unknown) => error instanceof RequestError && error.isSignedOut);
  await assert.rejects(
    answering(200, '<html>').rest.get('cluster'),
    (error: unknown) => error instanceof RequestError && error.code === 'bad-answer',
  );
});
