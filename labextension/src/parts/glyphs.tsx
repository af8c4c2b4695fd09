/** Small glyphs: states of jobs, told apart by shape first, and icons of buttons. */
import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { Job } from '../api/types.gen';

export const gpuIcon = new LabIcon({
  name: '@mgpu/labextension:gpu',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="none" stroke="#616161" stroke-width="2">' +
    '<rect x="3" y="5" width="18" height="12" rx="2"/><circle cx="8.5" cy="11" r="2.2"/><circle cx="15.5" cy="11" r="2.2"/>' +
    '<path d="M7 17v3M12 17v3M17 17v3"/></g></svg>',
});
// The icon is drawn by lines: JupyterLab's classes colour fills, so the stroke follows by a rule of ours (style/base.css).

export type GlyphName =
  | 'queued'
  | 'starting'
  | 'running'
  | 'stopping'
  | 'completed'
  | 'failed'
  | 'timeout'
  | 'cancelled'
  | 'held'
  | 'warn'
  | 'slow'
  | 'bad'
  | 'why'
  | 'pause'
  | 'play'
  | 'close'
  | 'copy'
  | 'plus'
  | 'chart'
  | 'filter'
  | 'more'
  | 'search'
  | 'up'
  | 'down'
  | 'right'
  | 'open'
  | 'download'
  | 'edit'
  | 'again'
  | 'terminal';

const LINES: Partial<Record<GlyphName, string>> = {
  queued: 'M8 4.5V8l2.5 1.5M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z',
  completed: 'M2.5 8.5l3.5 3.5 7.5-8',
  failed: 'M3 3l10 10M13 3L3 13',
  timeout: 'M3.5 2h9M3.5 14h9M4.5 2c0 4 7 8 7 12M11.5 2c0 4-7 8-7 12',
  cancelled: 'M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM3.8 3.8l8.4 8.4',
  held: 'M5.5 3v10M10.5 3v10',
  stopping: 'M4 2.5v11l9-5.5Z',
  why: 'M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM6 6.3c0-2.6 4-2.6 4 0 0 1.5-2 1.6-2 3M8 11.2v.6',
  pause: 'M5.5 3v10M10.5 3v10',
  close: 'M4 4l8 8M12 4l-8 8',
  copy: 'M6 6h8v8H6zM4 10H2V2h8v2',
  plus: 'M8 3v10M3 8h10',
  chart: 'M2 14h12M4 12V8M8 12V3M12 12V6',
  filter: 'M2 4h12M4.5 8h7M7 12h2',
  search: 'M11 7A4 4 0 1 1 3 7a4 4 0 0 1 8 0ZM10 10l4 4',
  up: 'M3.5 10L8 5.5l4.5 4.5',
  down: 'M3.5 6L8 10.5 12.5 6',
  right: 'M6 3.5L10.5 8 6 12.5',
  open: 'M9 2h5v5M14 2L8 8M12 9v5H2V4h5',
  download: 'M8 2v8M4.5 7L8 10.5 11.5 7M2 14h12',
  edit: 'M3 13l.8-3L11 2.8l2.2 2.2L6 12.2Z',
  again: 'M13 8a5 5 0 1 1-1.5-3.5M13 2v3h-3',
  terminal: 'M2 3h12v10H2zM4.5 6l2 2-2 2M8 10h3',
};
const FILLS: Partial<Record<GlyphName, string>> = {
  running: 'M4 2.5v11l9-5.5Z',
  play: 'M4 2.5v11l9-5.5Z',
  warn: 'M8 2L15 14H1Z',
  slow: 'M8 14L1 2h14Z',
  bad: '',
  more: 'M8 2.2a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6ZM8 6.7a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6ZM8 11.2a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6Z',
};

/** A glyph of 16 × 16; with a `label` it is read out, without one it is decoration. */
export function Glyph({
  name,
  label,
  tone,
  size = 16,
}: {
  name: GlyphName;
  label?: string;
  tone?: 'mine' | 'warn' | 'bad';
  size?: number;
}): JSX.Element {
  const line = name === 'bad' ? LINES.close : LINES[name];
  return (
    <svg
      className={`mgp-glyph${tone ? ` mgp-mod-${tone}` : ''}`}
      width={size}
      height={size}
      viewBox="0 0 16 16"
      role={label ? 'img' : undefined}
      aria-label={label}
      aria-hidden={label ? undefined : true}
      focusable="false"
    >
      {line && <path d={line} fill="none" stroke="currentColor" strokeWidth={1.6} />}
      {FILLS[name] && <path d={FILLS[name]} fill="currentColor" />}
      {name === 'warn' && <path d="M8 6v4M8 11.5v1.2" className="mgp-glyph-hole" strokeWidth={1.4} />}
      {name === 'starting' && (
        <>
          <circle cx={8} cy={8} r={6} fill="none" stroke="currentColor" strokeWidth={1.6} strokeDasharray="2.4 2" />
          <path d="M6.5 5.5v5l4-2.5Z" fill="currentColor" />
        </>
      )}
    </svg>
  );
}

/** The glyph of a job's state; brand blue only for the user's own that are under way. */
export function JobGlyph({ job, held, mine, label }: { job: Job; held?: boolean; mine: boolean; label?: string }): JSX.Element {
  const name: GlyphName = held ? 'held' : job.state;
  const bad = name === 'failed' || name === 'timeout';
  const tone = bad ? 'bad' : mine && (name === 'running' || name === 'starting' || name === 'stopping') ? 'mine' : undefined;
  return <Glyph name={name} label={label ?? name} tone={tone} />;
}
