/** Keys and drags in a panel of a notebook (`%mgpu_panel`) as the lines that its kernel reads. Pure. */

export interface IKey {
  readonly key: string;
  readonly altKey: boolean;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
}

export type Step = 'previous' | 'next' | 'first' | 'last';
const STEPS: Readonly<Record<string, Step>> = { ArrowUp: 'previous', ArrowDown: 'next', Home: 'first', End: 'last' };
const VERBS: Readonly<Record<string, string>> = { Enter: 'open', Delete: 'end', '?': 'why' };

/** Where a key on a row moves the focus; null when it stays. */
export function stepOf(event: IKey): Step | null {
  return event.altKey || event.ctrlKey || event.metaKey ? null : (STEPS[event.key] ?? null);
}

/** The order of a key on a row; null for none. */
export function verbOf(event: IKey): string | null {
  if (event.ctrlKey || event.metaKey) {
    return null;
  }
  if (event.altKey) {
    return event.key === 'ArrowUp' ? 'up' : event.key === 'ArrowDown' ? 'down' : null;
  }
  return VERBS[event.key] ?? null;
}

/** The row after a step. */
export function target(step: Step, at: number, count: number): number {
  const found = { previous: at - 1, next: at + 1, first: 0, last: count - 1 }[step];
  return Math.min(Math.max(found, 0), count - 1);
}

/** Whether a drop is in the lower half of a row and so means after it. */
export function isAfter(y: number, top: number, height: number): boolean {
  return y > top + height / 2;
}

let count = 0;

/** A line for the kernel; its number makes it differ from the last. */
export function order(...words: readonly string[]): string {
  count += 1;
  return [String(count), ...words].join(' ');
}
