"""Variables that come back, by a server of a few lines: what is whole, what is missing, what is damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.variable_file import pack
from mgpu_jupyter.api.files import ValueFile, ValueList
from mgpu_jupyter.client import fetching
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.fetching import Brought, bring, result_of
from mgpu_jupyter.client.transport import Answer, Request, Timeouts
from mgpu_jupyter.model.job import JobState

JOB = JobId("ABCD1234")


class Server:
    """Has the files of some ranks."""

    def __init__(
        self,
        tmp_path: Path,
        names: tuple[str, ...],
        *ranks: dict[str, object] | str | None,
        state: JobState = JobState.COMPLETED,
    ):
        self.damaged = 0
        """How many answers have a wrong byte at their end."""
        self.asked: list[tuple[int, int]] = []
        """Offset and limit of every part."""
        self._data: dict[str, bytes] = {}
        files = []
        for rank, left in enumerate(ranks):
            if isinstance(left, str):
                files.append(
                    ValueFile(rank=rank, node=NodeId("n1"), number=rank, size=0, sha256="", problem=left)
                )
            elif left is not None:
                packed = pack(left, {name: f"`{name}` cannot travel." for name in names if name not in left})
                digest = packed.write(str(tmp_path / str(rank)))
                self._data[str(rank)] = (tmp_path / str(rank)).read_bytes()
                files.append(
                    ValueFile(rank=rank, node=NodeId("n1"), number=rank, size=packed.size, sha256=digest)
                )
        self._list = ValueList(
            job_id=JOB,
            attempt=1,
            state=state,
            outputs=names,
            ranks=len(ranks),
            complete=True,
            files=tuple(files),
        )
        self.caller = Caller(self, Timeouts())  # type: ignore[arg-type]

    def send(self, request: Request) -> Answer:
        if request.path.endswith("/values"):
            return Answer(status=200, body=msgspec.json.encode(self._list))
        offset, limit = int(request.query["offset"]), int(request.query["limit"])
        self.asked.append((offset, limit))
        data = self._data[request.query["number"]][offset : offset + limit]
        if self.damaged:
            self.damaged -= 1
            data = data[:-1] + bytes([data[-1] ^ 1])
        return Answer(status=200, body=data)


def test_values_of_one_rank_come_plain_with_their_sizes(tmp_path: Path) -> None:
    left = {"a": list(range(1000)), "b": b"x" * 100_000}
    brought = bring(Server(tmp_path, ("a", "b"), left).caller, JOB)
    assert brought == Brought(values=left, sizes=pack(left).sizes, problems={})


def test_of_several_ranks_each_name_is_a_list_and_sizes_are_sums(tmp_path: Path) -> None:
    ranks = [{"a": 1, "b": "x"}, {"a": 2, "b": "yy"}]
    sizes = [pack(one).sizes for one in ranks]
    expected = Brought(
        values={"a": [1, 2], "b": ["x", "yy"]},
        sizes={name: sum(one[name] for one in sizes) for name in ("a", "b")},
        problems={},
    )
    assert bring(Server(tmp_path, ("a", "b"), *ranks).caller, JOB) == expected


def test_what_is_missing_somewhere_is_a_problem_and_the_rest_comes(tmp_path: Path) -> None:
    brought = bring(Server(tmp_path, ("a", "b"), {"a": 1, "b": 2}, {"a": 3}).caller, JOB)
    assert (brought.values, set(brought.sizes), brought.problems) == (
        {"a": [1, 3]},
        {"a"},
        {"b": "rank 1: `b` cannot travel."},
    )
    alone = bring(Server(tmp_path, ("b",), {"a": 3}).caller, JOB)
    assert (alone.values, alone.sizes, alone.problems) == ({}, {}, {"b": "`b` cannot travel."})


@pytest.mark.parametrize(
    ("left", "problem"),
    [
        (None, "`a` is not there: its process ended before it was written; see job.output()."),
        ("its node is gone", "`a` did not arrive: its node is gone."),
    ],
)
def test_a_file_that_is_not_there_says_why(tmp_path: Path, left: str | None, problem: str) -> None:
    assert bring(Server(tmp_path, ("a",), left).caller, JOB) == Brought(
        values={}, sizes={}, problems={"a": problem}
    )
    several = bring(Server(tmp_path, ("a",), {"a": 1}, left).caller, JOB)
    assert several == Brought(values={}, sizes={}, problems={"a": f"rank 1: {problem}"})


def test_a_long_file_comes_in_parts_and_a_damaged_one_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 1000)
    server = Server(tmp_path, ("a",), {"a": b"x" * 2500})
    server.damaged = 1
    size = server._list.files[0].size
    parts = [(offset, min(1000, size - offset)) for offset in range(0, size, 1000)]
    assert bring(server.caller, JOB).values == {"a": b"x" * 2500}
    assert (sorted(server.asked), len(parts)) == (sorted(parts * 2), 3)
    server.damaged = 100
    with pytest.raises(MgpuError) as caught:
        bring(server.caller, JOB)
    told = "The variables of rank 0 arrived with another SHA-256 3 times: see the master's disk."
    assert (caught.value.code, caught.value.message) == ("damaged", told)


@pytest.mark.parametrize(
    ("names", "state", "code"),
    [
        ((), JobState.COMPLETED, "no-outputs"),
        (("a",), JobState.RUNNING, "not-over"),
        (("a",), JobState.FAILED, "no-result"),
        (("a", "b"), JobState.COMPLETED, "no-result"),
    ],
)
def test_why_there_is_no_result(tmp_path: Path, names: tuple[str, ...], state: JobState, code: str) -> None:
    with pytest.raises(MgpuError) as caught:
        result_of(Server(tmp_path, names, {"a": 1}, state=state).caller, JOB)
    assert caught.value.code == code


def test_a_result_is_one_value_or_all_by_name(tmp_path: Path) -> None:
    assert result_of(Server(tmp_path, ("a",), {"a": 1}).caller, JOB) == 1
    assert result_of(Server(tmp_path, ("a", "b"), {"a": 1, "b": 2}).caller, JOB) == {"a": 1, "b": 2}
