/** What a notebook's metadata says of its jobs. Pure; what is read is hostile until it has been looked at. */

const ID = /^[A-Z0-9]{8}$/;
const MOST = 100;

export interface IRemembered {
  readonly job_id: string;
  readonly cell_id: string;
  readonly array: boolean;
}

/** The job that an output is about. */
export function jobOf(mark: unknown): { job_id: string; array: boolean } | null {
  if (typeof mark !== 'object' || mark === null) {
    return null;
  }
  const { job_id: id, array } = mark as Record<string, unknown>;
  return typeof id === 'string' && ID.test(id) ? { job_id: id, array: array === true } : null;
}

/** The metadata with one more job, newest last; null when nothing is to change. */
export function remember(before: unknown, job: IRemembered): Record<string, unknown> | null {
  const kept = typeof before === 'object' && before !== null && !Array.isArray(before) ? (before as Record<string, unknown>) : {};
  const jobs = (Array.isArray(kept.jobs) ? (kept.jobs as unknown[]) : []).filter((one) => jobOf(one) !== null);
  if (jobs.some((one) => jobOf(one)?.job_id === job.job_id)) {
    return null;
  }
  return { ...kept, jobs: [...jobs, job].slice(-MOST) };
}
