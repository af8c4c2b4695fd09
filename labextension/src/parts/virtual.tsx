/** A list of which only the visible part is in the page. Rows have their own heights; keeps the scroll position itself. */
import * as React from 'react';

const BEYOND = 4; // rows outside the visible part that are drawn, too, so that fast scrolling shows no gap

export interface IVirtualProps<T> {
  readonly items: readonly T[];
  readonly height: (item: T) => number;
  readonly identity: (item: T) => string;
  readonly render: (item: T, index: number) => JSX.Element;
  /** The element that scrolls; the list looks for it upwards. */
  readonly className?: string;
  readonly role?: string;
  readonly label?: string;
}

/** Which rows are visible, and the position of the first of them. Pure. */
export function inSight(tops: readonly number[], from: number, to: number): [number, number] {
  let low = 0;
  let high = tops.length - 1; // the last entry is the whole height
  while (low < high) {
    const half = (low + high) >> 1;
    if ((tops[half + 1] ?? Number.POSITIVE_INFINITY) <= from) {
      low = half + 1;
    } else {
      high = half;
    }
  }
  let end = low;
  while (end < tops.length - 1 && (tops[end] as number) < to) {
    end += 1;
  }
  return [Math.max(0, low - BEYOND), Math.min(tops.length - 1, end + BEYOND)];
}

export function Virtual<T>(props: IVirtualProps<T>): JSX.Element {
  const { items, height, identity, render } = props;
  const ref = React.useRef<HTMLDivElement>(null);
  const [sight, setSight] = React.useState<readonly [number, number]>([0, 800]);
  const tops = React.useMemo(() => {
    const out = [0];
    for (const item of items) {
      out.push((out[out.length - 1] as number) + height(item));
    }
    return out;
  }, [items, height]);
  React.useEffect(() => {
    const own = ref.current;
    const scroller = own?.closest<HTMLElement>('.mgp-scroll');
    if (!own || !scroller) {
      return;
    }
    const look = (): void => {
      const from = scroller.getBoundingClientRect().top - own.getBoundingClientRect().top;
      const next: [number, number] = [from, from + scroller.clientHeight];
      setSight((before) => (before[0] === next[0] && before[1] === next[1] ? before : next));
    };
    look();
    scroller.addEventListener('scroll', look, { passive: true });
    const sizes = new ResizeObserver(look);
    sizes.observe(scroller);
    return () => {
      scroller.removeEventListener('scroll', look);
      sizes.disconnect();
    };
  }, []);
  const [first, end] = inSight(tops, sight[0], sight[1]);
  return (
    <div
      ref={ref}
      className={props.className}
      role={props.role}
      aria-label={props.label}
      aria-rowcount={props.role === 'grid' ? items.length : undefined}
      style={{ height: tops[tops.length - 1], position: 'relative' }}
    >
      {items.slice(first, end).map((item, number) => (
        <div
          key={identity(item)}
          role={props.role === 'grid' ? 'presentation' : undefined}
          style={{ position: 'absolute', top: tops[first + number], left: 0, right: 0, height: height(item) }}
        >
          {render(item, first + number)}
        </div>
      ))}
    </div>
  );
}
