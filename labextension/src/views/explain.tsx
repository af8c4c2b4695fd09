/** Why a job waits, when it will start, and small changes that start it sooner. */
import * as React from 'react';
import type { Explanation, Job, Offer, Where } from '../api/types.gen';
import { CommandIds } from '../commands';
import { Glyph } from '../parts/glyphs';
import { useAnswer, useMgpu } from '../parts/hooks';
import { freshKey, tell } from '../plugins/tell';
import { duration, grouped, moment, plain, ranges } from '../text/format';

export function whereText(where: readonly Where[]): string {
  return where.map((one) => `${plain(one.node)}${one.gpus.length ? ` (GPU ${ranges(one.gpus)})` : ''}`).join(', ');
}

/** The first line: when, and where. */
export function headline(answer: Explanation, now: number, trans: ReturnType<typeof useMgpu>['trans']): string {
  const on = answer.where.length ? trans.__(' on %1', answer.where.map((one) => plain(one.node)).join(', ')) : '';
  switch (answer.verdict) {
    case 'now':
      return trans.__('Starts now%1.', on);
    case 'never':
      return trans.__('Can never start here.');
    case 'not_now': {
      const at = answer.expected.at;
      return at === null ? trans.__('Start not known.') : trans.__('Starts at about %1, in %2%3.', moment(at, now), duration(at - now), on);
    }
    case 'started':
      return trans.__('It started%1.', on);
    case 'over':
      return trans.__('It is over.');
  }
}

export function ExplainView({ job }: { job: Job }): JSX.Element {
  const { trans, client, live } = useMgpu();
  const { answer, error } = useAnswer(() => client.explain(job.id), `${job.id} ${job.state} ${job.seq}`, job.state === 'queued' ? 10 : 0);
  if (answer === null) {
    return <p className="mgp-none">{error ? plain(error) : trans.__('Looking ahead…')}</p>;
  }
  return (
    <div className="mgp-columns">
      <div>
        <h2 className="mgp-title">{headline(answer, live.now(), trans)}</h2>
        <p>{plain(answer.text)}</p>
        {answer.ahead_count > 0 && (
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
                  <th>{trans.__('GPUs')}</th>
                </tr>
              </thead>
              <tbody>
                {answer.ahead.map((one) => (
                  <tr key={one.job_id}>
                    <td>{live.store.place(one.job_id) ?? ''}</td>
                    <td>{plain(live.store.jobs.get(one.job_id)?.name || one.job_id)}</td>
                    <td>{plain(one.user)}</td>
                    <td className="mgp-number">{one.gpus}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        )}
        {answer.units.length > 0 && (
          <details className="mgp-frame" open>
            <summary>{trans.__('Node by node')}</summary>
            {answer.units.map((unit) => (
              <div key={unit.first}>
                <p>
                  {plain(unit.needs)} <span className="mgp-second">{trans.__('%1 nodes would do now', unit.would_do)}</span>
                </p>
                <ul className="mgp-plain">
                  {unit.excluded.map((one) => (
                    <li key={one.check}>
                      <Glyph
                        name={one.never ? 'cancelled' : 'queued'}
                        size={13}
                        label={one.never ? trans.__('never') : trans.__('not now')}
                      />{' '}
                      {one.nodes.map(plain).join(', ')}
                      {one.count > one.nodes.length ? ` + ${one.count - one.nodes.length}` : ''}: {plain(one.text)}
                    </li>
                  ))}
                </ul>
              </div>
            ))}
          </details>
        )}
        {answer.priority !== null && (
          <details className="mgp-frame">
            <summary>{trans.__('Priority %1', grouped(answer.priority))}</summary>
            <ul className="mgp-plain">
              {answer.terms.map((term) => (
                <li key={term.name}>
                  {plain(term.name)}: <span className="mgp-number">{term.points.toFixed(2)}</span>
                </li>
              ))}
            </ul>
          </details>
        )}
      </div>
      <Offers job={job} offers={answer.offers} />
    </div>
  );
}

function Offers({ job, offers }: { job: Job; offers: readonly Offer[] }): JSX.Element {
  const { trans, client, commands } = useMgpu();
  const [busy, setBusy] = React.useState(false);
  if (job.state !== 'queued') {
    return <aside />;
  }
  const take = (offer: Offer): void => {
    setBusy(true);
    client.replace(job.id, offer.patch, freshKey()).then(
      (made) => void commands.execute(CommandIds.openJob, { id: made.job_id }),
      (error: Error) => {
        setBusy(false);
        tell(error.message);
      },
    );
  };
  return (
    <aside aria-label={trans.__('Small changes that start it now')}>
      <h3>{trans.__('Small changes that start it now')}</h3>
      {offers.length === 0 && <p className="mgp-second">{trans.__('No small change starts it sooner.')}</p>}
      {offers.map((offer) => (
        <div className="mgp-frame mgp-offer" key={offer.text}>
          <div>
            <b>{plain(offer.text)}</b>
            <div className="mgp-second">{whereText(offer.where)}</div>
            <code>{offer.flags.map(plain).join(' ')}</code>
          </div>
          <button type="button" className="mgp-button mgp-mod-primary" disabled={busy} onClick={() => take(offer)}>
            {trans.__('Start now')}
          </button>
        </div>
      ))}
      {offers.length > 0 && <p className="mgp-second">{trans.__('A job with the change takes the place of this one, under a new id.')}</p>}
    </aside>
  );
}
