/** Notices that a user asked for about a single job, beside the settings for all. Kept by the browser; pure except for that. */

export interface IWish {
  /** When it starts; undefined leaves it to the settings. */
  readonly start?: boolean;
  /** When the expected start moves: the start when that was asked for, or last reported. */
  readonly expected?: number;
}

/** Where wishes are kept. */
export interface IKeep {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

const KEY = 'mgpu:tell-me';
const MOST = 200;
export const MOVED_S = 600;

export class Wishes {
  private readonly _wishes: Map<string, IWish>;

  constructor(private readonly _keep: IKeep | null) {
    this._wishes = read(_keep);
  }

  of(job: string): IWish {
    return this._wishes.get(job) ?? {};
  }

  set(job: string, wish: IWish): void {
    this._wishes.delete(job);
    if (wish.start !== undefined || wish.expected !== undefined) {
      this._wishes.set(job, wish);
    }
    for (const oldest of this._wishes.keys()) {
      if (this._wishes.size <= MOST) {
        break;
      }
      this._wishes.delete(oldest);
    }
    try {
      this._keep?.setItem(KEY, JSON.stringify([...this._wishes]));
    } catch {
      // no space in the browser's storage: the wish holds until the page is left
    }
  }

  /** Jobs whose expected start is watched. */
  watched(): string[] {
    return [...this._wishes].flatMap(([job, wish]) => (wish.expected === undefined ? [] : [job]));
  }

  /** The start that was expected before, if it moved far enough for a notice; from then on the new one counts. */
  moved(job: string, at: number): number | null {
    const wish = this.of(job);
    if (wish.expected === undefined || Math.abs(at - wish.expected) <= MOVED_S) {
      return null;
    }
    this.set(job, { ...wish, expected: at });
    return wish.expected;
  }
}

function read(keep: IKeep | null): Map<string, IWish> {
  const out = new Map<string, IWish>();
  try {
    const kept: unknown = JSON.parse(keep?.getItem(KEY) ?? '[]');
    for (const pair of Array.isArray(kept) ? (kept as unknown[]) : []) {
      const [job, wish] = Array.isArray(pair) ? (pair as unknown[]) : [];
      if (typeof job === 'string' && typeof wish === 'object' && wish !== null) {
        const { start, expected } = wish as Record<string, unknown>;
        out.set(job, {
          ...(typeof start === 'boolean' ? { start } : {}),
          ...(typeof expected === 'number' ? { expected } : {}),
        });
      }
    }
  } catch {
    // what was kept is not JSON: start over
  }
  return out;
}
