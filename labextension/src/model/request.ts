/** A request as the form holds it: to a job, to flags, and back from what was typed. Pure. */
import type { JobSpec } from '../api/types.gen';

export interface IForm {
  readonly what: 'command' | 'script';
  readonly text: string;
  readonly name: string;
  readonly nodes: number;
  readonly gpus: number;
  readonly gpuType: string;
  readonly time: string;
  readonly distributed: boolean;
}

export const EMPTY: IForm = { what: 'command', text: '', name: '', nodes: 1, gpus: 1, gpuType: '', time: '', distributed: false };

/** Seconds of `02:00:00`, `30:00` (minutes and seconds), `90` (minutes) or `1-00:00:00`; null when it is no time. */
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

/** The job that is meant; a command goes through a shell, as people type it. */
export function specOf(form: IForm): JobSpec {
  const limit = form.time.trim() === '' ? null : seconds(form.time);
  return {
    ...(form.what === 'script' ? { script: form.text } : { command: ['bash', '-c', form.text] }),
    ...(form.name ? { name: form.name } : {}),
    nodes: form.nodes,
    gpus_per_node: form.gpus,
    ...(form.gpuType ? { gpu_type: form.gpuType } : {}),
    ...(limit === null ? {} : { time_limit_s: limit }),
    ...(form.distributed ? { distributed: true } : {}),
  };
}

/** The same as flags of `%%mgpu_srun`. */
export function flagsOf(form: IForm): string {
  const words: string[] = [];
  if (form.nodes > 1) {
    words.push(`--nodes ${form.nodes} --gpus-per-node ${form.gpus}`);
  } else {
    words.push(`--gpus ${form.gpus}`);
  }
  if (form.gpuType) {
    words.push(`--gpu-type ${quoted(form.gpuType)}`);
  }
  if (form.time.trim()) {
    words.push(`-t ${quoted(form.time.trim())}`);
  }
  if (form.distributed) {
    words.push('--distributed');
  }
  if (form.name) {
    words.push(`--name ${quoted(form.name)}`);
  }
  return words.join(' ');
}

/** A word for a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

const LINE = /^%%mgpu_srun\b.*$/;

/** A cell with its first line asking for GPUs: put there, or changed where it is already. */
export function withMagic(source: string, flags: string): string {
  const lines = source.split('\n');
  const at = lines.findIndex((line) => line.trim() !== '');
  if (at >= 0 && LINE.test((lines[at] as string).trim())) {
    lines[at] = `%%mgpu_srun ${flags}`;
    return lines.join('\n');
  }
  return `%%mgpu_srun ${flags}\n${source}`;
}

/** The line that asks for GPUs; null when the cell has none. */
export function magicOf(source: string): string | null {
  const line = source.split('\n').find((one) => one.trim() !== '');
  return line !== undefined && LINE.test(line.trim()) ? line.trim() : null;
}
