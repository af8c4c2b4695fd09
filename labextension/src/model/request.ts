/** A request as the form holds it: to a job, to flags, and back from what was typed. Pure. */
import type { JobSpec } from '../api/types.gen';

export interface IForm {
  /** A cell is Python that has a notebook; a file is given by a command. */
  readonly what: 'cell' | 'script' | 'command';
  readonly text: string;
  readonly name: string;
  readonly nodes: number;
  readonly gpus: number;
  readonly gpuType: string;
  readonly time: string;
  readonly wiring: 'one' | 'distributed' | 'mpi';
  /** The rule by which nodes are picked; empty for the cluster's own. */
  readonly policy: string;
  readonly exclude: readonly string[];
  /** A command that makes the environment. */
  readonly setup: string;
  /** NAME=value, one a line. */
  readonly env: string;
  /** Variables of a notebook that go in and come back; they need a cell. */
  readonly inputs: string;
  readonly outputs: string;
  readonly retries: number;
  readonly dependency: string;
  readonly array: string;
}

export const EMPTY: IForm = {
  what: 'command',
  text: '',
  name: '',
  nodes: 1,
  gpus: 1,
  gpuType: '',
  time: '',
  wiring: 'one',
  policy: '',
  exclude: [],
  setup: '',
  env: '',
  inputs: '',
  outputs: '',
  retries: 0,
  dependency: '',
  array: '',
};

/** What is wrong with what was typed, by field; the server looks at all the rest. */
export function problemsOf(form: IForm): { time?: true; env?: string } {
  const bad = envLines(form.env).find(([name, value]) => value === undefined || !/^[A-Za-z_]\w*$/.test(name));
  return {
    ...(form.time.trim() !== '' && seconds(form.time) === null ? { time: true as const } : {}),
    ...(bad === undefined ? {} : { env: bad[0] }),
  };
}

function envLines(text: string): [string, string | undefined][] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const at = line.indexOf('=');
      return at < 0 ? [line, undefined] : [line.slice(0, at), line.slice(at + 1)];
    });
}

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
  const env = envLines(form.env);
  return {
    ...(form.what === 'command' ? { command: ['bash', '-c', form.text] } : { script: form.text }),
    ...(form.name ? { name: form.name } : {}),
    nodes: form.nodes,
    gpus_per_node: form.gpus,
    ...(form.gpuType ? { gpu_type: form.gpuType } : {}),
    ...(limit === null ? {} : { time_limit_s: limit }),
    ...(form.wiring === 'distributed' ? { distributed: true } : form.wiring === 'mpi' ? { mpi: true } : {}),
    ...(form.policy ? { policy: form.policy } : {}),
    ...(form.exclude.length ? { exclude: [...form.exclude] } : {}),
    ...(form.setup.trim() ? { env_setup_cmd: form.setup.trim() } : {}),
    ...(env.length ? { env: Object.fromEntries(env.map(([name, value]) => [name, value ?? ''])) } : {}),
    ...(form.retries ? { retries: form.retries } : {}),
    ...(form.dependency.trim() ? { dependency: form.dependency.trim() } : {}),
    ...(form.array.trim() ? { array: form.array.trim() } : {}),
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
  if (form.wiring !== 'one') {
    words.push(`--${form.wiring}`);
  }
  const flags: [string, string][] = [
    ['--name', form.name],
    ['--policy', form.policy],
    ['--exclude', form.exclude.join(',')],
    ['--env-setup-cmd', form.setup.trim()],
    ...envLines(form.env).map(([name, value]): [string, string] => ['--env', `${name}=${value ?? ''}`]),
    ['--in', names(form.inputs)],
    ['--out', names(form.outputs)],
    ['--retries', form.retries ? String(form.retries) : ''],
    ['--dependency', form.dependency.trim()],
    ['--array', form.array.trim()],
  ];
  words.push(...flags.filter(([, value]) => value !== '').map(([flag, value]) => `${flag} ${quoted(value)}`));
  return words.join(' ');
}

/** Names of variables, however they were parted. */
function names(text: string): string {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .join(',');
}

/** Sizes that come near a request: half the GPUs, all on one node, twice the GPUs. */
export function otherSizes(form: IForm, widest: number): Pick<IForm, 'nodes' | 'gpus'>[] {
  const { nodes, gpus } = form;
  const tried = [
    { nodes, gpus: Math.floor(gpus / 2) },
    { nodes: Math.floor(nodes / 2), gpus },
    { nodes: 1, gpus: nodes * gpus },
    { nodes: nodes * 2, gpus: gpus / 2 },
    { nodes, gpus: gpus * 2 },
    { nodes: nodes * 2, gpus },
  ];
  const seen = new Set([`${nodes} ${gpus}`]);
  return tried
    .filter((one) => {
      const key = `${one.nodes} ${one.gpus}`;
      const fits = one.nodes >= 1 && one.gpus >= 1 && Number.isInteger(one.gpus) && one.gpus <= widest && !seen.has(key);
      seen.add(key);
      return fits;
    })
    .slice(0, 4);
}

/** Whether this may be typed into a terminal as a node: quotes hold a shell back, but not the keys that a terminal itself acts upon. */
export function isNodeName(text: string): boolean {
  return /^[A-Za-z0-9][\w.-]{0,62}$/.test(text);
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

/** A cell without the line that asks for GPUs. */
export function bodyOf(source: string): string {
  return magicOf(source) === null ? source : source.replace(/^\s*%%mgpu_srun\b.*\n?/, '');
}

/** The line that asks for GPUs; null when the cell has none. */
export function magicOf(source: string): string | null {
  const line = source.split('\n').find((one) => one.trim() !== '');
  return line !== undefined && LINE.test(line.trim()) ? line.trim() : null;
}
