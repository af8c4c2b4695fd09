"""What may stand next on a line, as shells and notebooks are told it: each kind of name, and none without a
master.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from mgpu_jupyter.api import administration
from mgpu_jupyter.client import Client, Timeouts, choice
from mgpu_jupyter.client.completion import QUICK, RECENT, Asked, Completion, Place, complete
from mgpu_jupyter.client.mock import MockTransport, Play, a_node, lost
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.request import srun_parser
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.policies import MEANINGS


class Named(MockTransport):
    """Has names of all kinds."""

    def _cluster(self):  # type: ignore[no-untyped-def]
        return replace(
            super()._cluster(),
            partitions={"gpu": administration.PartitionInfo(), "cpu": administration.PartitionInfo()},
            accounts=("lab", "site"),
            qos={"high": administration.QosInfo()},
            strategies=("pack", "spread"),
        )


def a_mock() -> MockTransport:
    plays = iter((Play(hold=True), Play(exit_code=1)))
    mock = Named(lambda _: next(plays), nodes=[a_node("alpha"), a_node("alto"), a_node("beta")])
    client = Client(transport=mock)
    client.submit_spec(JobSpec(command=("x",)))
    client.submit_spec(JobSpec(command=("y",), name="train"))
    mock.requests.clear()
    return mock


def a_parser(*places: str, nargs: str | None = None) -> Parser:
    parser = Parser("mgpu x", "mgpu x")
    for name in places:
        parser.add_argument(name, nargs=nargs if name == places[-1] else None)
    parser.add_argument("--follow", action="store_true", help="100 %% of it")
    parser.add_argument("--policy", help="how the queue is ordered")
    parser.add_argument("-q", "--quiet", action="store_true")
    return parser


def completed(
    parser: Parser,
    line: str,
    mock: MockTransport | None = None,
    *,
    ended: bool = False,
    actions: tuple[str, ...] = (),
    more: Callable[[argparse.Action, str], list[Completion] | None] = lambda _action, _current: None,
) -> list[tuple[str, str]]:
    *before, current = line.split(" ")
    mock = mock or a_mock()
    asked = Asked(lambda: Client(transport=mock))
    place = Place(before, current, asked, actions, ended, more)
    return [(one.text, one.about) for one in complete(parser, place)]


def plain(*words: str) -> list[tuple[str, str]]:
    return [(word, "") for word in words]


SRUN = srun_parser("mgpu_srun")
RUNS, OVER = ("MOCK0000", "running"), ("MOCK0001", "failed train")


@pytest.mark.parametrize(
    ("line", "ended", "found"),
    [
        ("--nodelist al", False, [("alpha", "online"), ("alto", "online")]),
        ("-w alpha,", False, [("alpha,alto", "online"), ("alpha,beta", "online")]),
        ("-w alpha,al", False, [("alpha,alto", "online")]),
        ("--exclude=b", False, [("--exclude=beta", "online")]),
        ("--node-gpu-ids alpha:0;be", False, [("alpha:0;beta:", "online")]),
        ("--node-gpu-ids be", False, [("beta:", "online")]),
        ("--dependency afterok:", False, [("afterok:MOCK0000", "running")]),
        (
            "--dependency afterok:",
            True,
            [("afterok:MOCK0001", "failed train"), ("afterok:MOCK0000", "running")],
        ),
        ("--dependency aftera", False, plain("afterany:")),
        ("--partition ", False, plain("gpu", "cpu")),
        ("-p g", False, plain("gpu")),
        ("--account ", False, plain("lab", "site")),
        ("--qos ", False, plain("high")),
        ("--policy s", False, plain("spread")),
        ("--on-disconnect ", False, plain("keep", "fence")),
        ("--on-disconnect=f", False, plain("--on-disconnect=fence")),
        ("--no-such-flag=f", False, []),
        ("-w=f", False, []),
        ("--gpus 1 -- --nodelist al", False, []),
        ("--gpus ", False, []),
        ("--gpus 1 pyth", False, []),
    ],
)
def test_values_of_flags(line: str, ended: bool, found: list[tuple[str, str]]) -> None:
    assert completed(SRUN, line, ended=ended) == found


def test_flags_have_their_help_and_short_ones_are_left_out() -> None:
    parser = a_parser()

    assert completed(parser, "-") == [
        ("--help", "show this"),
        ("--follow", "100 % of it"),
        ("--policy", "how the queue is ordered"),
        ("--quiet", ""),
    ]
    assert completed(parser, "--f") == [("--follow", "100 % of it")]
    assert completed(parser, "--follow --q") == [("--quiet", "")]


@pytest.mark.parametrize(
    ("places", "nargs", "line", "ended", "found"),
    [
        ((), None, "", False, []),
        (("job",), None, "", False, [RUNS]),
        (("job",), None, "mock", False, [RUNS]),
        (("job",), None, "x", False, []),
        (("job",), None, "", True, [OVER, RUNS]),
        (("job",), None, "MOCK0000 ", False, []),
        (("jobs",), "*", "MOCK0000 ", False, [RUNS]),
        (("jobs",), "+", "MOCK0000 MOCK0001 ", False, [RUNS]),
        (("jobs",), "?", "MOCK0000 ", False, []),
        (("job",), None, "--follow ", False, [RUNS]),
        (("job",), None, "--policy order ", False, [RUNS]),
        (("user", "node_id"), None, "", False, plain("me")),
        (
            ("user", "node_id"),
            None,
            "me ",
            False,
            [("alpha", "online"), ("alto", "online"), ("beta", "online")],
        ),
        (("user", "node_id"), None, "me b", False, [("beta", "online")]),
        (("user", "node_id"), None, "me beta ", False, []),
        (("action", "node_id"), None, "", False, plain("drain", "resume")),
        (("action", "node_id"), None, "dr", False, plain("drain")),
        (("action", "node_id"), None, "drain be", False, [("beta", "online")]),
        (("job",), None, "--policy ", False, plain(*MEANINGS)),
    ],
)
def test_words_in_their_places(
    places: Sequence[str], nargs: str | None, line: str, ended: bool, found: list[tuple[str, str]]
) -> None:
    parser = a_parser(*places, nargs=nargs)
    assert completed(parser, line, ended=ended, actions=("drain", "resume")) == found


def test_the_flags_of_the_queue() -> None:
    parser = Parser("mgpu_queue", "mgpu_queue")
    choice.add_selection(parser)

    assert completed(parser, "-u ") == plain("me")
    assert completed(parser, "-j ") == [RUNS]


def test_the_one_who_asks_may_know_more() -> None:
    def more(action: argparse.Action, current: str) -> list[Completion] | None:
        return [Completion(f"{action.dest} {current}", "a file")] if action.dest == "path" else None

    parser = a_parser("path")
    assert completed(parser, "x", more=more) == [("path x", "a file")]
    assert completed(parser, "--policy=x", more=more) == []


def test_no_master_means_no_names_and_it_is_asked_once_and_quickly() -> None:
    mock = a_mock()
    mock.failures[:] = [lost(), lost()]
    clients: list[Client] = []

    def make() -> Client:
        clients.append(Client(transport=mock))
        return clients[-1]

    asked = Asked(make, timeouts=replace(QUICK, retry_s=0.0))

    assert (asked.nodes(), asked.jobs()) == ([], [])
    assert [one.timeouts for one in clients] == [Timeouts(connect_s=1.0, request_s=2.0, retry_s=0.0)] * 2
    assert len(mock.requests) == 2


@pytest.mark.parametrize(("fresh_s", "times"), [(0.0, 2), (3600.0, 1)])
def test_an_answer_is_good_for_a_while(fresh_s: float, times: int) -> None:
    mock = a_mock()
    asked = Asked(lambda: Client(transport=mock), fresh_s=fresh_s)

    names = [["alpha", "alto", "beta"]] * 2
    assert [[one.text for one in asked.nodes()] for _ in range(2)] == names
    assert [request.path for request in mock.requests] == ["nodes"] * times
    assert [one.text for one in asked.jobs()] == ["MOCK0000"]
    assert [one.text for one in asked.jobs(ended=True)] == ["MOCK0001", "MOCK0000"]
    assert [request.query for request in mock.requests[times:]] == [
        {"state": "active", "limit": str(RECENT)},
        {"limit": str(RECENT)},
    ]


def test_jobs_say_their_state() -> None:
    assert (a_mock().jobs["MOCK0000"].now, a_mock().jobs["MOCK0001"].now) == (
        JobState.RUNNING,
        JobState.FAILED,
    )
