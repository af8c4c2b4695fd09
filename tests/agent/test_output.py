"""Shipping by offset: in turns, within the window, again from where the master fell back to."""

from __future__ import annotations

from pathlib import Path

from mgpu_agent.process.inotify import ModifiedFiles
from mgpu_agent.process.output import REWIND_PAUSE_S, STALLED_S, OutputShipper
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.model import OutputMark, TaskStatus

KEY = AttemptKey(JobId("AAAAAAAA"), 1, 1)
OTHER = AttemptKey(JobId("BBBBBBBB"), 1, 2)


def a_status(key: AttemptKey = KEY, sizes: tuple[int, int] | None = None) -> TaskStatus:
    stdout_bytes, stderr_bytes = sizes or (0, 0)
    return TaskStatus(
        key=key,
        rank=0,
        node_id=NodeId("n"),
        host="h",
        address="a",
        pid=1,
        started_at=0.0,
        ended_at=None if sizes is None else 1.0,
        stdout_bytes=stdout_bytes,
        stderr_bytes=stderr_bytes,
    )


def spool_name(key: AttemptKey, stream: int) -> str:
    return f"{stem(key)}.{'out' if stream == 1 else 'err'}"


def stem(key: AttemptKey) -> str:
    return f"slot-of-{key.job_id}"


def a_shipper(path: Path, window_bytes: int = 1000) -> OutputShipper:
    shipper = OutputShipper(str(path))
    shipper.restart(window_bytes, ())
    return shipper


def write(path: Path, data: bytes, key: AttemptKey = KEY, stream: int = 1) -> None:
    with (path / spool_name(key, stream)).open("ab") as file:
        file.write(data)


def shipped(shipper: OutputShipper, now: float = 0.0) -> list[tuple[str, int, int, bytes]]:
    return [(chunk.key.job_id[0], chunk.stream, chunk.offset, chunk.data) for chunk in shipper.chunks(now)]


def test_growth_is_shipped_once(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path)
    write(tmp_path, b"one")
    shipper.follow(a_status(), stem(KEY))
    first = shipped(shipper)
    write(tmp_path, b"two")
    write(tmp_path, b"error", stream=2)
    unseen = shipped(shipper)
    shipper.grew([spool_name(KEY, 1), "a stranger's file"])
    second = shipped(shipper)
    shipper.grew(None)

    assert (first, unseen, second, shipped(shipper)) == (
        [("A", 1, 0, b"one")],
        [],
        [("A", 1, 3, b"two")],
        [("A", 2, 0, b"error")],
    )


def test_nothing_is_shipped_beyond_the_end(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path)
    write(tmp_path, b"ended, and more from a straggler")
    shipper.follow(a_status(sizes=(5, 0)), stem(KEY))

    assert (shipped(shipper), shipper.has_more) == ([("A", 1, 0, b"ended")], False)


def test_the_window_fills_and_opens(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path, window_bytes=4)
    write(tmp_path, b"abcdefg")
    shipper.follow(a_status(sizes=(7, 0)), stem(KEY))
    first = shipped(shipper)
    full = (shipped(shipper), shipper.in_flight_bytes)
    shipper.acknowledge(OutputMark(KEY, 0, 1, 4), 0.0)

    assert (first, full, shipped(shipper)) == ([("A", 1, 0, b"abcd")], ([], 4), [("A", 1, 4, b"efg")])


def test_streams_take_turns(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path, window_bytes=600_000)
    for key in (KEY, OTHER):
        write(tmp_path, b"x" * 500_000, key)
        shipper.follow(a_status(key, (500_000, 0)), stem(key))
    turns = [(job, offset, len(data)) for job, _, offset, data in shipped(shipper)]

    assert turns == [("A", 0, 262_144), ("B", 0, 262_144), ("A", 262_144, 75_712)]


def test_an_acknowledgement_further_back_sends_again(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path)
    write(tmp_path, b"abcdef")
    shipper.follow(a_status(sizes=(6, 0)), stem(KEY))
    shipped(shipper)
    shipper.acknowledge(OutputMark(KEY, 0, 1, 6), 0.0)
    shipper.acknowledge(OutputMark(KEY, 0, 1, 2), 0.0)

    assert (shipped(shipper), shipper.in_flight_bytes) == ([("A", 1, 2, b"cdef")], 4)


def test_a_repeated_acknowledgement_sends_again_but_not_at_every_echo(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path)
    write(tmp_path, b"abcdef")
    shipper.follow(a_status(sizes=(6, 0)), stem(KEY))
    rounds = [shipped(shipper)]
    for now in (0.0, 0.1, REWIND_PAUSE_S):
        shipper.acknowledge(OutputMark(KEY, 0, 1, 0), now)
        rounds.append(shipped(shipper))

    whole = [("A", 1, 0, b"abcdef")]
    assert rounds == [whole, whole, [], whole]


def test_what_is_never_acknowledged_is_sent_again(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path)
    write(tmp_path, b"abc")
    shipper.follow(a_status(sizes=(3, 0)), stem(KEY))
    shipped(shipper, now=10.0)
    shipper.check_stalled(10.0 + STALLED_S - 1)
    early = shipped(shipper)
    shipper.check_stalled(10.0 + STALLED_S)

    assert (early, shipped(shipper)) == ([], [("A", 1, 0, b"abc")])


def test_a_new_connection_begins_where_the_master_is(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path)
    write(tmp_path, b"abcdef")
    write(tmp_path, b"error", stream=2)
    shipper.follow(a_status(sizes=(6, 5)), stem(KEY))
    shipped(shipper)
    shipper.restart(1000, (OutputMark(KEY, 0, 1, 4), OutputMark(OTHER, 0, 1, 9), OutputMark(KEY, 0, 7, 1)))

    assert sorted(shipped(shipper)) == [("A", 1, 4, b"ef"), ("A", 2, 0, b"error")]


def test_forgotten_streams_free_the_window(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path, window_bytes=3)
    for key in (KEY, OTHER):
        write(tmp_path, b"abc", key)
        shipper.follow(a_status(key, (3, 0)), stem(key))
    first = shipped(shipper)
    shipper.forget(KEY)
    shipper.acknowledge(OutputMark(KEY, 0, 1, 3), 0.0)

    assert (first, shipped(shipper)) == ([("A", 1, 0, b"abc")], [("B", 1, 0, b"abc")])


def test_a_missing_file_is_no_trouble(tmp_path: Path) -> None:
    shipper = a_shipper(tmp_path)
    shipper.follow(a_status(sizes=(3, 0)), stem(KEY))

    assert shipped(shipper) == []


def test_writes_are_seen(tmp_path: Path) -> None:
    watch = ModifiedFiles(tmp_path)
    try:
        (tmp_path / "empty").touch()
        before = watch.take()
        write(tmp_path, b"x")
        write(tmp_path, b"y", OTHER)
        seen = watch.take()
    finally:
        watch.close()

    assert (before, seen) == (set(), {spool_name(KEY, 1), spool_name(OTHER, 1)})


def test_without_a_watch_nothing_is_told(tmp_path: Path) -> None:
    watch = ModifiedFiles(tmp_path / "missing")
    try:
        assert (watch.is_working, watch.take(), watch.fileno() >= 0) == (False, set(), True)
    finally:
        watch.close()
