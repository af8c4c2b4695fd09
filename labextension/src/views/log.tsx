/** The live log of a job: by rank, with search, folds and follow. */
import * as React from 'react';
import type { Job, StreamJobFrame } from '../api/types.gen';
import { folded, type IFold, type IShownLine, merged, type Shown } from '../model/folds';
import { Log } from '../model/log';
import { Chip } from '../parts/facts';
import { Glyph } from '../parts/glyphs';
import { useMgpu } from '../parts/hooks';
import { bytes, clock, grouped, plain, ranges } from '../text/format';

const LINE = 18;
const DRAW_MS = 100;
const AGAIN_MS = 2000;
const QUIET_S = 0.4; // output that comes without such a pause after the start was there before
const CHIPS = 64;

/** Follow the stream of a job as long as somebody watches; after a break, continue from where it stopped. */
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
      let heard: number | null = null;
      let old = true;
      made.onmessage = (event) => {
        const now = live.now();
        old &&= heard === null || now - heard < QUIET_S;
        heard = now;
        own.take(JSON.parse(String(event.data)) as StreamJobFrame, old ? null : now);
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

export function LogView({ job }: { job: Job }): JSX.Element {
  const { trans, client } = useMgpu();
  const log = useLog(job.id);
  const [rank, setRank] = React.useState<number | null>(null);
  const [search, setSearch] = React.useState('');
  const [at, setAt] = React.useState(0);
  const [wrap, setWrap] = React.useState(false);
  const [times, setTimes] = React.useState(true);
  const [follow, setFollow] = React.useState(true);
  const [seen, setSeen] = React.useState(0);
  const [opened, setOpened] = React.useState<ReadonlySet<number>>(new Set());
  const box = React.useRef<HTMLDivElement>(null);
  const [top, setTop] = React.useState(0);
  const needle = search.toLowerCase();
  const lines = React.useMemo<readonly Shown[]>(() => {
    const wanted = rank === null ? merged(log.lines) : merged(log.lines.filter((line) => line.rank === rank));
    return needle ? wanted : folded(wanted, opened);
  }, [log, log.version, rank, needle === '', opened]);
  const found = React.useMemo(
    () =>
      needle ? lines.flatMap((one, index) => (one.kind === 'line' && one.line.text.toLowerCase().includes(needle) ? [index] : [])) : [],
    [lines, needle],
  );
  const total = log.lines.length + log.cut;
  const height = box.current?.clientHeight ?? 400;

  React.useEffect(() => {
    if (follow && box.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
    if (follow) {
      setSeen(total);
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
  const errors = [...log.errors.values()].reduce((sum, one) => sum + one, 0);
  return (
    <section className="mgp-log mgp-frame" aria-label={trans.__('Log')}>
      <div className="mgp-log-bar">
        <b>{trans.__('Log')}</b>
        <Chip on={rank === null} set={() => setRank(null)}>
          {trans.__('All')}
        </Chip>
        {log.ranks.size > 1 && <Ranks job={job} log={log} rank={rank} set={setRank} />}
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
        <button
          type="button"
          className="mgp-button"
          aria-pressed={times}
          title={trans.__('When lines came here; those from before are without a time')}
          onClick={() => setTimes(!times)}
        >
          {trans.__('Times')}
        </button>
        <button type="button" className="mgp-button" aria-pressed={follow} onClick={() => setFollow(!follow)}>
          <Glyph name="download" size={13} /> {follow ? trans.__('Follow on') : trans.__('Follow off')}
        </button>
        <button
          type="button"
          className="mgp-icon-button"
          aria-label={trans.__('Download')}
          onClick={() => void client.output(job.id, rank ?? 0).then((data) => save(`${job.id}-rank${rank ?? 0}.log`, data))}
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
            {lines
              .slice(first, end)
              .map((one, index) =>
                one.kind === 'fold' ? (
                  <Fold key={`fold ${one.name}`} fold={one} open={() => setOpened(new Set([...opened, one.name]))} />
                ) : (
                  <LogLine
                    key={one.line.number}
                    shown={one}
                    ranks={one.ranks.length}
                    many={log.ranks.size > 1}
                    times={times}
                    needle={needle}
                    current={needle !== '' && found[at] === first + index}
                  />
                ),
              )}
          </div>
        </div>
        {!follow && total > seen && (
          <button type="button" className="mgp-button mgp-log-new" onClick={() => setFollow(true)}>
            <Glyph name="down" size={13} /> {trans._n('%1 new line', '%1 new lines', total - seen)}
          </button>
        )}
      </div>
      <div className="mgp-log-foot mgp-second mgp-number">
        <span>{trans.__('%1 lines, %2', grouped(total), bytes(log.bytes))}</span>
        <span>
          {log.cut > 0
            ? trans.__('the first %1 are in the download', grouped(log.cut))
            : log.over
              ? trans.__('complete')
              : trans.__('complete from the first byte')}
        </span>
        <span className="mgp-space" />
        {errors > 0 && <span>{trans._n('stderr %1 line', 'stderr %1 lines', errors)}</span>}
      </div>
    </section>
  );
}

/** The ranks that printed something, by node; how much of it was on stderr. */
function Ranks({ job, log, rank, set }: { job: Job; log: Log; rank: number | null; set: (rank: number) => void }): JSX.Element {
  const { trans } = useMgpu();
  const nodes = new Map<string, number[]>();
  const node = new Map(job.placements.map((one) => [one.rank, one.node]));
  for (const one of [...log.ranks].sort((a, b) => a - b).slice(0, CHIPS)) {
    const name = node.get(one) ?? '';
    nodes.set(name, [...(nodes.get(name) ?? []), one]);
  }
  return (
    <>
      {[...nodes].map(([name, ranks]) => (
        <React.Fragment key={name}>
          <span className="mgp-second">{plain(name)}</span>
          {ranks.map((one) => {
            const errors = log.errors.get(one) ?? 0;
            return (
              <Chip key={one} on={rank === one} set={() => set(one)}>
                {one}
                {errors > 0 && (
                  <>
                    {' '}
                    <Glyph name="warn" tone="warn" size={10} label={trans.__('stderr')} />
                    {errors > 99 ? '99+' : errors}
                  </>
                )}
              </Chip>
            );
          })}
        </React.Fragment>
      ))}
    </>
  );
}

function Fold({ fold, open }: { fold: IFold; open: () => void }): JSX.Element {
  const { trans } = useMgpu();
  const span = fold.from === null || fold.to === null ? '' : trans.__(', %1 to %2', clock(fold.from), clock(fold.to));
  return (
    <div className="mgp-log-line">
      <button type="button" className="mgp-link mgp-log-fold" onClick={open}>
        <Glyph name="right" size={11} /> {trans.__('%1 more lines of rank %2', fold.count, fold.rank)}
        {span}
      </button>
    </div>
  );
}

interface ILineProps {
  readonly shown: IShownLine;
  /** How many ranks printed it; it grows while the object stays. */
  readonly ranks: number;
  readonly many: boolean;
  readonly times: boolean;
  readonly needle: string;
  readonly current: boolean;
}

const LogLine = React.memo(function LogLine({ shown, many, times, needle, current }: ILineProps): JSX.Element {
  const { line } = shown;
  const text = plain(line.text.replaceAll('\t', '    '));
  return (
    <div className="mgp-log-line">
      {times && <span className="mgp-log-time">{line.at === null ? '' : clock(line.at, true)}</span>}
      {many && <span className="mgp-log-rank">{ranges([...shown.ranks])}</span>}
      <span>
        {line.stderr && <Glyph name="warn" tone="warn" size={11} label="stderr" />}
        {line.stderr && ' '}
        {needle ? marked(text, needle, current) : text || ' '}
      </span>
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

/** Have the browser save a file. */
export function save(name: string, data: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
