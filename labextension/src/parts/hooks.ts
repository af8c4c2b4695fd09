/** How views follow the data: redraw when it changed, and not at all while nobody sees them. */
import * as React from 'react';
import type { IConnection } from '../model/live';
import type { IChanges } from '../model/store';
import type { IMgpu } from '../tokens';

export const MgpuContext = React.createContext<IMgpu | null>(null);

/** The data layer of the page. */
export function useMgpu(): IMgpu {
  const mgpu = React.useContext(MgpuContext);
  if (mgpu === null) {
    throw new Error('a view was drawn outside of MgpuContext');
  }
  return mgpu;
}

/** Redraw after changes for which `concerns` is true; returns a number that rises with each. */
export function useChanges(concerns: (changes: IChanges) => boolean = everything): number {
  const { live } = useMgpu();
  const [version, rise] = React.useReducer((count: number) => count + 1, 0);
  const asked = React.useRef(concerns);
  asked.current = concerns;
  React.useEffect(() => {
    const look = (_: unknown, changes: IChanges): void => {
      if (asked.current(changes)) {
        rise();
      }
    };
    live.changed.connect(look);
    return () => {
      live.changed.disconnect(look);
    };
  }, [live]);
  return version;
}

function everything(): boolean {
  return true;
}

/** The state of the connection. */
export function useConnection(): IConnection {
  const { live } = useMgpu();
  const [connection, set] = React.useState(live.connection);
  React.useEffect(() => {
    const look = (_: unknown, now: IConnection): void => set(now);
    live.connectionChanged.connect(look);
    set(live.connection);
    return () => {
      live.connectionChanged.disconnect(look);
    };
  }, [live]);
  return connection;
}

/** The time, updated every given number of seconds. */
export function useNow(everySeconds: number): number {
  const { live } = useMgpu();
  const [now, set] = React.useState(live.now());
  React.useEffect(() => {
    const timer = window.setInterval(() => set(live.now()), everySeconds * 1000);
    return () => window.clearInterval(timer);
  }, [live, everySeconds]);
  return Math.max(now, live.now() - everySeconds);
}

/** Ask the server, again when `key` changes and at intervals; keeps the last answer meanwhile. */
export function useAnswer<T>(ask: () => Promise<T>, key: string, everySeconds = 0): { answer: T | null; error: string } {
  const [state, set] = React.useState<{ key: string; answer: T | null; error: string }>({ key, answer: null, error: '' });
  const asked = React.useRef(ask);
  asked.current = ask;
  React.useEffect(() => {
    let over = false;
    const look = (): void => {
      asked.current().then(
        (answer) => !over && set({ key, answer, error: '' }),
        (error: Error) => !over && set((before) => ({ key, answer: before.key === key ? before.answer : null, error: error.message })),
      );
    };
    look();
    const timer = everySeconds ? window.setInterval(look, everySeconds * 1000) : undefined;
    return () => {
      over = true;
      window.clearInterval(timer);
    };
  }, [key, everySeconds]);
  return state.key === key ? state : { answer: null, error: '' };
}

/** Keep the order of rows while pointer or focus is in the list: changes meanwhile are counted, not shown. */
export function useSteady<T>(items: readonly T[], identity: (item: T) => string, inUse: boolean): { shown: readonly T[]; waiting: number } {
  const order = React.useRef<readonly string[]>([]);
  const ids = items.map(identity);
  if (!inUse || order.current.length === 0) {
    order.current = ids;
    return { shown: items, waiting: 0 };
  }
  const byId = new Map(items.map((item) => [identity(item), item]));
  const shown = order.current.flatMap((id) => {
    const item = byId.get(id);
    return item === undefined ? [] : [item];
  });
  const kept = order.current.filter((id) => byId.has(id));
  const known = new Set(kept);
  const wanted = ids.filter((id) => known.has(id));
  const moved = kept.filter((id, index) => wanted[index] !== id).length;
  return { shown, waiting: moved + (ids.length - kept.length) };
}
