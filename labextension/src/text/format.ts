/** Numbers, times and sizes as text, in one way everywhere. Pure; the only clock is the argument. */

/** 40 s · 2 m 04 s · 1 h 12 m · 3 d 4 h. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) {
    return `${whole} s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
  }
  if (whole < 86_400) {
    return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} m`;
  }
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** The same in whole minutes, for rows that must not change every second: 42 m · 2 h 18 m. */
export function minutes(seconds: number): string {
  return seconds >= 3600 || seconds < 60 ? duration(seconds) : `${Math.floor(seconds / 60)} m`;
}

/** 00:42:17, for running clocks. */
export function stopwatch(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  return `${two(Math.floor(whole / 3600))}:${two(Math.floor((whole % 3600) / 60))}:${two(whole % 60)}`;
}

/** 14:52, and 14:13:35 when seconds count. */
export function clock(at: number, seconds = false): string {
  const date = new Date(at * 1000);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return seconds ? `${text}:${two(date.getSeconds())}` : text;
}

/** 14:52 today, 17 Nov 14:52 on other days. */
export function moment(at: number, now: number): string {
  const date = new Date(at * 1000);
  if (date.toDateString() === new Date(now * 1000).toDateString()) {
    return clock(at);
  }
  return `${date.getDate()} ${MONTHS[date.getMonth()]} ${clock(at)}`;
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const MIB = 2;

/** 512 B, 1.5 KiB, 412 MiB, 79.6 GiB, 80 GiB: units of 1024, as GPUs are sold and `nvidia-smi` counts; `from` names the unit given. */
function counted(count: number, from: number): [string, number] {
  let value = count;
  let unit = from;
  while (value >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const text = value >= 99.95 ? value.toFixed(0) : value.toFixed(1);
  return [text.replace(/\.0$/, ''), unit];
}

/** A number of bytes. */
export function bytes(count: number): string {
  const [text, unit] = counted(count, 0);
  return `${text} ${UNITS[unit]}`;
}

/** A number of MiB, in which memory is told. */
export function mebibytes(mib: number): string {
  const [text, unit] = counted(mib, MIB);
  return `${text} ${UNITS[unit]}`;
}

/** What is used and the whole, in the unit of the whole: 57.1 and 80 GiB. */
export function usedOf(usedMib: number, totalMib: number): [string, string] {
  const [, unit] = counted(totalMib, MIB);
  return [(usedMib / 1024 ** (unit - MIB)).toFixed(1), mebibytes(totalMib)];
}

/** 89 %. */
export function percent(value: number): string {
  return `${Math.round(value)} %`;
}

/** 1,240. */
export function grouped(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** 1st, 2nd, 3rd, 4th, 11th, 21st. */
export function ordinal(place: number): string {
  const tens = place % 100;
  const ending = tens >= 11 && tens <= 13 ? 'th' : (['th', 'st', 'nd', 'rd'][place % 10] ?? 'th');
  return `${place}${ending}`;
}

/** Nodes × GPUs on each: 2×4; the total where it does not divide. */
export function size(nodes: number, gpus: number): string {
  return nodes > 0 && gpus % nodes === 0 ? `${nodes}×${gpus / nodes}` : `${nodes}×(${gpus}/${nodes})`;
}

/** Cut in the middle, so that both ends of a name are visible: train-…-v17. */
export function middle(text: string, most: number): string {
  const letters = Array.from(text);
  if (letters.length <= most) {
    return text;
  }
  const tail = Math.floor((most - 1) / 2);
  return `${letters.slice(0, most - 1 - tail).join('')}…${letters.slice(letters.length - tail).join('')}`;
}

/** 870 W, 4.61 kW. */
export function kilo(value: number, unit: string): string {
  return value < 1000 ? `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}` : `${(value / 1000).toFixed(2)} k${unit}`;
}

/** 0–3, 6 of [0, 1, 2, 3, 6]. */
export function ranges(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let start = 0; start < sorted.length; ) {
    let end = start;
    while (end + 1 < sorted.length && sorted[end + 1] === (sorted[end] as number) + 1) {
      end += 1;
    }
    parts.push(end === start ? String(sorted[start]) : `${sorted[start]}${end === start + 1 ? ', ' : '–'}${sorted[end]}`);
    start = end + 1;
  }
  return parts.join(', ');
}

/** The longest value that is shown; no value is useful beyond that. */
const VALUE_CHARS = 4096;
/** More marks on one letter than any script needs would paint over the lines around it. */
const BOMBS = /(\p{M}{4})\p{M}+/gu;
const BREAKS = /[\t-\r\u0085\u00a0\u2028\u2029]/g;
/** Control characters, those that turn the direction of text, those without a width or a shape, and halves of characters. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\u115f\u1160\u2800\u3164\uffa0]/gu;

/** Text that somebody else wrote, made harmless on one line: spaces for line breaks, a sign for invisible characters, limited length. */
export function plain(text: string): string {
  const cut = text.length > VALUE_CHARS ? `${text.slice(0, VALUE_CHARS - 1)}…` : text;
  return cut.replace(BOMBS, '$1').replace(BREAKS, ' ').replace(UNSEEN, '\ufffd');
}

function two(value: number): string {
  return String(value).padStart(2, '0');
}
