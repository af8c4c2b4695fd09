"""The ten rules: each is a function from a history to one sentence for every violation. Knows nothing of how
mgpu works.

A process counts as alive only while it says so itself, so each sentence is certain; what nobody wrote down is
not held against mgpu.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.checker.history import History, Run, Told

MARGIN_S = 2.0  # what rule 6 allows beyond the kill grace

Sentences = Iterator[str]


@dataclass(frozen=True)
class Violation:
    """A rule that was broken, and how."""

    rule: int
    sentence: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.sentence}"


def check(history: History) -> list[Violation]:
    """Return every violation of every rule."""
    return [Violation(number, sentence) for number, rule in RULES.items() for sentence in rule(history)]


def acknowledged_jobs_end(history: History) -> Sentences:
    """Rule 1: every acknowledged job reaches a final state; one key means one job."""
    finals, newest = history.finals(), {job: told[-1] for job, told in history.told_of().items()}
    jobs: dict[str, set[str]] = defaultdict(set)
    for key, job, _ in history.acknowledged:
        jobs[key].add(job)
    for key, ids in jobs.items():
        if len(ids) > 1:
            yield f"the key {key} was acknowledged as {' and '.join(sorted(ids))}"
    unknown = {job for job, _ in history.unknown}
    for job in sorted({job for ids in jobs.values() for job in ids}):
        if job in unknown:
            yield f"job {job} was acknowledged, and later the API knew no such job"
        elif job not in finals:
            last = (
                f"the last that was told is {newest[job].state}"
                if job in newest
                else "nothing was told of it afterwards"
            )
            yield f"job {job} was acknowledged and reached no final state: {last}"


def one_start_each(history: History) -> Sentences:
    """Rule 2: starts(job, attempt, rank) <= 1."""
    starts: dict[tuple[str, int, int], list[Run]] = defaultdict(list)
    for run in history.runs:
        starts[run.job, run.attempt, run.rank].append(run)
    for (job, attempt, rank), runs in sorted(starts.items()):
        if len(runs) > 1:
            yield (
                f"job {job} attempt {attempt} rank {rank} was started {len(runs)} times: pids "
                f"{sorted(run.pid for run in runs)}"
            )


def attempts_never_overlap(history: History) -> Sentences:
    """Rule 3: two attempts of one job never overlap."""
    for job, runs in sorted(history.runs_of().items()):
        for number, one in enumerate(runs):
            for other in runs[number + 1 :]:
                if one.attempt != other.attempt and _overlap(one, other):
                    yield (
                        f"job {job}: {one.name} still lived {one.seen_at - other.started_at:.3f} s after "
                        f"{other.name} began"
                    )


def gpus_are_held_once(history: History) -> Sentences:
    """Rule 4: no GPU is held by two live ranks."""
    holders: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        for gpu in run.gpus:
            holders[gpu].append(run)
    for gpu, runs in sorted(holders.items()):
        runs.sort(key=lambda run: run.started_at)
        latest: Run | None = None
        for run in runs:
            # Processes of one attempt share what it was given on their node.
            are_mates = latest is not None and (latest.job, latest.attempt, latest.node) == (
                run.job,
                run.attempt,
                run.node,
            )
            if latest is not None and not are_mates and _overlap(latest, run):
                yield (
                    f"GPU {gpu} was held by job {latest.job} {latest.name} and by job {run.job} "
                    f"{run.name} at once"
                )
            latest = run if latest is None or run.seen_at > latest.seen_at else latest


def all_ranks_or_none(history: History) -> Sentences:
    """Rule 5: all ranks or none, under one epoch; when one is gone before its time, the others go with it."""
    finals = history.finals()
    for (job, attempt), runs in sorted(_attempts(history).items()):
        wanted, there = set(range(runs[0].ranks)), {run.rank for run in runs}
        if len({run.epoch for run in runs}) > 1:
            yield (
                f"job {job} attempt {attempt} has ranks of different epochs: "
                f"{sorted({run.epoch for run in runs})}"
            )
        if there - wanted:
            yield f"job {job} attempt {attempt} has ranks that nobody asked for: {sorted(there - wanted)}"
        final = finals.get(job)
        is_completed = final is not None and final.state == "completed" and final.attempt == attempt
        if missing := wanted - there:
            if is_completed:
                yield f"job {job} is completed, and its ranks {sorted(missing)} never started"
            yield from _ran_on(
                history,
                job,
                runs,
                min(run.started_at for run in runs),
                f"ranks {sorted(missing)} never started",
            )
        for gone in runs:
            if gone.code != 0:
                yield from _ran_on(
                    history,
                    job,
                    [run for run in runs if run is not gone],
                    gone.seen_at,
                    f"{gone.name} was gone",
                )


def nothing_outlives_its_job(history: History) -> Sentences:
    """Rule 6: no process of a finished job lives longer than kill grace + 2 s."""
    allowed = history.settings.kill_grace_s + MARGIN_S
    finals = history.finals()
    for run in history.runs:
        final = finals.get(run.job)
        if final is not None and run.seen_at > final.at + allowed:
            yield (
                f"job {run.job} was {final.state}, and {run.name} still lived "
                f"{run.seen_at - final.at:.1f} s later"
            )
    for seen in history.alive:
        final = finals.get(seen.job)
        if final is not None and seen.at > final.at + allowed:
            yield (
                f"job {seen.job} was {final.state}, and pid {seen.pid} with its mark was seen "
                f"{seen.at - final.at:.1f} s later"
            )


def epochs_rise(history: History) -> Sentences:
    """Rule 7: epochs strictly rise with the attempts of a job, and none is used twice."""
    epochs: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for run in history.runs:
        epochs[run.epoch].add((run.job, run.attempt))
    for epoch, users in sorted(epochs.items()):
        if len(users) > 1:
            yield (
                f"epoch {epoch} was used by "
                f"{', '.join(f'job {job} attempt {attempt}' for job, attempt in sorted(users))}"
            )
    for job, runs in sorted(history.runs_of().items()):
        by_attempt = sorted({(run.attempt, run.epoch) for run in runs})
        for (earlier, low), (later, high) in pairwise(by_attempt):
            if earlier != later and low >= high:
                yield (
                    f"job {job}: attempt {later} has epoch {high}, and attempt {earlier} before it had {low}"
                )


def the_exit_code_is_the_attempts(history: History) -> Sentences:
    """Rule 8: the exit code recorded is that of the current attempt."""
    runs_of = history.runs_of()
    for job, final in sorted(history.finals().items()):
        runs = runs_of.get(job, [])
        newest = max((run.attempt for run in runs), default=0)
        if newest > final.attempt:
            yield f"job {job} is {final.state} with attempt {final.attempt}, and its attempt {newest} ran"
        elif history.asked_for(job).get("witness", True):
            yield from _code_mismatch(history, final, [run for run in runs if run.attempt == final.attempt])


def retries_are_as_configured(history: History) -> Sentences:
    """Rule 9: a job runs again only for a cause: a retry that was configured, not before its time, or the
    loss of its node.
    """
    settings = history.settings
    for job, runs in sorted(history.runs_of().items()):
        retries = 0
        for earlier, later in pairwise(sorted({run.attempt for run in runs})):
            before = [run for run in runs if run.attempt == earlier]
            began = min(run.started_at for run in runs if run.attempt == later)
            is_partial = history.settings.starts_fail and not _is_whole(before)
            if (
                any(history.was_lost(run, began) for run in before)
                or history.lacked_a_node(before, began)
                or is_partial
            ):
                continue
            if not any(run.ended_by_itself and run.code for run in before):
                yield f"job {job} ran again as attempt {later} without a cause: {_ends(before)}"
                continue
            retries += 1
            if retries > settings.retries:
                yield (
                    f"job {job} ran again as attempt {later} after {_ends(before)}, and "
                    f"{settings.retries} retries are configured"
                )
                continue
            least = settings.retry_delays_s[retries - 1] if retries <= len(settings.retry_delays_s) else 0.0
            waited = began - max(run.seen_at for run in before)
            if waited < least:
                yield (
                    f"job {job} attempt {later} began {waited:.3f} s after the one before, and {least:g} "
                    f"s are configured"
                )


def nothing_leaves_a_final_state(history: History) -> Sentences:
    """Rule 10: nothing leaves a final state."""
    finals = history.finals()
    for job, told in sorted(history.told_of().items()):
        final = finals.get(job)
        for later in told:
            if final is not None and later.at > final.at and _outcome(later) != _outcome(final):
                yield f"job {job} was {_outcome(final)}, and later {_outcome(later)}"
    for run in history.runs:
        final = finals.get(run.job)
        if final is not None and run.started_at > final.at:
            yield (
                f"job {run.job} was {final.state}, and {run.name} began {run.started_at - final.at:.3f} s "
                f"later"
            )


RULES: dict[int, Callable[[History], Sentences]] = {
    1: acknowledged_jobs_end,
    2: one_start_each,
    3: attempts_never_overlap,
    4: gpus_are_held_once,
    5: all_ranks_or_none,
    6: nothing_outlives_its_job,
    7: epochs_rise,
    8: the_exit_code_is_the_attempts,
    9: retries_are_as_configured,
    10: nothing_leaves_a_final_state,
}


def _is_whole(runs: list[Run]) -> bool:
    """Tell whether all ranks of an attempt began."""
    return {run.rank for run in runs} >= set(range(runs[0].ranks))


def _overlap(one: Run, other: Run) -> bool:
    return one.started_at < other.seen_at and other.started_at < one.seen_at


def _attempts(history: History) -> dict[tuple[str, int], list[Run]]:
    attempts: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in history.runs:
        attempts[run.job, run.attempt].append(run)
    return attempts


def _ran_on(history: History, job: str, runs: list[Run], gone_at: float, why: str) -> Sentences:
    """Tell which of these ranks lived on long after their gang was broken."""
    limit_s = history.settings.gang_limit_s
    for run in runs:
        if run.seen_at > gone_at + limit_s:
            yield f"job {job}: {why}, and {run.name} lived on for {run.seen_at - gone_at:.1f} s"


def _code_mismatch(history: History, final: Told, runs: list[Run]) -> Sentences:
    codes = sorted({run.code for run in runs if run.code is not None})
    if final.state == "completed":
        if final.exit_code != 0:
            yield f"job {final.job} is completed with exit code {final.exit_code}"
        if not runs:
            yield f"job {final.job} is completed, and its attempt {final.attempt} never ran"
        for run in runs:
            if run.code != 0:
                how = "never came to its end" if run.code is None else f"ended with {run.code}"
                yield f"job {final.job} is completed, and {run.name} {how}"
    elif final.state == "failed" and runs:
        if final.exit_code == 0:
            yield f"job {final.job} failed with exit code 0"
        elif codes and final.exit_code is not None and final.exit_code < 128 and final.exit_code not in codes:
            yield (
                f"job {final.job} failed with exit code {final.exit_code}, and its attempt "
                f"{final.attempt} ended with {codes}"
            )
        elif (
            _is_whole(runs)
            and all(run.code == 0 for run in runs)
            and not any(history.was_lost(run) for run in runs)
        ):
            yield f"job {final.job} failed, and all ranks of its attempt {final.attempt} ended with 0"


def _ends(runs: list[Run]) -> str:
    return ", ".join(
        f"{run.name} {'was cut off' if run.code is None else f'ended with {run.code}'}" for run in runs
    )


def _outcome(told: Told) -> str:
    return f"{told.state} (attempt {told.attempt}, exit code {told.exit_code})"
