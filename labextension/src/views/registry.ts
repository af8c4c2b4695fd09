/** Where main-area views register, and how they are opened. One widget for each kind and subject; the layout is restored by kind and id. */
import type { ReactElement } from 'react';

export type ViewKind = 'job' | 'node' | 'cluster' | 'submit';

/** The parts of a view; `subject` is a job's or node's id, or empty. */
export interface IViewMaker {
  readonly kind: ViewKind;
  /** The title of the tab. */
  title(subject: string): string;
  render(subject: string, given: Record<string, string>): ReactElement;
}

export interface IViews {
  register(maker: IViewMaker): void;
  has(kind: ViewKind): boolean;
  /** Open the view or bring it to the front; `given` is for the view itself, for example which tab of it. */
  open(kind: ViewKind, subject?: string, given?: Record<string, string>): void;
}
