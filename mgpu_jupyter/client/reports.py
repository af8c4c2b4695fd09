"""Reports about a job as lines of text: its summary, and its whole trace with what it waited for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mgpu_agent.protocol import wording
from mgpu_agent.protocol.text import printable
from mgpu_agent.protocol.wording import count, exact
from mgpu_jupyter.api import traces as api
from mgpu_jupyter.api.traces import NodeUse, RankSummary, Summary
from mgpu_jupyter.client.words import duration


def summary_lines(told: Summary) -> list[str]:
    """Return the summary of a job."""
    code = "" if told.exit_code is None else f", exit code {told.exit_code}"
    name = f" {printable(told.name)}" if told.name else ""
    lines = [f"Job {told.job_id}{name} of {printable(told.user)}: {told.state}{code}"]
    if told.reason:
        lines.append(f"  {printable(told.reason)}")
    waited = "has not started" if told.waited_s is None else f"waited {duration(told.waited_s)}"
    ran = "" if told.ran_s is None else f", ran {duration(told.ran_s)}"
    limit = (
        ""
        if told.time_limit_s is None
        else f" of {duration(told.time_limit_s)} ({told.time_used_percent or 0:g} %)"
    )
    lines.append(f"  {waited}{ran}{limit}, attempt {told.attempt}")
    lines.append(
        f"  asked for {count(told.gpus_requested, 'GPU')} on {count(told.nodes_requested, 'node')}; "
        f"{told.gpu_s:.1f} "
        f"GPU-seconds"
    )
    if told.gpu_memory_peak_bytes is not None or told.gpu_utilisation_percent is not None:
        asked = (
            f" (asked for {exact(told.gpu_memory_requested_bytes)} on each)"
            if told.gpu_memory_requested_bytes
            else ""
        )
        lines.append(
            f"  GPU memory at most {_memory(told.gpu_memory_peak_bytes)}{asked}, mean load "
            f"{_load(told.gpu_utilisation_percent)}"
        )
    lines += [_node_line(node) for node in told.nodes]
    lines += [_rank_line(rank) for rank in told.ranks]
    return lines


def _node_line(node: NodeUse) -> str:
    gpus = ",".join(map(str, node.gpu_indices)) or "none"
    return (
        f"  {node.node}: GPUs {gpus}; memory {_memory(node.gpu_memory_peak_bytes)}, load "
        f"{_load(node.gpu_utilisation_percent)}"
    )


def _rank_line(rank: RankSummary) -> str:
    how = (
        f"signal {rank.signal}"
        if rank.signal is not None
        else "runs"
        if rank.ended_at is None
        else f"exit code {rank.exit_code}"
    )
    took = "" if rank.ended_at is None else f" after {max(0.0, rank.ended_at - rank.started_at):.1f} s"
    return f"  rank {rank.rank} on {rank.node}: {how}{took}"


def _memory(size: int | None) -> str:
    return "not known" if size is None else wording.size(size)


def _load(percent: float | None) -> str:
    return "not known" if percent is None else f"{percent:g} %"


MISMATCH = "MISMATCH"
_STEP_CHARS = 10


def trace_lines(trace: api.Trace) -> list[str]:
    """Return the whole trace, oldest step first."""
    name = f" {printable(trace.name)}" if trace.name else ""
    lines = [
        f"Job {trace.job_id}{name} of {printable(trace.user)}: {trace.state}",
        f"  {printable(trace.command)}",
    ]
    lines += [f"{MISMATCH}: {printable(text)}" for text in trace.mismatches]
    if trace.left_out:
        lines.append(f"({trace.left_out} earlier attempts are not kept any more)")
    for attempt in trace.attempts:
        lines += ["", f"Attempt {attempt.attempt}", *_attempt_lines(attempt, trace)]
    if trace.checks:
        lines += ["", *check_lines(trace.checks)]
    return lines


def check_lines(checks: Sequence[api.Check]) -> list[str]:
    """Return a line for each comparison, and the result."""
    lines = ["Assigned against actual:"]
    for check in checks:
        verdict = "ok" if check.ok else MISMATCH
        same = check.assigned == check.actual
        values = (
            printable(check.actual or "-")
            if same
            else f"{printable(check.assigned or '-')} against {printable(check.actual or '-')}"
        )
        lines.append(
            f"  {verdict:<8}  rank {check.rank}  {check.what:<7}  "
            f"{values}{f' ({printable(check.text)})' if check.text else ''}"
        )
    wrong = sum(not check.ok for check in checks)
    lines.append(
        f"{len(checks)} things compared, {wrong} of them differ."
        if wrong
        else f"{len(checks)} things compared, all as assigned."
    )
    return lines


def _attempt_lines(attempt: api.AttemptTrace, trace: api.Trace) -> list[str]:
    lines: list[str] = []
    for step in attempt.steps:
        rank = "" if step.rank is None else f"rank {step.rank}: "
        text = "" if step.step == "queued" else f"{rank}{printable(step.text)}"
        lines.append(
            f"  {_clock(step.at)}  {f'+{duration(step.seconds)}':>9}  "
            f"{step.step:<{_STEP_CHARS}}{text}".rstrip()
        )
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
