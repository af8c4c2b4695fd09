/** What all views share: errors shown once, and keys with which a request that is sent twice is carried out once. */
import { Notification } from '@jupyterlab/apputils';
import { plain } from '../text/format';

const TOLD_MS = 5000; // the same sentence is not shown twice within this time
let last: { message: string; at: number } = { message: '', at: 0 };

/** Show what went wrong, once. */
export function tell(message: string): void {
  if (last.message === message && Date.now() - last.at < TOLD_MS) {
    return;
  }
  last = { message, at: Date.now() };
  Notification.error(plain(message), { autoClose: 8000 });
}

export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
