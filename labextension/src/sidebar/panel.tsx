/** The sidebar as a widget: a toolbar and three sections that fold and scroll by themselves. JupyterLab keeps their heights and folds. */
import { ReactWidget, SidePanel, Toolbar } from '@jupyterlab/ui-components';
import { Signal } from '@lumino/signaling';
import type { AccordionPanel, Widget } from '@lumino/widgets';
import * as React from 'react';
import { CommandIds } from '../commands';
import { historyRows, jobCounts } from '../model/select';
import { Glyph, gpuIcon } from '../parts/glyphs';
import { MgpuContext, useChanges, useConnection, useMgpu, useNow } from '../parts/hooks';
import { clock } from '../text/format';
import { liveMark } from '../text/words';
import type { IMgpu } from '../tokens';
import { ClusterSection, type IFilterState } from './cluster';
import { HistorySection, QueueSection } from './queue';

const DEFAULT_WIDTH = 300;

interface ISection {
  readonly filter: IFilterState;
  readonly onFilter: (filter: IFilterState) => void;
  readonly width: number;
}

/** One section: a scrolling widget that passes its width to its content, and draws nothing while it is not visible. */
class Section extends ReactWidget {
  readonly toolbar = new Toolbar();
  private _width = DEFAULT_WIDTH;
  private readonly _sizes = new ResizeObserver(() => this._measure());

  constructor(
    private readonly _mgpu: IMgpu,
    private readonly _panel: MgpuPanel,
    private readonly _content: (section: ISection) => JSX.Element,
    name: string,
    label: string,
    note: () => JSX.Element,
  ) {
    super();
    this.id = `mgpu-${name}`;
    this.title.label = label;
    this.addClass('mgp-section');
    this.addClass('mgp-scroll');
    this.toolbar.addItem('note', new Drawn(_mgpu, note));
    this._sizes.observe(this.node);
    _panel.filterChanged.connect(() => this.update());
  }

  override dispose(): void {
    this._sizes.disconnect();
    super.dispose();
  }

  protected render(): JSX.Element {
    return (
      <MgpuContext.Provider value={this._mgpu}>
        {this.isVisible
          ? this._content({ filter: this._panel.filter, onFilter: (filter) => this._panel.setFilter(filter), width: this._width })
          : null}
      </MgpuContext.Provider>
    );
  }

  protected override onAfterShow(): void {
    this.update();
    this._panel.folded.emit();
  }

  protected override onAfterHide(): void {
    this.update();
    this._panel.folded.emit();
  }

  private _measure(): void {
    const width = this.node.clientWidth;
    if (width > 0 && width !== this._width) {
      this._width = width;
      this.toggleClass('mgp-mod-narrow', width < 260);
      this.update();
    }
  }
}

/** An element of a toolbar. */
class Drawn extends ReactWidget {
  constructor(
    private readonly _mgpu: IMgpu,
    private readonly _content: () => JSX.Element,
  ) {
    super();
    this.addClass('mgp-drawn');
  }

  protected render(): JSX.Element {
    const Content = this._content;
    return (
      <MgpuContext.Provider value={this._mgpu}>
        <Content />
      </MgpuContext.Provider>
    );
  }
}

export class MgpuPanel extends SidePanel {
  filter: IFilterState = { shown: false, text: '' };
  readonly filterChanged = new Signal<this, void>(this);
  /** A section was opened or closed; JupyterLab itself does not save its layout for that. */
  readonly folded = new Signal<this, void>(this);

  constructor(mgpu: IMgpu) {
    super({ translator: undefined });
    const { trans } = mgpu;
    this.id = 'mgpu-panel';
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPUs and jobs');
    this.addClass('mgp-panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPUs and jobs'));
    this.header.addWidget(new Drawn(mgpu, () => <Head panel={this} />));
    const sections: [string, string, (section: ISection) => JSX.Element, () => JSX.Element][] = [
      ['cluster', trans.__('Cluster'), (section) => <ClusterSection {...section} />, LiveMark],
      ['queue', trans.__('Queue'), (section) => <QueueSection {...section} />, QueueNote],
      ['history', trans.__('History'), (section) => <HistorySection {...section} />, Today],
    ];
    for (const [name, label, content, note] of sections) {
      this.addWidget(new Section(mgpu, this, content, name, label, note) as Widget);
    }
    (this.content as AccordionPanel).setRelativeSizes([10, 6, 4]); // until a handle is moved
  }

  setFilter(filter: IFilterState): void {
    this.filter = filter;
    this.filterChanged.emit();
  }

  /** Which sections are open. */
  get folds(): boolean[] {
    return this.content.widgets.map((section) => !section.isHidden);
  }

  set folds(open: readonly boolean[]) {
    const accordion = this.content as AccordionPanel;
    open.slice(0, accordion.widgets.length).forEach((shown, index) => {
      (shown ? accordion.expand : accordion.collapse).call(accordion, index);
    });
  }

  /** Show the filter and put the cursor there. */
  openFilter(): void {
    this.setFilter({ shown: true, text: this.filter.text });
    window.setTimeout(() => this.node.querySelector<HTMLInputElement>('.mgp-search input')?.focus(), 50);
  }
}

function Head({ panel }: { panel: MgpuPanel }): JSX.Element {
  const { trans, commands } = useMgpu();
  const more = React.useRef<HTMLButtonElement>(null);
  return (
    <div className="mgp-head">
      <button type="button" className="mgp-button mgp-mod-primary" onClick={() => void commands.execute(CommandIds.newJob)}>
        <Glyph name="plus" size={13} /> {trans.__('New job')}
      </button>
      <span className="mgp-space" />
      <IconButton glyph="chart" label={trans.__('Open the dashboard')} act={() => void commands.execute(CommandIds.openDashboard)} />
      <IconButton
        glyph="filter"
        label={trans.__('Filter')}
        act={() => (panel.filter.shown ? panel.setFilter({ shown: false, text: '' }) : panel.openFilter())}
      />
      <button
        ref={more}
        type="button"
        className="mgp-icon-button"
        aria-label={trans.__('More')}
        aria-haspopup="menu"
        title={trans.__('More')}
        onClick={() => {
          const place = more.current?.getBoundingClientRect();
          void commands.execute('mgpu:open-menu', { x: place?.left ?? 0, y: place?.bottom ?? 0 });
        }}
      >
        <Glyph name="more" />
      </button>
    </div>
  );
}

function IconButton({ glyph, label, act }: { glyph: 'chart' | 'filter'; label: string; act: () => void }): JSX.Element {
  return (
    <button type="button" className="mgp-icon-button" aria-label={label} title={label} onClick={act}>
      <Glyph name={glyph} />
    </button>
  );
}

/** `live`, `connecting`, `42 s old`, `stopped`. */
function LiveMark(): JSX.Element {
  const { trans, live } = useMgpu();
  const connection = useConnection();
  const now = useNow(1);
  useChanges((changes) => changes.cluster);
  const heard = connection.state === 'live' ? live.now() : now;
  return (
    <span className={`mgp-live mgp-mod-${connection.state}`} data-live={connection.state}>
      {connection.state !== 'connecting' && <i aria-hidden="true" />} {liveMark(connection, heard, trans)}
    </span>
  );
}

function QueueNote(): JSX.Element {
  const { trans, live } = useMgpu();
  const connection = useConnection();
  useChanges((changes) => changes.jobs.size > 0 || changes.cluster);
  if (live.store.cluster === null) {
    return <span />;
  }
  if (connection.state === 'stale' && connection.heardAt !== null) {
    return <span className="mgp-note-text">{trans.__('as of %1', clock(connection.heardAt, true))}</span>;
  }
  const counts = jobCounts(live.store);
  return (
    <span className="mgp-note-text">
      {counts.waiting + counts.running ? trans.__('%1 waiting, %2 running', counts.waiting, counts.running) : ''}
    </span>
  );
}

function Today(): JSX.Element {
  const { trans, live, settings } = useMgpu();
  useChanges((changes) => changes.jobs.size > 0 || changes.cluster);
  const day = new Date(live.now() * 1000).toDateString();
  const ended = historyRows(live.store, settings.queueMine).filter((job) => new Date((job.ended_at ?? 0) * 1000).toDateString() === day);
  return <span className="mgp-note-text">{ended.length ? trans.__('%1 today', ended.length) : ''}</span>;
}
