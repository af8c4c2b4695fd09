/** How a job uses its GPUs: asked and used, a plot for each, power. */
import * as React from 'react';
import type { GpuUsage, Job } from '../api/types.gen';
import { isSlow, jobPower } from '../model/select';
import { isFinal } from '../model/store';
import { Glyph } from '../parts/glyphs';
import { useAnswer, useChanges, useMgpu } from '../parts/hooks';
import { Sparkline } from '../parts/sparkline';
import { kilo, mebibytes, middle, percent, plain } from '../text/format';

const SHOWN = 64;

export function Rail({ job }: { job: Job }): JSX.Element {
  const { trans, client } = useMgpu();
  const { answer, error } = useAnswer(() => client.usage(job.id), `${job.id} ${job.state}`, isFinal(job) ? 0 : 5);
  if (answer === null) {
    return <aside>{error && <p className="mgp-second">{plain(error)}</p>}</aside>;
  }
  const { gpus } = answer;
  return (
    <aside>
      <section className="mgp-frame">
        <h3>
          {trans.__('Efficiency')} <span className="mgp-second mgp-far">{trans.__('since start')}</span>
        </h3>
        <p className="mgp-asked">
          {trans.__('asked')} <b className="mgp-number">{answer.asked}</b>
          {answer.used !== null && (
            <>
              {trans.__(', used')} <b className="mgp-number">{answer.used.toFixed(1)}</b>
            </>
          )}
        </p>
        {answer.used !== null && answer.asked > 0 && <UsedBar asked={answer.asked} used={answer.used} />}
        {answer.hint && <p className="mgp-second">{plain(answer.hint)}</p>}
        {answer.message && <p className="mgp-second">{plain(answer.message)}</p>}
      </section>
      {gpus.length > 0 && (
        <section className="mgp-frame">
          <h3>
            {trans.__('GPUs')} <span className="mgp-second mgp-far mgp-keys">{trans.__('— busy  - - memory')}</span>
          </h3>
          <div className="mgp-gpu-row mgp-second">
            <span>{trans.__('GPU')}</span>
            <span>{trans.__('Rank')}</span>
            <span className="mgp-gpu-span">{isFinal(job) ? trans.__('whole run') : trans.__('since start')}</span>
          </div>
          {gpus.slice(0, SHOWN).map((gpu) => (
            <GpuRow key={gpu.uuid} gpu={gpu} slow={isSlow(gpu, gpus)} />
          ))}
          {gpus.length > SHOWN && <p className="mgp-second">{trans.__('%1 more GPUs', gpus.length - SHOWN)}</p>}
        </section>
      )}
      <Power job={job} wattHours={answer.energy_wh} />
    </aside>
  );
}

function GpuRow({ gpu, slow }: { gpu: GpuUsage; slow: boolean }): JSX.Element {
  const { trans } = useMgpu();
  const memory = gpu.memory[gpu.memory.length - 1] ?? gpu.memory_peak_mib;
  const busy = gpu.busy_mean === null ? '–' : percent(gpu.busy_mean);
  const name = `${plain(gpu.node)}:${gpu.index}`;
  return (
    <div className="mgp-gpu-row">
      <span title={name}>{middle(name, 11)}</span>
      <span className="mgp-second mgp-number">{gpu.rank ?? ''}</span>
      <Sparkline
        values={gpu.busy}
        other={gpu.memory}
        otherMost={gpu.memory_mib}
        width={88}
        height={26}
        tone="mine"
        label={trans.__('Busy %1 in the mean', busy)}
      />
      <b className="mgp-number mgp-right">
        {slow && <Glyph name="slow" tone="warn" size={10} label={trans.__('less than the others')} />} {busy}
      </b>
      <span className="mgp-second mgp-number mgp-right">{memory === null ? '' : mebibytes(memory)}</span>
    </div>
  );
}

function UsedBar({ asked, used }: { asked: number; used: number }): JSX.Element {
  const parts = Math.min(asked, 32);
  const full = (used / asked) * parts;
  return (
    <div className="mgp-used" aria-hidden="true">
      {Array.from({ length: parts }, (_, number) => (
        <i key={number} style={{ backgroundSize: `${Math.max(0, Math.min(1, full - number)) * 100}% 100%` }} />
      ))}
    </div>
  );
}

function Power({ job, wattHours }: { job: Job; wattHours: number | null }): JSX.Element | null {
  const { trans, live } = useMgpu();
  useChanges((changes) => job.nodes.some((node) => changes.readings.has(node)));
  const watts = isFinal(job) ? null : jobPower(live.store, job);
  const energy = wattHours === null ? '' : isFinal(job) ? kilo(wattHours, 'Wh') : trans.__('%1 so far', kilo(wattHours, 'Wh'));
  return watts === null && energy === '' ? null : (
    <section className="mgp-frame">
      <h3>
        {watts === null ? trans.__('Energy') : trans.__('Power')}{' '}
        <span className="mgp-second mgp-far mgp-number">
          {watts !== null && <b>{kilo(watts, 'W')}</b>}
          {watts !== null && energy !== '' && ', '}
          {energy}
        </span>
      </h3>
    </section>
  );
}
