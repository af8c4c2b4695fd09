/** What is shown in place of data: first run, loading, no connection, no master. Says the state, what happens next, and what to press. */
import * as React from 'react';
import type { JoinToken } from '../api/types.gen';
import { CommandIds } from '../commands';
import { Glyph, gpuIcon } from '../parts/glyphs';
import { useConnection, useMgpu, useNow } from '../parts/hooks';
import { clock, plain } from '../text/format';

const SKELETON_MS = 300;

/** The line at the top when the data is not live. */
export function Banner(): JSX.Element | null {
  const { trans, live, commands } = useMgpu();
  const connection = useConnection();
  const now = useNow(1);
  if (connection.state === 'stale') {
    const wait = connection.retryAt === null ? 0 : Math.max(0, Math.ceil(connection.retryAt - now));
    const since = connection.heardAt === null ? '' : trans.__(' since %1', clock(connection.heardAt, true));
    return (
      <div className="mgp-banner mgp-mod-warn" role="status">
        <Glyph name="warn" tone="warn" />
        <div>
          <b>{trans.__('No connection to the Jupyter server%1.', since)}</b> {trans.__('Running jobs go on.')}{' '}
          {connection.retryAt === null ? trans.__('Trying now.') : trans.__('Trying again in %1 s.', wait)}
          <div className="mgp-buttons">
            <button type="button" className="mgp-button" onClick={() => void commands.execute(CommandIds.refresh)}>
              {trans.__('Try now')}
            </button>
          </div>
        </div>
      </div>
    );
  }
  if (connection.state === 'signed-out') {
    return (
      <div className="mgp-banner mgp-mod-warn" role="status">
        <Glyph name="warn" tone="warn" />
        <div>
          <b>{trans.__('You are signed out.')}</b> {trans.__('Sign in again; jobs go on.')}
          <div className="mgp-buttons">
            <button type="button" className="mgp-button" onClick={() => window.location.reload()}>
              {trans.__('Sign in')}
            </button>
          </div>
        </div>
      </div>
    );
  }
  if (connection.state === 'stopped') {
    return (
      <div className="mgp-banner mgp-mod-bad" role="status">
        <Glyph name="bad" tone="bad" />
        <div>
          <b>{trans.__('The mgpu master does not answer.')}</b>{' '}
          {trans.__('The Jupyter server is up, but its scheduler stopped. Running jobs go on; new ones cannot start.')}
          <div className="mgp-buttons">
            <button type="button" className="mgp-button" onClick={() => live.tryNow()}>
              {trans.__('Try now')}
            </button>
            <button type="button" className="mgp-button" onClick={() => void navigator.clipboard.writeText(connection.problem)}>
              <Glyph name="copy" size={13} /> {trans.__('Copy details')}
            </button>
          </div>
          {connection.problem && (
            <details>
              <summary>{trans.__('Details')}</summary>
              <code className="mgp-details">{plain(connection.problem)}</code>
            </details>
          )}
        </div>
      </div>
    );
  }
  return null;
}

/** Grey placeholders with the heights of what replaces them; not for short waits. */
export function Skeleton({ rows, tiles }: { rows: number; tiles: boolean }): JSX.Element | null {
  const [late, setLate] = React.useState(false);
  React.useEffect(() => {
    const timer = window.setTimeout(() => setLate(true), SKELETON_MS);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <div className="mgp-skeleton" aria-hidden="true" style={{ visibility: late ? 'visible' : 'hidden' }}>
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} className={tiles ? 'mgp-skeleton-node' : 'mgp-skeleton-job'}>
          <i />
          <i />
          {tiles && (
            <span>
              {Array.from({ length: 8 }, (_, tile) => (
                <u key={tile} />
              ))}
            </span>
          )}
        </div>
      ))}
    </div>
  );
}

/** No machine has joined yet. */
export function FirstRun(): JSX.Element {
  const { trans, live } = useMgpu();
  const admin = live.store.cluster?.admin ?? false;
  return (
    <div className="mgp-first">
      <gpuIcon.react tag="div" width="32px" height="32px" />
      <h3>{trans.__('No machines yet')}</h3>
      {admin ? <JoinLine /> : <p className="mgp-second">{trans.__('Ask an administrator to add a machine.')}</p>}
    </div>
  );
}

/** Makes a line with which one machine joins. Only on request: it is a secret, and it opens the link to other machines. */
export function JoinLine(): JSX.Element {
  const { trans, client } = useMgpu();
  const [token, setToken] = React.useState<JoinToken | null>(null);
  const [error, setError] = React.useState('');
  const [copied, setCopied] = React.useState(false);
  const make = (): void => {
    setCopied(false);
    client.joinToken().then(
      (made) => {
        setError('');
        setToken(made);
      },
      (refused: Error) => setError(refused.message),
    );
  };
  const line = token === null ? '' : `pip install mgpu-jupyter && ${token.command}`;
  return (
    <div className="mgp-join">
      <p className="mgp-second">{trans.__('Paste this line into a terminal on a machine with GPUs. It appears here within seconds.')}</p>
      {token !== null && <pre className="mgp-join-line">{plain(line)}</pre>}
      <div className="mgp-buttons">
        {token === null ? (
          <button type="button" className="mgp-button mgp-mod-primary" onClick={make}>
            {trans.__('Make join line')}
          </button>
        ) : (
          <>
            <button
              type="button"
              className="mgp-button mgp-mod-primary"
              onClick={() => void navigator.clipboard.writeText(line).then(() => setCopied(true))}
            >
              <Glyph name="copy" size={13} /> {copied ? trans.__('Copied') : trans.__('Copy join line')}
            </button>
            <button type="button" className="mgp-button" onClick={make}>
              {trans.__('New line')}
            </button>
          </>
        )}
      </div>
      {token !== null && <p className="mgp-second">{trans.__('Good for one machine, until %1.', clock(token.expires_at))}</p>}
      {token?.message && <p className="mgp-second">{plain(token.message)}</p>}
      {error && (
        <p role="alert">
          <Glyph name="bad" tone="bad" size={12} /> {plain(error)}
        </p>
      )}
    </div>
  );
}
