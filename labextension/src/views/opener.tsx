/** Opens main-area views as tabs, one for each subject, and finds them again after a reload. */
import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { Live } from '../model/live';
import { gpuIcon } from '../parts/glyphs';
import { MgpuContext } from '../parts/hooks';
import type { IMgpu } from '../tokens';
import { place, show } from './place';
import type { IViewMaker, IViews, ViewKind } from './registry';

const OPEN = 'mgpu:open-view';

class View extends ReactWidget {
  constructor(
    private readonly _mgpu: IMgpu,
    private readonly _maker: IViewMaker,
    readonly kind: ViewKind,
    readonly subject: string,
    private _given: Record<string, string>,
  ) {
    super();
    this.addClass('mgp-view');
    this.addClass('mgp-scroll');
    this.node.tabIndex = -1;
  }

  /** Show another part of the same subject. */
  give(given: Record<string, string>): void {
    if (Object.keys(given).length) {
      this._given = { ...given };
      this.update();
    }
  }

  protected render(): JSX.Element {
    return (
      <MgpuContext.Provider value={this._mgpu}>
        {this.isVisible ? this._maker.render(this.subject, this._given) : null}
      </MgpuContext.Provider>
    );
  }

  protected override onAfterShow(): void {
    this.update();
  }

  protected override onAfterHide(): void {
    this.update();
  }
}

export class Views implements IViews {
  mgpu: IMgpu | null = null;
  private readonly _makers = new Map<ViewKind, IViewMaker>();
  private readonly _tracker = new WidgetTracker<MainAreaWidget<View>>({ namespace: 'mgpu' });

  constructor(
    private readonly _app: JupyterFrontEnd,
    live: Live,
    restorer: ILayoutRestorer | null,
  ) {
    _app.commands.addCommand(OPEN, {
      label: 'Open a view of the GPU cluster',
      isVisible: () => false,
      execute: (args) => this.open(String(args.kind) as ViewKind, String(args.subject ?? '')),
    });
    void restorer?.restore(this._tracker, {
      command: OPEN,
      args: (widget) => ({ kind: widget.content.kind, subject: widget.content.subject }),
      name: (widget) => `${widget.content.kind}:${widget.content.subject}`,
    });
    // a tab may be made before the name of its subject is known
    live.changed.connect((_, changes) => {
      if (changes.jobs.size || changes.cluster) {
        this._tracker.forEach((widget) => {
          this._name(widget);
        });
      }
    });
  }

  register(maker: IViewMaker): void {
    this._makers.set(maker.kind, maker);
  }

  has(kind: ViewKind): boolean {
    return this._makers.has(kind);
  }

  open(kind: ViewKind, subject = '', given: Record<string, string> = {}): void {
    const maker = this._makers.get(kind);
    if (maker === undefined || this.mgpu === null) {
      return;
    }
    const id = `mgpu-view-${kind}${subject ? `-${subject}` : ''}`;
    let widget = this._tracker.find((one) => one.id === id);
    if (widget === undefined) {
      widget = new MainAreaWidget({ content: new View(this.mgpu, maker, kind, subject, given) });
      widget.id = id;
      widget.toolbar.hide(); // views have their buttons in their own header
      widget.title.icon = gpuIcon;
      widget.title.closable = true;
      this._name(widget);
      void this._tracker.add(widget);
    } else {
      widget.content.give(given);
    }
    if (!widget.isAttached) {
      place(widget, this._app.shell);
    }
    show(widget, this._app.shell);
  }

  private _name(widget: MainAreaWidget<View>): void {
    const label = this._makers.get(widget.content.kind)?.title(widget.content.subject);
    if (label !== undefined && label !== widget.title.label) {
      widget.title.label = label;
    }
  }
}
