/** What changes when a job is edited: only fields with new input. Pure. */
import type { JobChange } from '../api/types.gen';

export interface ITyped {
  readonly time: string;
  readonly priority: string;
}

/** The change to send, or the field that is invalid. A limit can be changed, but not removed. */
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

/** Seconds of `02:00:00`, `30:00` (minutes and seconds), `90` (minutes) or `1-00:00:00`; null when it is not a time. */
export function seconds(text: string): number | null {
  const found = /^(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?$/.exec(text.trim());
  if (found === null) {
    return null;
  }
  const [days, first, second, third] = [found[1], found[2], found[3], found[4]].map((one) => (one === undefined ? undefined : Number(one)));
  if (days !== undefined) {
    return days * 86_400 + (first ?? 0) * 3600 + (second ?? 0) * 60 + (third ?? 0);
  }
  const all =
    third !== undefined
      ? (first ?? 0) * 3600 + (second ?? 0) * 60 + third
      : second !== undefined
        ? (first ?? 0) * 60 + second
        : (first ?? 0) * 60;
  return all > 0 ? all : null;
}
