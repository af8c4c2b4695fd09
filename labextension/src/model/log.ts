/** The output of a job as lines, from frames of its stream. Pure. Knows where to continue after a break. */
import type { StreamJobFrame } from '../api/types.gen';

export const KEPT_LINES = 20_000;
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences of terminals begin with one
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

export interface ILine {
  readonly number: number;
  readonly rank: number;
  readonly stderr: boolean;
  readonly text: string;
  /** When it arrived here; null for what was there before the log was opened: output has no times of its own. */
  readonly at: number | null;
}

interface IOpen {
  readonly decoder: TextDecoder;
  text: string;
}

export class Log {
  /** Whole lines, oldest first. */
  lines: readonly ILine[] = [];
  /** Lines that are not kept here any more. */
  cut = 0;
  bytes = 0;
  over = false;
  version = 0;
  readonly ranks = new Set<number>();
  /** Lines on stderr, by rank. */
  readonly errors = new Map<number, number>();
  private _attempt = 0;
  private _count = 0;
  private _at: number | null = null;
  private readonly _offsets = new Map<number, number>();
  private readonly _open = new Map<string, IOpen>();

  /** What to ask for when the stream is opened again. */
  get position(): { offsets?: string; attempt?: number } {
    if (this._offsets.size === 0) {
      return {};
    }
    return { offsets: [...this._offsets].map(([rank, offset]) => `${rank}:${offset}`).join(','), attempt: this._attempt };
  }

  take(frame: StreamJobFrame, at: number | null = null): void {
    this._at = at;
    switch (frame.type) {
      case 'output': {
        if (frame.attempt !== this._attempt) {
          if (this._attempt !== 0) {
            this._add(frame.rank, false, `— attempt ${frame.attempt} —`);
          }
          this._attempt = frame.attempt;
          this._offsets.clear();
          this._open.clear();
        }
        const data = Uint8Array.from(atob(frame.data), (letter) => letter.charCodeAt(0));
        this.ranks.add(frame.rank);
        this.bytes += data.length;
        this._offsets.set(frame.rank, frame.offset + data.length);
        this._text(frame.rank, frame.stream === 'stderr', data);
        break;
      }
      case 'gap':
        this._add(frame.rank, true, frame.message);
        break;
      case 'end':
        this.over = true;
        for (const [key, open] of this._open) {
          if (open.text) {
            const [rank, stderr] = key.split(' ');
            this._add(Number(rank), stderr === 'true', open.text);
          }
        }
        this._open.clear();
        break;
    }
    this.version += 1;
  }

  private _text(rank: number, stderr: boolean, data: Uint8Array): void {
    const key = `${rank} ${stderr}`;
    const open = this._open.get(key) ?? { decoder: new TextDecoder(), text: '' };
    this._open.set(key, open);
    const parts = (open.text + open.decoder.decode(data, { stream: true })).split('\n');
    open.text = parts.pop() ?? '';
    for (const part of parts) {
      this._add(rank, stderr, part);
    }
  }

  private _add(rank: number, stderr: boolean, raw: string): void {
    const text = shown(raw);
    const lines = this.lines as ILine[];
    lines.push({ number: this._count++, rank, stderr, text, at: this._at });
    if (stderr) {
      this.errors.set(rank, (this.errors.get(rank) ?? 0) + 1);
    }
    if (lines.length > KEPT_LINES * 1.2) {
      this.cut += lines.length - KEPT_LINES;
      this.lines = lines.slice(-KEPT_LINES);
    }
  }
}

/** A line as a terminal would leave it: without colours, and only what follows the last carriage return. */
export function shown(raw: string): string {
  const text = raw.replace(ESCAPES, '').replace(/\r+$/, '');
  return text.slice(text.lastIndexOf('\r') + 1);
}
