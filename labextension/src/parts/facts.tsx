/** Facts about a subject side by side: a name over its value. */
import * as React from 'react';

export function FactRow({ facts }: { facts: readonly (readonly [string, React.ReactNode])[] }): JSX.Element {
  return (
    <dl className="mgp-fact-row">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="mgp-number">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Exclusive choices as a row of buttons; arrow keys move between them. */
export function Switch<T extends string | number>({
  label,
  choices,
  value,
  set,
}: {
  label: string;
  choices: readonly (readonly [T, string])[];
  value: T;
  set: (value: T) => void;
}): JSX.Element {
  const row = React.useRef<HTMLDivElement>(null);
  const move = (event: React.KeyboardEvent, step: number): void => {
    const at = choices.findIndex(([one]) => one === value);
    const next = choices[(at + step + choices.length) % choices.length];
    if (next !== undefined) {
      event.preventDefault();
      set(next[0]);
      row.current?.querySelectorAll('button')[choices.indexOf(next)]?.focus();
    }
  };
  return (
    <div
      ref={row}
      className="mgp-switch"
      role="radiogroup"
      aria-label={label}
      onKeyDown={(event) => {
        if (event.key === 'ArrowRight' || event.key === 'ArrowDown') {
          move(event, 1);
        } else if (event.key === 'ArrowLeft' || event.key === 'ArrowUp') {
          move(event, -1);
        }
      }}
    >
      {choices.map(([one, text]) => (
        <button
          key={one}
          type="button"
          role="radio"
          aria-checked={one === value}
          tabIndex={one === value ? 0 : -1}
          onClick={() => set(one)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** A toggle button. */
export function Chip({ on, set, children }: { on: boolean; set: () => void; children: React.ReactNode }): JSX.Element {
  return (
    <button type="button" className="mgp-chip" aria-pressed={on} onClick={set}>
      {children}
    </button>
  );
}
