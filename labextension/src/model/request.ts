/** A request as the form holds it: the line that means it, which the server reads; and cells with such a line. Pure. */
import type { LineRequest } from '../api/types.gen';

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

/** What is wrong with what was typed, by field: what has no line. The server reads all the rest. */
export function problemsOf(form: IForm): { time?: true; env?: string } {
  const bad = envLines(form.env).find(([name, value]) => value === undefined || !/^[A-Za-z_]\w*$/.test(name));
  return bad === undefined ? {} : { env: bad[0] };
}

/** Whether a sentence of the server is about the time limit. */
export function isAboutTime(sentence: string): boolean {
  return /(^| )-t[ :]/.test(sentence);
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

/** What is meant, as somebody would type it: this is shown, and this is what the server reads. */
export function lineOf(form: IForm): LineRequest {
  if (form.what === 'command') {
    return { line: `%mgpu_srun ${flagsOf(form)} -- ${form.text.trim()}` };
  }
  return { line: `%%mgpu_srun ${flagsOf(form)}`, cell: form.text };
}

/** The same for a terminal, whose shell must leave alone what a shell there is to do. */
export function shellLine(form: IForm): string {
  const flags = flagsOf({ ...form, inputs: '', outputs: '' });
  const text = form.text.trim();
  if (form.what !== 'command') {
    return `mgpu_srun ${flags} -- python -c ${quoted(form.text)}`;
  }
  return `mgpu_srun ${flags} -- ${needsShell(text) ? quoted(text) : text}`;
}

function needsShell(text: string): boolean {
  return /[;&|<>`*?[$~\n]|^\w+=/.test(text.replace(/'[^']*'|"[^"]*"|\\./g, ''));
}

/** The flags of `%%mgpu_srun`. */
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
  words.push(
    ...flags.filter(([, value]) => value !== '').map(([flag, value]) => `${flag}${value.startsWith('-') ? '=' : ' '}${quoted(value)}`),
  );
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
