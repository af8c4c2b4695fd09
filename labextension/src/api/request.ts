/** The one place for HTTP: paths below the API's prefix in, typed answers or a `RequestError` out. Keeps no state. */
import type { ErrorBody } from './types.gen';
import { PREFIX } from './types.gen';

/** How a request is sent; JupyterLab's own function adds the token and the XSRF header. */
export type Send = (url: string, init: RequestInit) => Promise<Response>;

/** What went wrong, in the server's own words; `status` 0 means that the server was not reached. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
  ) {
    super(message);
    this.name = 'RequestError';
  }

  /** Nobody answered, or a proxy did. */
  get isUnreachable(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 504;
  }

  /** The session of this page is over. */
  get isSignedOut(): boolean {
    return this.status === 401 || this.code === 'unauthorised';
  }
}

export type Query = Record<string, string | number | boolean | undefined>;

/** Join the parts of an address; undefined ones are left out. */
export function address(base: string, path: string, query: Query = {}): string {
  const words = Object.entries(query)
    .filter((pair): pair is [string, string | number | boolean] => pair[1] !== undefined)
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`);
  const slash = base.endsWith('/') ? '' : '/';
  return `${base}${slash}${PREFIX}/${path}${words.length ? `?${words.join('&')}` : ''}`;
}

/** A fetch client for one server. */
export class Rest {
  constructor(
    private readonly _base: string,
    private readonly _send: Send,
  ) {}

  async get<T>(path: string, query: Query = {}): Promise<T> {
    return this.ask<T>('GET', path, { query });
  }

  async ask<T>(method: string, path: string, given: { query?: Query; body?: unknown; headers?: Record<string, string> } = {}): Promise<T> {
    const response = await this.raw(method, path, given);
    const text = await response.text();
    try {
      return JSON.parse(text) as T;
    } catch {
      throw new RequestError(
        response.status,
        'bad-answer',
        'The server did not answer in JSON: is there a proxy that shows a page of its own?',
      );
    }
  }

  /** Return the answer as it is; throw unless it is a success. */
  async raw(
    method: string,
    path: string,
    given: { query?: Query; body?: unknown; headers?: Record<string, string> } = {},
  ): Promise<Response> {
    const init: RequestInit = { method, headers: { ...given.headers } };
    if (given.body !== undefined) {
      init.body = JSON.stringify(given.body);
      init.headers = { 'Content-Type': 'application/json', ...given.headers };
    } else if (method !== 'GET') {
      init.body = '';
    }
    let response: Response;
    try {
      response = await this._send(address(this._base, path, given.query), init);
    } catch {
      throw new RequestError(0, 'unreachable', 'There is no connection to the Jupyter server.');
    }
    if (!response.ok) {
      throw await failure(response);
    }
    return response;
  }
}

async function failure(response: Response): Promise<RequestError> {
  const text = await response.text().catch(() => '');
  try {
    const body = JSON.parse(text) as Partial<ErrorBody>;
    if (typeof body.message === 'string') {
      return new RequestError(response.status, String(body.code ?? ''), body.message, body.details ?? {});
    }
  } catch {
    // no JSON: the answer is not from mgpu
  }
  return new RequestError(
    response.status,
    'no-message',
    `The server answered with ${[response.status, response.statusText].filter(Boolean).join(' ')}.`,
  );
}
