/** How many GPUs ended jobs really used: fetched once for each of the newest, a few at a time, and remembered. */
import * as React from 'react';
import type { Job } from '../api/types.gen';
import { useMgpu } from '../parts/hooks';

const NEWEST = 30;
const AT_ONCE = 3;
const known = new Map<string, number | null>();
const KEPT = 1000;

export function useUsed(jobs: readonly Job[]): ReadonlyMap<string, number | null> {
  const { client } = useMgpu();
  const [, rise] = React.useReducer((count: number) => count + 1, 0);
  const wanted = jobs.slice(0, NEWEST).filter((job) => job.gpus > 0 && job.started_at !== null && !known.has(job.id));
  const key = wanted.map((job) => job.id).join(' ');
  React.useEffect(() => {
    let over = false;
    const ids = key.split(' ').filter(Boolean);
    const next = async (): Promise<void> => {
      for (let id = ids.shift(); id !== undefined && !over; id = ids.shift()) {
        const usage = await client.usage(id, 1).catch(() => null);
        if (known.size >= KEPT) {
          known.clear();
        }
        known.set(id, usage?.used ?? null);
      }
    };
    void Promise.all(Array.from({ length: AT_ONCE }, next)).then(() => {
      if (!over && key !== '') {
        rise();
      }
    });
    return () => {
      over = true;
    };
  }, [client, key]);
  return known;
}
