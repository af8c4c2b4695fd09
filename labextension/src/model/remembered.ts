/** The jobs in a notebook's metadata. Pure; what is read is hostile until it was checked. */

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

/** The metadata with one more job, newest last; null when nothing changes. */
export function remember(before: unknown, job: IRemembered): Record<string, unknown> | null {
  const kept = typeof before === 'object' && before !== null && !Array.isArray(before) ? (before as Record<string, unknown>) : {};
  const jobs = (Array.isArray(kept.jobs) ? (kept.jobs as unknown[]) : []).filter((one) => jobOf(one) !== null);
  if (jobs.some((one) => jobOf(one)?.job_id === job.job_id)) {
    return null;
  }
  return { ...kept, jobs: [...jobs, job].slice(-MOST) };
}

/** The cells that one of these jobs came from, as far as the notebook remembers. */
export function cellsOf(kept: unknown, ids: readonly string[]): Set<string> {
  const jobs: unknown = typeof kept === 'object' && kept !== null ? (kept as Record<string, unknown>).jobs : null;
  const cells = new Set<string>();
  for (const one of Array.isArray(jobs) ? (jobs as unknown[]) : []) {
    const cell = (one as Record<string, unknown> | null)?.cell_id;
    if (ids.includes(jobOf(one)?.job_id ?? '-') && typeof cell === 'string') {
      cells.add(cell);
    }
  }
  return cells;
}
