"""Files that a job left, brought into a directory: where each goes, in which parts, what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mgpu_agent.protocol.errors import EngineError, NotFound
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api.files import Result, ResultList, ValueList
from mgpu_jupyter.client import fetching
from mgpu_jupyter.client.fetching import PART_BYTES, bring, place_of, wait_for_results
from mgpu_jupyter.client.transport import Answer, Request
from mgpu_jupyter.model.job import JobState
from tests.client.answers import client_of

JOB = JobId("ABCD1234")
DATA = b"0123456789"


def a_file(path: str = "out/a.txt", data: bytes = DATA, node: str = "n1", **changes: Any) -> Result:
    values: dict[str, Any] = {
        "node": NodeId(node),
        "number": 3,
        "path": path,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "mode": 0o100750,
    }
    return Result(**(values | changes))


def a_list(*files: Result, complete: bool = True) -> ResultList:
    return ResultList(job_id=JOB, attempt=1, complete=complete, files=files)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_of_one_node_keep_their_paths_and_modes(tmp_path: Path) -> None:
    given = a_list(a_file(), a_file("b", b"b", mode=0o044), a_file("c", problem="It is too large."))
    client, answers = client_of(given, DATA[:4], DATA[4:], b"b")

    written = client.handle(JOB).download_results(tmp_path / "new")

    assert written == [tmp_path / "new/out/a.txt", tmp_path / "new/b"]
    assert content(tmp_path) == {"new/out/a.txt": DATA, "new/b": b"b"}
    assert [path.stat().st_mode & 0o777 for path in written] == [0o750, 0o644]
    assert [one[2] for one in answers.asked] == [
        {},
        *({"node": "n1", "number": "3", "offset": at, "limit": str(PART_BYTES)} for at in ("0", "4", "0")),
    ]
    assert {one[1] for one in answers.asked[1:]} == {"jobs/ABCD1234/result"}


def test_of_several_nodes_each_has_a_directory(tmp_path: Path) -> None:
    client, _ = client_of(a_list(a_file("a", b"x"), a_file("a", b"x", "n2")), b"x")

    assert client.handle(JOB).download_results(str(tmp_path)) == [tmp_path / "n1/a", tmp_path / "n2/a"]
    assert content(tmp_path) == {"n1/a": b"x", "n2/a": b"x"}


def test_a_damaged_file_is_fetched_again_and_given_up_after_three_times(tmp_path: Path) -> None:
    client, answers = client_of(a_list(a_file()), b"x" * 10, DATA)
    client.handle(JOB).download_results(tmp_path)
    assert (content(tmp_path), len(answers.asked)) == ({"out/a.txt": DATA}, 3)

    client, answers = client_of(a_list(a_file("b")), b"x" * 10)
    with pytest.raises(EngineError) as caught:
        client.handle(JOB).download_results(tmp_path)
    told = "b arrived with another SHA-256 3 times: look at the master's disk."
    assert (caught.value.message, len(answers.asked)) == (told, 4)
    assert content(tmp_path) == {"out/a.txt": DATA}


def test_a_file_that_ends_too_early_is_damaged(tmp_path: Path) -> None:
    client, answers = client_of(a_list(a_file()), DATA[:4], b"", DATA)
    client.handle(JOB).download_results(tmp_path)
    assert (content(tmp_path), len(answers.asked)) == ({"out/a.txt": DATA}, 4)


@pytest.mark.parametrize(
    ("path", "place"),
    [("a/b", "a/b"), ("/etc/passwd", "etc/passwd"), ("../../x", "x"), ("./a/../b", "a/b")],
)
def test_no_file_leaves_the_directory(path: str, place: str) -> None:
    assert place_of(a_file(path), Path("to")) == Path("to") / place


@pytest.mark.parametrize("path", ["", "/", "..", "."])
def test_a_file_without_a_name_stays(path: str) -> None:
    with pytest.raises(NotFound) as caught:
        place_of(a_file(path), Path("to"))
    assert caught.value.message == "A file of n1 has no name: it is left there."


def test_results_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "RESULTS_LOOK_S", 0.0)
    client, answers = client_of(a_list(complete=False), a_list(complete=False), a_list())

    assert wait_for_results(client.caller, JOB, None) == a_list()
    assert [one[1] for one in answers.asked] == ["jobs/ABCD1234/results"] * 3

    client, _ = client_of(a_list(complete=False), a_list())
    assert wait_for_results(client.caller, JOB, 3600.0) == a_list()

    client, answers = client_of(a_list(complete=False))
    with pytest.raises(TimeoutError) as caught:
        wait_for_results(client.caller, JOB, 0.0)
    told = "Not all results of job ABCD1234 are here after 0 s: try again later."
    assert (str(caught.value), len(answers.asked)) == (told, 1)


def test_variables_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LOOK_S", (0.0, 0.0))
    listed = ValueList(job_id=JOB, attempt=1, state=JobState.COMPLETED, outputs=(), ranks=1, complete=False)
    done = msgspec.structs.replace(listed, complete=True)
    for timeout_s in (None, 3600.0):
        client, answers = client_of(listed, listed, done)
        assert bring(client.caller, JOB, timeout_s).values == {}
        assert [one[1:3] for one in answers.asked] == [("jobs/ABCD1234/values", {"wait": "2"})] * 3

    client, answers = client_of(listed)
    with pytest.raises(TimeoutError) as caught:
        bring(client.caller, JOB, 0.0)
    told = "Not all variables of job ABCD1234 are here after 0 s: job.result() tries again."
    assert (str(caught.value), len(answers.asked)) == (told, 1)


def test_parts_are_not_larger_than_a_server_sends() -> None:
    assert (fetching.PART_BYTES, fetching.MAX_TRIES) == (8 * 1024 * 1024, 3)
    assert Answer(status=200).body == b""
    assert Request(path="a b", query={"x": "1 2"}).target == "a%20b?x=1+2"
