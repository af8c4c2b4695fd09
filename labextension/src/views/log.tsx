/** The live log of a job: by rank, with search and follow. */
import * as React from 'react';
import type { StreamJobFrame } from '../api/types.gen';
import { type ILine, Log } from '../model/log';
import { Glyph } from '../parts/glyphs';
import { useMgpu } from '../parts/hooks';
import { bytes, plain } from '../text/format';

const LINE = 18;
const DRAW_MS = 100;
const AGAIN_MS = 2000;

/** Follow the stream of a job as long as somebody looks; after a break from where it stopped. */
function useLog(id: string): Log {
  const { live } = useMgpu();
  const [log, setLog] = React.useState(() => new Log());
  const [, rise] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const own = new Log();
    setLog(own);
    let over = false;
    let drawing: number | undefined;
    let again: number | undefined;
    let socket = open();
    function open(): ReturnType<typeof live.open> {
      const made = live.open(`jobs/${encodeURIComponent(id)}/stream`, own.position);
      made.onmessage = (event) => {
        own.take(JSON.parse(String(event.data)) as StreamJobFrame);
        drawing ??= window.setTimeout(() => {
          drawing = undefined;
          rise();
        }, DRAW_MS);
      };
      made.onclose = () => {
        if (!over && !own.over) {
          again = window.setTimeout(() => {
            socket = open();
          }, AGAIN_MS);
        }
      };
      return made;
    }
    return () => {
      over = true;
      window.clearTimeout(drawing);
      window.clearTimeout(again);
      socket.close();
    };
  }, [live, id]);
  return log;
}

export function LogView({ id }: { id: string }): JSX.Element {
  const { trans, client } = useMgpu();
  const log = useLog(id);
  const [rank, setRank] = React.useState<number | null>(null);
  const [search, setSearch] = React.useState('');
  const [at, setAt] = React.useState(0);
  const [wrap, setWrap] = React.useState(false);
  const [follow, setFollow] = React.useState(true);
  const box = React.useRef<HTMLDivElement>(null);
  const [top, setTop] = React.useState(0);
  const lines = rank === null ? log.lines : log.lines.filter((line) => line.rank === rank);
  const needle = search.toLowerCase();
  const found = needle ? lines.flatMap((line, index) => (line.text.toLowerCase().includes(needle) ? [index] : [])) : [];
  const ranks = [...log.ranks].sort((a, b) => a - b);
  const height = box.current?.clientHeight ?? 400;

  React.useEffect(() => {
    if (follow && box.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [log.version, follow, rank, wrap]);

  const jump = (step: number): void => {
    if (found.length && box.current) {
      const next = (at + step + found.length) % found.length;
      setAt(next);
      setFollow(false);
      box.current.scrollTop = (found[next] as number) * LINE - height / 2;
    }
  };
  const first = wrap ? 0 : Math.max(0, Math.floor(top / LINE) - 10);
  const end = wrap ? lines.length : Math.min(lines.length, Math.ceil((top + height) / LINE) + 10);
  return (
    <section className="mgp-log mgp-frame" aria-label={trans.__('Log')}>
      <div className="mgp-log-bar">
        <b>{trans.__('Log')}</b>
        <Chip on={rank === null} set={() => setRank(null)} text={trans.__('All')} />
        {ranks.length > 1 &&
          ranks.slice(0, 64).map((one) => <Chip key={one} on={rank === one} set={() => setRank(one)} text={String(one)} />)}
      </div>
      <div className="mgp-log-bar">
        <span className="mgp-search">
          <Glyph name="search" size={13} />
          <input
            type="text"
            aria-label={trans.__('Search the log')}
            value={search}
            onChange={(event) => {
              setSearch(event.target.value);
              setAt(0);
            }}
            onKeyDown={(event) => event.key === 'Enter' && jump(event.shiftKey ? -1 : 1)}
          />
          {needle && (
            <span className="mgp-second mgp-number">{found.length ? trans.__('%1 of %2', at + 1, found.length) : trans.__('none')}</span>
          )}
        </span>
        <button type="button" className="mgp-icon-button" aria-label={trans.__('Before')} onClick={() => jump(-1)}>
          <Glyph name="up" />
        </button>
        <button type="button" className="mgp-icon-button" aria-label={trans.__('Next')} onClick={() => jump(1)}>
          <Glyph name="down" />
        </button>
        <span className="mgp-space" />
        <button type="button" className="mgp-button" aria-pressed={wrap} onClick={() => setWrap(!wrap)}>
          {trans.__('Wrap')}
        </button>
        <button type="button" className="mgp-button" aria-pressed={follow} onClick={() => setFollow(!follow)}>
          {follow ? trans.__('Follow on') : trans.__('Follow off')}
        </button>
        <button
          type="button"
          className="mgp-icon-button"
          aria-label={trans.__('Download')}
          onClick={() => void client.output(id, rank ?? 0).then((data) => save(`${id}-rank${rank ?? 0}.log`, data))}
        >
          <Glyph name="download" />
        </button>
      </div>
      <div
        ref={box}
        className={`mgp-log-lines${wrap ? ' mgp-mod-wrap' : ''}`}
        role="log"
        aria-live="off"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so keys must reach it
        tabIndex={0}
        onScroll={(event) => {
          const box = event.currentTarget;
          setTop(box.scrollTop);
          if (follow && box.scrollHeight - box.scrollTop - box.clientHeight > 60) {
            setFollow(false);
          }
        }}
      >
        {lines.length === 0 && <p className="mgp-none">{trans.__('No output yet.')}</p>}
        <div style={wrap ? undefined : { height: lines.length * LINE, position: 'relative' }}>
          <div style={wrap ? undefined : { position: 'absolute', top: first * LINE }}>
            {lines.slice(first, end).map((line, index) => (
              <LogLine
                key={line.number}
                line={line}
                many={ranks.length > 1}
                needle={needle}
                current={needle !== '' && found[at] === first + index}
              />
            ))}
          </div>
        </div>
      </div>
      <div className="mgp-log-foot mgp-second">
        {trans.__('%1 lines, %2', log.lines.length + log.cut, bytes(log.bytes))}
        {log.cut > 0 ? ` · ${trans.__('the first %1 are in the download', log.cut)}` : ''}
        {log.over ? ` · ${trans.__('complete')}` : ''}
      </div>
    </section>
  );
}

function Chip({ on, set, text }: { on: boolean; set: () => void; text: string }): JSX.Element {
  return (
    <button type="button" className="mgp-chip" aria-pressed={on} onClick={set}>
      {text}
    </button>
  );
}

const LogLine = React.memo(function LogLine({
  line,
  many,
  needle,
  current,
}: {
  line: ILine;
  many: boolean;
  needle: string;
  current: boolean;
}): JSX.Element {
  const text = plain(line.text.replaceAll('\t', '    '));
  return (
    <div className={`mgp-log-line${line.stderr ? ' mgp-mod-stderr' : ''}`}>
      {many && <span className="mgp-log-rank">{line.rank}</span>}
      <span>{needle ? marked(text, needle, current) : text || ' '}</span>
    </div>
  );
});

function marked(text: string, needle: string, current: boolean): React.ReactNode {
  const parts: React.ReactNode[] = [];
  const lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    parts.push(
      text.slice(from, at),
      <mark key={at} className={current ? 'mgp-mod-current' : ''}>
        {text.slice(at, at + needle.length)}
      </mark>,
    );
    from = at + needle.length;
  }
  parts.push(text.slice(from));
  return parts;
}

function save(name: string, data: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
