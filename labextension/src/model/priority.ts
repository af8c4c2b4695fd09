/** Which priority moves a job to a place in the queue. Pure. A step of priority outweighs everything else, so one is enough. */
import type { Job } from '../api/types.gen';
import type { Store } from './store';

/** Waiting jobs, in order. */
export function waiting(store: Store): Job[] {
  return store.queue.flatMap((id) => {
    const job = store.jobs.get(id);
    return job?.state === 'queued' ? [job] : [];
  });
}

/** The priority that puts a job before the one at `before` (their number for the end); null when it is there already. */
export function priorityFor(queue: readonly Job[], id: string, before: number): number | null {
  const from = queue.findIndex((job) => job.id === id);
  const own = queue[from];
  if (own === undefined || before === from || before === from + 1) {
    return null;
  }
  const above = queue[before - 1];
  const below = queue[before];
  const up = before < from;
  // jobs of one priority are ordered by age and share: one step passes all of them
  const wanted = up ? (below as Job).priority + 1 : (above as Job).priority - 1;
  const fits = up ? Math.max(own.priority, wanted) : Math.min(own.priority, wanted);
  return fits === own.priority ? null : fits;
}

/** The priority with which a job passes its neighbour; at the end of the order, one step further. */
export function priorityOneStep(queue: readonly Job[], job: Job, up: boolean): number {
  const at = queue.findIndex((one) => one.id === job.id);
  const target = up ? at - 1 : at + 2;
  const moved = at >= 0 && target >= 0 && target <= queue.length ? priorityFor(queue, job.id, target) : null;
  return moved ?? job.priority + (up ? 1 : -1);
}
