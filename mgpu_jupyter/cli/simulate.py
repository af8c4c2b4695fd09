"""`mgpu simulate`: how a cluster and a policy would have served the jobs of a trace. Needs no master."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import json_text, tell
from mgpu_jupyter.cli.command import Command, MakeClient, add_json
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.words import duration
from mgpu_jupyter.model.job import MAX_GPUS_PER_NODE, MAX_NODES
from mgpu_jupyter.model.policies import DEFAULT, MEANINGS, planning_of
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.simulate.figures import Figures, figures_of
from mgpu_jupyter.simulate.plot import check_picture, draw_replays
from mgpu_jupyter.simulate.traces import read_trace, repeat_trace
from mgpu_jupyter.simulate.world import KnownTimes, SimulatedCluster, replay

USAGE = "mgpu simulate TRACE --nodes N --gpus-per-node G [flags]"
ABOUT = (
    "Replay a trace of jobs through the real scheduler, in virtual time, and show how long they waited. "
    "Needs no master."
)
MAX_REPEAT = 1_000


def run(values: argparse.Namespace, make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    """Replay a trace and show the results."""
    _refuse_gaps(values)
    planning = planning_of(values.policy)
    cluster = SimulatedCluster(nodes=values.nodes, gpus_per_node=values.gpus_per_node)
    trace = Path(values.trace)
    picture = Path(values.plot) if values.plot else None
    if picture is not None:
        check_picture(picture)
    works = repeat_trace(read_trace(trace), values.repeat)
    done = replay(works, cluster, Scheduling(strategy=values.strategy, planning=planning), values.estimates)
    figures = figures_of(done)
    if picture is not None:
        draw_replays(
            picture,
            {values.policy: done},
            f"{trace.name}, {cluster.nodes} nodes × {cluster.gpus_per_node}, {values.policy}",
        )
    tell(*(as_json(values, figures) if values.json else as_text(values, figures)).split("\n"))
    return 0


def as_json(values: argparse.Namespace, figures: Figures) -> str:
    """Return the document of `--json`."""
    asked = {
        "policy": values.policy,
        "estimates": values.estimates,
        "strategy": values.strategy,
        "repeat": values.repeat,
    }
    return json_text({**msgspec.structs.asdict(figures), **asked})


def as_text(values: argparse.Namespace, figures: Figures) -> str:
    """Return one line for each figure."""
    rows = [
        ("jobs", f"{figures.n_jobs:,}"),
        ("mean wait", _time(figures.avg_wait_s)),
        ("95 % waited at most", _time(figures.p95_wait_s)),
        ("longest wait", _time(figures.max_wait_s)),
        ("mean submit to end (JCT)", _time(figures.avg_jct_s)),
        ("mean bounded slowdown", f"{figures.avg_bsld:,.2f}"),
        ("GPUs in use", f"{100 * figures.utilisation:.1f} %"),
        ("first submit to last end", _time(figures.makespan_s)),
        ("promised a start, later than that", f"{figures.promised:,}, {figures.late:,}"),
        ("replayed in", f"{figures.wall_s:.1f} s ({figures.jobs_per_s:,.0f} jobs/s)"),
    ]
    head = (
        f"{figures.nodes} nodes × {figures.gpus_per_node} GPUs, policy {values.policy}, estimates "
        f"{values.estimates}"
    )
    lines = [head, *(f"  {name:<34}{text}" for name, text in rows)]
    if figures.too_large:
        lines.append(f"Left out: {_jobs(figures.too_large)} larger than the cluster.")
    if figures.without_gpus:
        lines.append(f"Left out: {_jobs(figures.without_gpus)} without a GPU.")
    return "\n".join(lines)


def parser(prog: str) -> Parser:
    """Return the flags."""
    example = f"{prog} trace.csv.gz --nodes 80 --gpus-per-node 8 --policy easy --plot easy.png"
    result = Parser(prog, USAGE, ABOUT, examples=[example], more=_more_help())
    result.add_argument(
        "trace",
        nargs="?",
        metavar="TRACE",
        help="CSV file, plain or .gz, with the columns submit_s, duration_s, gpus",
    )
    result.add_argument(
        "--nodes", type=_count("--nodes", MAX_NODES), metavar="N", help="nodes of the cluster"
    )
    result.add_argument(
        "--gpus-per-node",
        type=_count("--gpus-per-node", MAX_GPUS_PER_NODE),
        metavar="G",
        help="GPUs on each of them",
    )
    result.add_argument(
        "--policy", default=DEFAULT, metavar="NAME", help=f"order of the queue, see below (default {DEFAULT})"
    )
    result.add_argument(
        "--estimates",
        type=_estimates,
        default=KnownTimes.PERFECT,
        metavar="KIND",
        help="what is known of durations: perfect (default), user (estimate_s), or learned from jobs before",
    )
    result.add_argument(
        "--strategy",
        default=Scheduling().strategy,
        metavar="NAME",
        help="how nodes are picked (default fill_first)",
    )
    result.add_argument(
        "--repeat",
        type=_count("--repeat", MAX_REPEAT),
        default=1,
        metavar="K",
        help="the trace K times, end to end",
    )
    result.add_argument("--plot", metavar="FILE", help="draw use and queue length over time, as .png or .svg")
    add_json(result)
    return result


def _more_help() -> str:
    policies = "\n".join(f"  {name:<14}{text}" for name, text in MEANINGS.items())
    return (
        f"policies:\n{policies}\n\nA trace may also have the columns estimate_s, user, name and exclusive (1 "
        "or 0). A job of\nmore than G GPUs takes whole nodes, and what is left on one more.\n"
    )


def _refuse_gaps(values: argparse.Namespace) -> None:
    if values.trace is None:
        raise InvalidRequest("usage", f"Name a trace, a CSV file: {USAGE}.")
    for flag, value in (("--nodes", values.nodes), ("--gpus-per-node", values.gpus_per_node)):
        if value is None:
            raise InvalidRequest("usage", f"Give {flag}: {USAGE}.")


def _count(flag: str, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= most):
            raise InvalidRequest("usage", f"{flag} {text}: write a whole number from 1 to {most:,}.")
        return int(text)

    return read


def _estimates(text: str) -> KnownTimes:
    if text == "none":
        return KnownTimes.LEARNED
    if text not in list(KnownTimes):
        raise InvalidRequest("usage", f"--estimates {text}: it is one of {', '.join(KnownTimes)}.")
    return KnownTimes(text)


def _time(seconds: float) -> str:
    return f"{seconds:,.1f} s ({duration(seconds)})" if seconds >= 60 else f"{seconds:,.1f} s"


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


COMMANDS = {"simulate": Command(parser, run)}
