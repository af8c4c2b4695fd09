/** Why a job waits, when it will start, and small changes that start it sooner. */
import * as React from 'react';
import type { Explanation, Job, Offer } from '../api/types.gen';
import { CommandIds } from '../commands';
import { planOf } from '../model/plan';
import { Glyph } from '../parts/glyphs';
import { useAnswer, useChanges, useMgpu } from '../parts/hooks';
import { freshKey, tell } from '../plugins/tell';
import { clock, moment, plain, size } from '../text/format';
import { backfill, goneText, headline, howSure, inTheWay, nodeWhen, offerWords, reasonText } from '../text/reasons';
import { jobName } from '../text/words';
import { PlanChart } from './plan';

const AGAIN_S = 10;

export function ExplainView({ job }: { job: Job }): JSX.Element {
  const { trans, client, live, commands } = useMgpu();
  useChanges((changes) => changes.queue || changes.cluster);
  const { answer, error } = useAnswer(
    () => client.explain(job.id),
    `${job.id} ${job.state} ${job.seq}`,
    job.state === 'queued' ? AGAIN_S : 0,
  );
  if (answer === null) {
    return <p className="mgp-none">{error ? plain(error) : trans.__('Looking ahead…')}</p>;
  }
  const now = live.now();
  const waits = answer.verdict === 'not_now' || answer.verdict === 'never';
  const last = inTheWay(answer, live.store, now, trans);
  const plan = planOf(answer, now);
  return (
    <div className="mgp-columns mgp-explain">
      <div>
        <h2 className="mgp-title">{headline(answer, now, trans)}</h2>
        <p>
          {waits ? reasonText(answer) : plain(answer.text)}{' '}
          {last && (
            <>
              {last.before}
              <button type="button" className="mgp-link" onClick={() => void commands.execute(CommandIds.openJob, { id: last.job.id })}>
                {jobName(last.job)}
              </button>
              {last.after}
            </>
          )}
        </p>
        {plan && (
          <section className="mgp-frame">
            <h3>{trans.__('What happens until then')}</h3>
            <PlanChart plan={plan} />
          </section>
        )}
        {answer.ahead_count > 0 && <Ahead answer={answer} job={job} now={now} />}
        {answer.units.length > 0 && <NodeByNode answer={answer} now={now} />}
        {answer.priority !== null && <Priority answer={answer} />}
      </div>
      {job.state === 'queued' ? (
        <aside aria-label={trans.__('Small changes that start it sooner')}>
          <Offers job={job} offers={answer.offers} />
          <TellMe job={job} expected={answer.expected.at} />
          {waits && answer.verdict !== 'never' && (
            <section className="mgp-frame">
              <h3>
                {answer.expected.at === null
                  ? trans.__('Why is the start not known?')
                  : trans.__('How sure is %1?', moment(answer.expected.at, now))}
              </h3>
              <p className="mgp-second">{howSure(answer, live.store, trans)}</p>
            </section>
          )}
        </aside>
      ) : (
        <aside />
      )}
    </div>
  );
}

function Ahead({ answer, job, now }: { answer: Explanation; job: Job; now: number }): JSX.Element {
  const { trans, live, commands } = useMgpu();
  const { store } = live;
  const overtakes = backfill(answer, store, now, trans);
  const when = (one: Job | undefined): string => {
    const at = one === undefined ? null : store.expectedStart(one);
    return at === null ? '–' : moment(Math.max(at, now), now);
  };
  const left = answer.ahead_count - answer.ahead.length;
  return (
    <section className="mgp-frame">
      <h3>
        {trans.__('Ahead in the queue')} <span className="mgp-second">{trans._n('%1 job', '%1 jobs', answer.ahead_count)}</span>
      </h3>
      <table className="mgp-table">
        <thead>
          <tr>
            <th>{trans.__('Place')}</th>
            <th>{trans.__('Job')}</th>
            <th>{trans.__('User')}</th>
            <th>{trans.__('Size')}</th>
            <th className="mgp-right">{trans.__('Priority')}</th>
            <th className="mgp-right">{trans.__('Expected start')}</th>
          </tr>
        </thead>
        <tbody>
          {answer.ahead.map((one, index) => {
            const other = store.jobs.get(one.job_id);
            return (
              <tr key={one.job_id}>
                <td className="mgp-number">{index + 1}</td>
                <td>
                  <button type="button" className="mgp-link" onClick={() => void commands.execute(CommandIds.openJob, { id: one.job_id })}>
                    {other ? jobName(other) : one.job_id}
                  </button>
                </td>
                <td>{plain(one.user)}</td>
                <td className="mgp-number">{other ? size(other.nodes_wanted, other.gpus) : one.gpus}</td>
                <td className="mgp-number mgp-right">{points(one.priority)}</td>
                <td className="mgp-number mgp-right">{when(other)}</td>
              </tr>
            );
          })}
          {left > 0 && (
            <tr>
              <td />
              <td colSpan={5}>{trans._n('%1 more', '%1 more', left)}</td>
            </tr>
          )}
          <tr className="mgp-mod-chosen">
            <td className="mgp-number">{answer.place ?? ''}</td>
            <td>
              <b>{jobName(job)}</b>
            </td>
            <td>{plain(job.user)}</td>
            <td className="mgp-number">{size(job.nodes_wanted, job.gpus)}</td>
            <td className="mgp-number mgp-right">{answer.priority === null ? '' : points(answer.priority)}</td>
            <td className="mgp-number mgp-right">
              <b>{answer.expected.at === null ? '–' : moment(Math.max(answer.expected.at, now), now)}</b>
            </td>
          </tr>
        </tbody>
      </table>
      {overtakes && <p className="mgp-second">{overtakes}</p>}
    </section>
  );
}

/** Priorities are hours of waiting: a few digits are enough to tell them apart. */
function points(value: number): string {
  return value.toFixed(2);
}

function NodeByNode({ answer, now }: { answer: Explanation; now: number }): JSX.Element {
  const { trans, live } = useMgpu();
  const able = answer.units.reduce((sum, unit) => Math.max(sum, unit.would_do), 0);
  return (
    <details className="mgp-frame" open>
      <summary>
        <b>{trans.__('Node by node')}</b>{' '}
        <span className="mgp-second">{trans.__('%1 of %2 can take a part now', able, live.store.nodes.size)}</span>
      </summary>
      <table className="mgp-table">
        <tbody>
          {answer.units.map((unit) => (
            <React.Fragment key={unit.first}>
              {answer.units.length > 1 && (
                <tr>
                  <td colSpan={3}>{plain(unit.needs)}</td>
                </tr>
              )}
              {unit.excluded.flatMap((one) => {
                const when = (node: string): string =>
                  one.never ? trans.__('not without a change') : nodeWhen(answer, node, live.store, now, trans);
                return [...new Set(one.nodes.map(when))].map((text, index) => (
                  <tr key={`${one.check} ${text}`}>
                    <td className="mgp-glyph-column">
                      <Glyph
                        name={one.never ? 'cancelled' : 'queued'}
                        size={13}
                        label={one.never ? trans.__('never') : trans.__('not now')}
                      />
                    </td>
                    <td>
                      {one.nodes
                        .filter((node) => when(node) === text)
                        .map(plain)
                        .join(', ')}
                      {index === 0 && one.count > one.nodes.length ? ` + ${one.count - one.nodes.length}` : ''}:{' '}
                      {one.never ? trans.__('never; ') : ''}
                      {plain(one.text).replace(/\.$/, '')}
                    </td>
                    <td className="mgp-second mgp-right">{text}</td>
                  </tr>
                ));
              })}
            </React.Fragment>
          ))}
        </tbody>
      </table>
    </details>
  );
}

function Priority({ answer }: { answer: Explanation }): JSX.Element {
  const { trans } = useMgpu();
  const counted = answer.terms.filter((term) => Math.abs(term.points) >= 0.005).sort((a, b) => Math.abs(b.points) - Math.abs(a.points));
  const most = Math.max(0.01, ...counted.map((term) => Math.abs(term.points)));
  return (
    <details className="mgp-frame">
      <summary>
        <b>{trans.__('Priority %1', points(answer.priority ?? 0))}</b>{' '}
        <span className="mgp-second">
          {counted.map((term) => `${plain(term.name)} ${points(term.points)}`).join(', ') || trans.__('nothing counts')}
          {trans.__('; in hours of waiting')}
        </span>
      </summary>
      <table className="mgp-table">
        <tbody>
          {counted.map((term) => (
            <tr key={term.name}>
              <td>{plain(term.name)}</td>
              <td>
                <span className="mgp-meter" aria-hidden="true">
                  <i style={{ width: `${(Math.abs(term.points) / most) * 100}%` }} />
                </span>
              </td>
              <td className="mgp-number mgp-right">
                <b>{points(term.points)}</b>
              </td>
              <td className="mgp-second mgp-number mgp-right">{term.amount.toFixed(2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

function Offers({ job, offers }: { job: Job; offers: readonly Offer[] }): JSX.Element {
  const { trans, client, commands, live } = useMgpu();
  const [busy, setBusy] = React.useState(false);
  const [gone, setGone] = React.useState<{ text: string; offers: readonly Offer[] } | null>(null);
  React.useEffect(() => setGone(null), [offers]);
  const shown = gone?.offers ?? offers;
  const checked = React.useMemo(() => live.now(), [shown]); // when these arrived
  const take = async (offer: Offer): Promise<void> => {
    setBusy(true);
    try {
      // offers are about this moment: one that is some seconds old may no longer be valid
      const fresh = (await client.explain(job.id)).offers;
      const same = fresh.find((one) => JSON.stringify(one.patch) === JSON.stringify(offer.patch));
      if (same === undefined) {
        setGone({ text: goneText(offer, trans), offers: fresh });
        return;
      }
      const made = await client.replace(job.id, same.patch, freshKey());
      await commands.execute(CommandIds.openJob, { id: made.job_id });
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <h3>{trans.__('Small changes that start it sooner')}</h3>
      <p className="mgp-second">
        {shown.length === 0
          ? trans.__('No small change starts it sooner.')
          : trans.__('Checked against the queue at %1. Nobody ahead is delayed.', clock(checked, true))}
      </p>
      {gone && (
        <p role="status">
          <Glyph name="warn" tone="warn" size={13} /> {gone.text}
        </p>
      )}
      {shown.map((offer, index) => {
        const { title, cost } = offerWords(offer, job, live.store.nodes, trans);
        return (
          <div className="mgp-frame mgp-offer" key={offer.text} title={plain(offer.text)}>
            <div>
              <b>{title}</b> <span className="mgp-accent">{trans.__('now')}</span>
              <div className="mgp-second">{cost}</div>
              <code>{offer.flags.map(plain).join(' ')}</code>
            </div>
            <button
              type="button"
              className={`mgp-button${index === 0 ? ' mgp-mod-primary' : ''}`}
              aria-label={`${trans.__('Start now')}: ${title}`}
              disabled={busy}
              onClick={() => void take(offer)}
            >
              {trans.__('Start now')}
            </button>
          </div>
        );
      })}
      {shown.length > 0 && (
        <p className="mgp-second">
          {trans.__('The changed job starts in the place of this one, under an id of its own; this one is cancelled.')}
        </p>
      )}
    </>
  );
}

function TellMe({ job, expected }: { job: Job; expected: number | null }): JSX.Element {
  const { trans, wishes, settings } = useMgpu();
  const [, rise] = React.useReducer((count: number) => count + 1, 0);
  const wish = wishes.of(job.id);
  const set = (more: Parameters<typeof wishes.set>[1]): void => {
    wishes.set(job.id, { ...wish, ...more });
    rise();
  };
  return (
    <section className="mgp-frame mgp-tell">
      <h3>{trans.__('Tell me')}</h3>
      <label>
        <input
          type="checkbox"
          checked={wish.start ?? (settings.notify && settings.tells.start)}
          onChange={(event) => set({ start: event.target.checked })}
        />{' '}
        {trans.__('when it starts')}
      </label>
      <label>
        <input
          type="checkbox"
          checked={wish.expected !== undefined}
          disabled={expected === null && wish.expected === undefined}
          onChange={(event) => set({ expected: event.target.checked && expected !== null ? expected : undefined })}
        />{' '}
        {trans.__('when the expected start moves by more than 10 min')}
      </label>
    </section>
  );
}
