/** What changes when a job is edited: only what was typed anew. Pure. */
import type { JobChange } from '../api/types.gen';
import { seconds } from './request';

export interface ITyped {
  readonly time: string;
  readonly priority: string;
}

/** What to ask the server for, or the field that makes no sense. A limit can be changed, not taken away. */
export function changeOf(before: ITyped, typed: ITyped): JobChange | keyof ITyped {
  const time = typed.time.trim();
  const priority = typed.priority.trim();
  const limit = seconds(time);
  if (time !== before.time && limit === null) {
    return 'time';
  }
  if (priority !== before.priority && !/^-?\d+$/.test(priority)) {
    return 'priority';
  }
  return {
    ...(time === before.time ? {} : { time_limit_s: limit }),
    ...(priority === before.priority ? {} : { priority: Number(priority) }),
  };
}
