"""Results on their way from a node: in parts, compared, fetched again, given up."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from mgpu_agent.protocol.file_messages import CollectResult, FoundResults, ResultChunk
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.model import ResultFile
from mgpu_jupyter.engines.agents.results import MAX_TRIES, PART_BYTES, SYNC_BYTES, ResultCollector
from mgpu_jupyter.master.keeping import DiskShares
from mgpu_jupyter.store.disk_use import results_by_user
from mgpu_jupyter.store.results import ResultStore
from tests.processes import wait_until

KEY = AttemptKey(JobId("ABCD1234"), 1, 7)
NODE = NodeId("n1")
DATA = b"x" * (PART_BYTES + 5)
FILES = (
    ResultFile("a", len(DATA), hashlib.sha256(DATA).hexdigest()),
    ResultFile("empty", 0, hashlib.sha256(b"").hexdigest()),
)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results")


def give(collector: ResultCollector, damage: int = 0) -> int:
    """Answer all that is asked for; the first `damage` answers are wrong. Return how many there were."""
    count = 0
    while wanted := collector.take_wanted():
        for node_id, part in wanted:
            data = DATA[part.offset : part.offset + part.size]
            data = b"?" + data[1:] if count < damage else data
            collector.take_chunk(
                node_id,
                ResultChunk(key=part.key, number=part.number, offset=part.offset, data=memoryview(data)),
            )
            count += 1
    return count


def test_what_is_damaged_is_fetched_again_and_known_to_be_done(store: ResultStore) -> None:
    collector = ResultCollector(store, lambda: None)
    collector.take_found(NODE, FoundResults(key=KEY, files=FILES, problems=("b: gone",)))
    assert give(collector, damage=1) == 4
    wait_until(lambda: collector.take_done() == [(NODE, KEY)], "it is on disk")
    index = store.index(KEY.job_id, 1, NODE)
    assert index is not None
    assert [(kept.problem, kept.tries) for kept in index.files] == [("", 2), ("", 1)]
    assert index.problems == ("b: gone",)
    assert (store.directory(KEY.job_id, 1, NODE) / "0").read_bytes() == DATA
    collector.take_found(NODE, FoundResults(key=KEY, files=FILES))
    assert collector.take_done() == [(NODE, KEY)]
    assert collector.take_wanted() == []
    collector.close()


def test_what_is_always_damaged_or_gone_is_left_out_and_said(store: ResultStore) -> None:
    collector = ResultCollector(store, lambda: None)
    collector.take_found(NODE, FoundResults(key=KEY, files=FILES[:1]))
    assert give(collector, damage=100) == 2 * MAX_TRIES
    wait_until(collector.take_done, "it is over")
    index = store.index(KEY.job_id, 1, NODE)
    assert index is not None
    assert "another SHA-256" in index.files[0].problem
    other = AttemptKey(JobId("ABCD1234"), 2, 8)
    collector.take_found(NODE, FoundResults(key=other, files=FILES[:1]))
    collector.take_chunk(
        NODE, ResultChunk(key=other, number=0, offset=0, data=memoryview(b""), problem="it is gone")
    )
    wait_until(collector.take_done, "it is over")
    again = store.index(KEY.job_id, 2, NODE)
    assert again is not None
    assert again.files[0].problem == "it is gone"
    collector.close()


def test_a_new_connection_goes_on_and_an_old_part_changes_nothing(store: ResultStore) -> None:
    collector = ResultCollector(store, lambda: None)
    found = FoundResults(key=KEY, files=FILES)
    collector.take_found(NODE, found)
    collector.take_chunk(NODE, ResultChunk(key=KEY, number=0, offset=0, data=memoryview(DATA[:PART_BYTES])))
    collector.take_wanted()
    collector.take_chunk(NODE, ResultChunk(key=KEY, number=0, offset=0, data=memoryview(DATA[:PART_BYTES])))
    collector.take_found(NODE, found)
    assert collector.take_wanted() == [
        (NODE, CollectResult(key=KEY, number=0, offset=PART_BYTES, size=PART_BYTES))
    ]
    collector.take_chunk(
        NODE, ResultChunk(key=KEY, number=0, offset=PART_BYTES, data=memoryview(DATA[PART_BYTES:]))
    )
    wait_until(collector.take_done, "it is over")
    collector.close()


def test_a_cap_holds(store: ResultStore) -> None:
    collector = ResultCollector(store, lambda: None, cap_bytes=10)
    collector.take_found(NODE, FoundResults(key=KEY, files=FILES))
    wait_until(collector.take_done, "it is over")
    index = store.index(KEY.job_id, 1, NODE)
    assert index is not None
    assert [kept.problem for kept in index.files] == ["results are kept up to 10 bytes", ""]
    collector.close()


@pytest.mark.parametrize("problem", [None, OSError(errno.EIO, "no disk")])
def test_a_large_file_is_brought_to_disk_on_the_way_and_a_failure_there_is_not_forgotten(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, problem: OSError | None
) -> None:
    data = memoryview(bytes(SYNC_BYTES + 1))
    sync = Mock(side_effect=problem)
    monkeypatch.setattr(os, "fdatasync", sync)
    collector = ResultCollector(store, lambda: None)
    file = ResultFile("big", len(data), hashlib.sha256(data).hexdigest())
    collector.take_found(NODE, FoundResults(key=KEY, files=(file,)))
    while wanted := collector.take_wanted():
        for node_id, part in wanted:
            chunk = data[part.offset : part.offset + part.size]
            collector.take_chunk(node_id, ResultChunk(key=part.key, number=0, offset=part.offset, data=chunk))
    collector.close()
    assert sync.call_count == 1
    assert collector.take_done() == ([(NODE, KEY)] if problem is None else [])
    assert (store.index(KEY.job_id, 1, NODE) is None) == (problem is not None)


def test_results_of_one_user_are_kept_up_to_their_share(store: ResultStore, tmp_path: Path) -> None:
    shares = DiskShares(len(DATA) + 10)
    collector = ResultCollector(store, lambda: None, shares=shares, owner=lambda _: "mallory")
    other = AttemptKey(JobId("ABCD5678"), 1, 8)
    collector.take_found(NODE, FoundResults(key=KEY, files=FILES))
    collector.take_found(
        NODE, FoundResults(key=other, files=FILES)
    )  # while the first is under way, and counted already
    give(collector)
    done: list[object] = []
    wait_until(lambda: done.extend(collector.take_done()) or len(done) == 2, "both are on disk")
    text = (
        "with it all your results would have more than your share of 1048591 bytes "
        "(limits.user_results_bytes): "
    )
    indices = [store.index(key.job_id, 1, NODE) for key in (KEY, other)]
    assert [[kept.problem for kept in index.files] for index in indices if index] == [
        ["", ""],
        [f"{text}delete old jobs with mgpu purge, or ask an administrator", ""],
    ]
    collector.close()
    counted = results_by_user(tmp_path / "results", {KEY.job_id: "mallory", other.job_id: "mallory"})
    assert counted == {"mallory": len(DATA)} == {"mallory": shares.used("mallory")}


def test_what_did_not_arrive_does_not_count(store: ResultStore) -> None:
    shares = DiskShares(len(DATA))
    collector = ResultCollector(store, lambda: None, shares=shares, owner=lambda _: "ann")
    collector.take_found(NODE, FoundResults(key=KEY, files=FILES))
    assert shares.used("ann") == len(DATA)
    collector.take_found(NODE, FoundResults(key=KEY, files=FILES[:1]))  # told otherwise: it begins anew
    assert shares.used("ann") == len(DATA)
    collector.take_chunk(NODE, ResultChunk(key=KEY, number=0, offset=0, problem="gone", data=memoryview(b"")))
    assert shares.used("ann") == 0
    collector.close()
