"""The way of a job as text: a line for each step with its time, what it waited for, and where it ran against where it should."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import traces as api
from mgpu_jupyter.client.words import duration

MISMATCH = "MISMATCH"
_STEP_CHARS = 10


def as_lines(trace: api.Trace) -> list[str]:
    """Return the whole way, oldest step first."""
    name = f" {printable(trace.name)}" if trace.name else ""
    lines = [f"Job {trace.job_id}{name} of {printable(trace.user)}: {trace.state}", f"  {printable(trace.command)}"]
    lines += [f"{MISMATCH}: {printable(text)}" for text in trace.mismatches]
    if trace.left_out:
        lines.append(f"({trace.left_out} earlier attempts are not kept any more)")
    for attempt in trace.attempts:
        lines += ["", f"Attempt {attempt.attempt}", *_attempt_lines(attempt, trace)]
    if trace.checks:
        lines += ["", *check_lines(trace.checks)]
    return lines


def check_lines(checks: Sequence[api.Check]) -> list[str]:
    """Return a line for each thing that was compared, and the result."""
    lines = ["Assigned against actual:"]
    for check in checks:
        verdict = "ok" if check.ok else MISMATCH
        same = check.assigned == check.actual
        values = printable(check.actual or "-") if same else f"{printable(check.assigned or '-')} against {printable(check.actual or '-')}"
        lines.append(f"  {verdict:<8}  rank {check.rank}  {check.what:<7}  {values}{f' ({printable(check.text)})' if check.text else ''}")
    wrong = sum(not check.ok for check in checks)
    lines.append(f"{len(checks)} things compared, {wrong} of them differ." if wrong else f"{len(checks)} things compared, all as assigned.")
    return lines


def _attempt_lines(attempt: api.AttemptTrace, trace: api.Trace) -> list[str]:
    lines: list[str] = []
    for step in attempt.steps:
        rank = "" if step.rank is None else f"rank {step.rank}: "
        text = "" if step.step == "queued" else f"{rank}{printable(step.text)}"
        lines.append(f"  {_clock(step.at)}  {f'+{duration(step.seconds)}':>9}  {step.step:<{_STEP_CHARS}}{text}".rstrip())
        if step.step == "queued":
            lines += [_wait_line(wait, len(_clock(step.at))) for wait in attempt.waits]
    lines += [f"  rank {one.rank}: {printable(one.note)}" for one in attempt.ranks if one.note]
    if attempt.reason and attempt.planned_at is not None:
        lines.append(f"  {printable(attempt.reason)}")
    if attempt.ended_at is None and attempt.started_at is not None:
        lines.append(f"  It has run for {duration(trace.now - attempt.started_at)}.")
    return lines


def _wait_line(wait: api.Wait, indent: int) -> str:
    so_far = " so far" if wait.until is None else ""
    return f"  {'':<{indent}}  {duration(wait.seconds):>9}  {'':<{_STEP_CHARS}}{printable(wait.text)}{so_far}"


def _clock(at: float) -> str:
    then, today = time.localtime(at), time.localtime()
    day = "" if then[:3] == today[:3] else time.strftime("%Y-%m-%d ", then)
    return f"{day}{time.strftime('%H:%M:%S', then)}.{int(at * 1000) % 1000:03}"
