/** A request as the form holds it, and its line, which the server reads; and cells with such a line. Pure. */
import { FLAGS, type IFlag } from '../api/flags.gen';
import type { LineRequest } from '../api/types.gen';

export interface IForm {
  /** A cell is Python code of a notebook; a file is run by a command. */
  readonly what: 'cell' | 'script' | 'command';
  readonly text: string;
  readonly nodes: number;
  readonly gpus: number;
  /** The other fields, by keyword of their flag: as typed or chosen. */
  readonly values: Readonly<Record<string, string>>;
  /** More flags, as typed. */
  readonly flags: string;
}

export const EMPTY: IForm = { what: 'command', text: '', nodes: 1, gpus: 1, values: {}, flags: '' };

/** A switch that is on. */
export const ON = 'yes';

/** The flag of a keyword; every keyword used here is in the table, as a test checks. */
export function flagOf(dest: string): IFlag {
  return FLAGS.find((flag) => flag.dest === dest) as IFlag;
}

export function saidIn(form: IForm, dest: string): string {
  return form.values[dest] ?? '';
}

/** The changes when a field is filled in. */
export function filled(form: IForm, dest: string, value: string): Pick<IForm, 'values'> {
  return { values: { ...form.values, [dest]: value } };
}

/** Without what only cells of a notebook have. */
export function withoutVariables(form: IForm): IForm {
  return { ...form, values: Object.fromEntries(Object.entries(form.values).filter(([dest]) => !flagOf(dest).notebook)) };
}

export function hasVariables(form: IForm): boolean {
  return FLAGS.some((flag) => flag.notebook && saidIn(form, flag.dest).trim() !== '');
}

/** What is wrong with the input, by field: only what has no line. The server reads all the rest. */
export function problemsOf(form: IForm): { time?: true; env?: string } {
  const pairs = FLAGS.filter((flag) => flag.control === 'pairs').flatMap((flag) => envLines(saidIn(form, flag.dest)));
  const bad = pairs.find(([name, value]) => value === undefined || !/^[A-Za-z_]\w*$/.test(name));
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

/** The line as somebody would type it: it is shown, and the server reads it. */
export function lineOf(form: IForm): LineRequest {
  if (form.what === 'command') {
    return { line: `%mgpu_srun ${flagsOf(form)} -- ${form.text.trim()}` };
  }
  return { line: `%%mgpu_srun ${flagsOf(form)}`, cell: form.text };
}

/** The same for a terminal, whose shell must not interpret what is meant for the shell on the node. */
export function shellLine(form: IForm): string {
  const flags = flagsOf(withoutVariables(form));
  const text = form.text.trim();
  if (form.what !== 'command') {
    return `mgpu_srun ${flags} -- python -c ${quoted(form.text)}`;
  }
  return `mgpu_srun ${flags} -- ${needsShell(text) ? quoted(text) : text}`;
}

function needsShell(text: string): boolean {
  return /[;&|<>`*?[$~\n]|^\w+=/.test(text.replace(/'[^']*'|"[^"]*"|\\./g, ''));
}

/** The flags of `%%mgpu_srun`, in the order of their table. */
export function flagsOf(form: IForm): string {
  const size = form.nodes > 1 ? `--nodes ${form.nodes} --gpus-per-node ${form.gpus}` : `--gpus ${form.gpus}`;
  return [size, ...FLAGS.flatMap((flag) => wordsOf(flag, saidIn(form, flag.dest).trim())), form.flags.trim()].filter(Boolean).join(' ');
}

/** A flag as it is written, with the value of its field; empty when that is empty. */
function wordsOf(flag: IFlag, value: string): string[] {
  if (value === '') {
    return [];
  }
  switch (flag.control) {
    case 'switch':
      return [flag.name];
    case 'switches':
      return [`--${value}`];
    case 'names':
    case 'nodes':
      return written(flag, listed(value));
    case 'pairs':
      return envLines(value).flatMap(([name, text]) => written(flag, `${name}=${text ?? ''}`));
    default:
      return written(flag, value);
  }
}

/** A value that begins with a dash would look like a flag. */
function written(flag: IFlag, value: string): string[] {
  return value === '' ? [] : [`${flag.name}${value.startsWith('-') && flag.name.startsWith('--') ? '=' : ' '}${quoted(value)}`];
}

/** Names with commas between them, whatever separated them. */
function listed(text: string): string {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .join(',');
}

/** Sizes near that of a request: half the GPUs, all on one node, twice the GPUs. */
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

/** Whether this may be typed into a terminal as a node: quotes protect it from the shell, but not from keys of the terminal itself. */
export function isNodeName(text: string): boolean {
  return /^[A-Za-z0-9][\w.-]{0,62}$/.test(text);
}

/** A word for a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

const LINE = /^%%mgpu_srun\b.*$/;

/** A cell whose first line asks for GPUs: added, or changed where there is one. */
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
