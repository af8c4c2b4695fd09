"""Histories made by hand, and random sound ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.checker.history import Fault, History, Run, Settings, Told

PLAIN = Settings()


def a_run(job: str = "A", attempt: int = 1, start: float = 1.0, end: float = 2.0, **more: Any) -> Run:
    """Return a process; its code is 0 unless said otherwise."""
    values: dict[str, Any] = {
        "epoch": attempt,
        "rank": 0,
        "ranks": 1,
        "node": "n1",
        "host": "h",
        "boot": "b",
        "born": 7,
        "gpus": (),
    }
    values |= {"pid": 100 + 10 * attempt + more.get("rank", 0), "code": 0}
    return Run(job=job, attempt=attempt, started_at=start, seen_at=end, **(values | more))


def a_told(
    job: str = "A", state: str = "completed", attempt: int = 1, at: float = 3.0, code: int | None = 0
) -> Told:
    """Return what the API said."""
    return Told(job, state, attempt, code, at)


def a_history(
    *parts: Run | Told | Fault, jobs: tuple[str, ...] = ("A",), settings: Settings = PLAIN, **more: Any
) -> History:
    """Return a history in which `jobs` were acknowledged under keys of their own."""
    return History(
        settings=settings,
        asked={f"key-{job}": {"key": f"key-{job}"} for job in jobs},
        acknowledged=[(f"key-{job}", job, 0.5) for job in jobs],
        runs=[part for part in parts if isinstance(part, Run)],
        told=[part for part in parts if isinstance(part, Told)],
        faults=[part for part in parts if isinstance(part, Fault)],
        **more,
    )


@st.composite
def sound_histories(draw: st.DrawFn) -> History:
    """Draw what an honest cluster could have done: jobs on GPUs of their own, lost nodes, retries, cancels,
    gangs.
    """
    retries = draw(st.integers(0, 2))
    delays = tuple(draw(st.lists(st.floats(0.0, 5.0), min_size=retries, max_size=retries)))
    history = History(
        settings=Settings(kill_grace_s=1.0, retries=retries, retry_delays_s=delays, gang_limit_s=1.0)
    )
    free_at: dict[str, float] = {}
    epoch = 0
    for number in range(draw(st.integers(0, 6))):
        job, now = f"J{number}", draw(st.floats(0.0, 50.0))
        ranks = draw(st.integers(1, 3))
        history.asked[job] = {"key": job, "ranks": ranks}
        history.acknowledged += [(job, job, now)] * draw(st.integers(1, 2))
        history.told.append(Told(job, "queued", 0, None, now))
        attempt = tried = 0
        while True:
            attempt, epoch = attempt + 1, epoch + 1
            gpus = [f"GPU-{(number + rank) % 4}" for rank in range(ranks)]
            began = max([now, *(free_at.get(gpu, 0.0) for gpu in gpus)]) + draw(st.floats(0.001, 2.0))
            length = draw(st.floats(0.0, 10.0))
            how = draw(st.sampled_from(["well", "badly", "lost", "cancelled"]))
            code = {"well": 0, "badly": 3, "lost": None, "cancelled": 143}[how]
            for rank in range(ranks):
                values = {
                    "epoch": epoch,
                    "rank": rank,
                    "ranks": ranks,
                    "gpus": (gpus[rank],),
                    "code": code,
                    "node": f"n{number}",
                }
                history.runs.append(a_run(job, attempt, began, began + length, **values))
                free_at[gpus[rank]] = began + length
            now = began + length
            if how == "lost":
                history.faults.append(Fault("node-lost", f"n{number}", now))
                continue
            if how == "badly" and tried < retries:
                now, tried = now + delays[tried] + 0.01, tried + 1
                continue
            state = {"well": "completed", "badly": "failed", "cancelled": "cancelled"}[how]
            history.told += [Told(job, state, attempt, code, now + 0.5)] * draw(st.integers(1, 3))
            break
    return history
