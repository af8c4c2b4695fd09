/** Lines of a log as they are shown: equal lines of several ranks once, and long stretches of one rank folded. Pure. */
import type { ILine } from './log';

export interface IShownLine {
  readonly kind: 'line';
  readonly line: ILine;
  /** All ranks that printed it. */
  readonly ranks: readonly number[];
}

export interface IFold {
  readonly kind: 'fold';
  /** The number of the first line of the stretch; the name of the fold. */
  readonly name: number;
  readonly rank: number;
  readonly count: number;
  readonly from: number | null;
  readonly to: number | null;
}

export type Shown = IShownLine | IFold;

const WINDOW = 200; // how far back an equal line of another rank is looked for
const LONG = 40;
const EDGE = 3;
export const TAIL = 200; // the last lines are never folded

/** Equal lines of ranks, once each. */
export function merged(lines: readonly ILine[]): IShownLine[] {
  const out: { kind: 'line'; line: ILine; ranks: number[] }[] = [];
  const places = new Map<string, number>();
  for (const line of lines) {
    const key = `${line.stderr} ${line.text}`;
    const place = places.get(key);
    const before = place === undefined ? undefined : out[place];
    if (before !== undefined && out.length - (place as number) <= WINDOW && !before.ranks.includes(line.rank)) {
      before.ranks.push(line.rank);
    } else {
      places.set(key, out.length);
      out.push({ kind: 'line', line, ranks: [line.rank] });
    }
  }
  return out;
}

/** The same with long stretches of one rank folded, except those that were opened and the last lines. */
export function folded(lines: readonly IShownLine[], opened: ReadonlySet<number>): Shown[] {
  const out: Shown[] = [];
  const end = lines.length - TAIL;
  let at = 0;
  while (at < lines.length) {
    const first = lines[at] as IShownLine;
    let next = at + 1;
    while (next < end && sameRank(first, lines[next] as IShownLine)) {
      next += 1;
    }
    if (next - at > LONG && !opened.has(first.line.number)) {
      const inside = lines.slice(at + EDGE, next - EDGE);
      out.push(...lines.slice(at, at + EDGE), {
        kind: 'fold',
        name: first.line.number,
        rank: first.line.rank,
        count: inside.length,
        from: inside[0]?.line.at ?? null,
        to: inside[inside.length - 1]?.line.at ?? null,
      });
      out.push(...lines.slice(next - EDGE, next));
    } else {
      out.push(...lines.slice(at, next));
    }
    at = next;
  }
  return out;
}

function sameRank(one: IShownLine, other: IShownLine): boolean {
  return one.ranks.length === 1 && other.ranks.length === 1 && one.line.rank === other.line.rank;
}
