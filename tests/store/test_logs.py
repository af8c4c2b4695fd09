"""Output in files: nothing twice, nothing lost, streams told apart, and a crash at any point is mended."""

from __future__ import annotations

import errno
import itertools
import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.model import NOTHING_MORE, STDERR, STDOUT
from mgpu_jupyter.master.keeping import DiskShares
from mgpu_jupyter.master.ports import LogKey
from mgpu_jupyter.store import logs
from mgpu_jupyter.store.disk_use import output_by_user
from mgpu_jupyter.store.logs import (
    ByteRun,
    LogWriter,
    cut_marker,
    is_cut,
    log_path,
    log_size,
    read_runs,
    share_marker,
)

KEY = LogKey(JobId("ABCD1234"), 1, 0)


def test_plain_output_is_a_plain_file(tmp_path):
    writer = LogWriter(tmp_path / "logs")

    assert writer.append(KEY, STDOUT, 0, b"hello ") == 6
    assert writer.append(KEY, STDOUT, 6, b"world") == 11

    assert log_path(tmp_path / "logs", KEY).read_bytes() == b"hello world"
    assert read_runs(tmp_path / "logs", KEY, 0, 100) == [ByteRun(STDOUT, 0, b"hello world")]
    assert not log_path(tmp_path / "logs", KEY).with_suffix(".idx").exists()
    writer.close()


def test_chunks_that_come_twice_overlap_or_leave_a_gap(tmp_path):
    writer = LogWriter(tmp_path / "logs")
    writer.append(KEY, STDOUT, 0, b"0123")

    assert writer.append(KEY, STDOUT, 0, b"0123") == 4
    assert writer.append(KEY, STDOUT, 2, b"2345") == 6
    assert writer.append(KEY, STDOUT, 9, b"9") == 6
    assert writer.received(KEY) == {STDOUT: 6, STDERR: 0}
    assert read_runs(tmp_path / "logs", KEY, 0, 100) == [ByteRun(STDOUT, 0, b"012345")]
    writer.close()


def test_streams_are_told_apart_in_the_order_in_which_they_came(tmp_path):
    writer = LogWriter(tmp_path / "logs")
    for stream, offset, data in [
        (STDOUT, 0, b"out1"),
        (STDERR, 0, b"err1"),
        (STDERR, 4, b"err2"),
        (STDOUT, 4, b"out2"),
    ]:
        writer.append(KEY, stream, offset, data)

    root = tmp_path / "logs"
    assert read_runs(root, KEY, 0, 100) == [
        ByteRun(STDOUT, 0, b"out1"),
        ByteRun(STDERR, 4, b"err1err2"),
        ByteRun(STDOUT, 12, b"out2"),
    ]
    assert read_runs(root, KEY, 6, 7) == [ByteRun(STDERR, 6, b"r1err2"), ByteRun(STDOUT, 12, b"o")]
    assert read_runs(root, KEY, 16, 10) == []
    assert log_size(root, KEY) == 16
    writer.close()


def test_output_that_is_not_there_is_empty(tmp_path):
    writer = LogWriter(tmp_path / "logs")

    assert writer.received(KEY) == {STDOUT: 0, STDERR: 0}
    assert (log_size(tmp_path / "logs", KEY), read_runs(tmp_path / "logs", KEY, 0, 10)) == (0, [])
    writer.detach(KEY)()
    writer.close()


def test_a_new_writer_goes_on_where_the_old_one_stopped(tmp_path):
    first = LogWriter(tmp_path / "logs")
    first.append(KEY, STDOUT, 0, b"out")
    first.append(KEY, STDERR, 0, b"err")

    second = LogWriter(tmp_path / "logs")

    assert second.received(KEY) == {STDOUT: 3, STDERR: 3}
    second.append(KEY, STDOUT, 3, b"!")
    assert read_runs(tmp_path / "logs", KEY, 0, 10) == [
        ByteRun(STDOUT, 0, b"out"),
        ByteRun(STDERR, 3, b"err"),
        ByteRun(STDOUT, 6, b"!"),
    ]
    first.close()
    second.close()


@pytest.mark.parametrize("lost", ["data", "index", "torn index"])
def test_after_a_crash_what_the_index_does_not_cover_is_sent_again(tmp_path, lost):
    writer = LogWriter(tmp_path / "logs")
    writer.append(KEY, STDOUT, 0, b"out")
    writer.append(KEY, STDERR, 0, b"error")
    writer.close()
    data, index = log_path(tmp_path / "logs", KEY), log_path(tmp_path / "logs", KEY).with_suffix(".idx")
    if lost == "data":
        os.truncate(data, 5)
    else:
        os.truncate(index, 24 if lost == "index" else 40)

    again = LogWriter(tmp_path / "logs")

    assert again.received(KEY) == {STDOUT: 3, STDERR: 0}
    assert again.append(KEY, STDERR, 0, b"error") == 5
    assert read_runs(tmp_path / "logs", KEY, 0, 100) == [
        ByteRun(STDOUT, 0, b"out"),
        ByteRun(STDERR, 3, b"error"),
    ]
    again.close()


def test_a_reader_between_two_writes_of_the_writer_sees_only_what_counts(tmp_path):
    """Bytes are written before their record: until then they are not shown."""
    writer = LogWriter(tmp_path / "logs")
    writer.append(KEY, STDERR, 0, b"e")
    with log_path(tmp_path / "logs", KEY).open("ab") as file:
        file.write(b"not yet")

    assert read_runs(tmp_path / "logs", KEY, 0, 100) == [ByteRun(STDERR, 0, b"e")]
    writer.close()


def test_an_index_without_records_covers_nothing(tmp_path):
    writer = LogWriter(tmp_path / "logs")
    writer.append(KEY, STDERR, 0, b"e")
    os.truncate(log_path(tmp_path / "logs", KEY).with_suffix(".idx"), 0)

    assert log_size(tmp_path / "logs", KEY) == 0
    writer.close()


def test_few_files_are_open_however_many_jobs_write(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_OPEN_LOGS", 3)
    writer = LogWriter(tmp_path / "logs")
    one = LogKey(JobId("ABCD9999"), 1, 0)
    before = len(os.listdir("/proc/self/fd"))
    writer.append(one, STDOUT, 0, b"x")
    writer.append(one, STDERR, 0, b"y")
    each = len(os.listdir("/proc/self/fd")) - before
    keys = [LogKey(JobId(f"ABCD123{number}"), 1, 0) for number in range(6)]
    for turn in range(3):
        for key in keys:
            writer.append(key, STDOUT, turn, b"x")
            writer.append(key, STDERR, turn, b"y")

    assert each > 0
    assert len(os.listdir("/proc/self/fd")) == before + 3 * each
    assert [writer.received(key) for key in keys] == [{STDOUT: 3, STDERR: 3}] * 6
    writer.close()


def test_a_log_to_which_nothing_comes_any_more_is_closed(tmp_path, monkeypatch):
    """So it is with the output of a node that is gone for good: nobody will say that it is complete."""
    now = [100.0]
    writer = LogWriter(tmp_path / "logs", clock=lambda: now[0])
    gone, slow, last = (LogKey(JobId(f"ABCD123{number}"), 1, 0) for number in range(3))
    descriptors = len(os.listdir("/proc/self/fd"))
    writer.append(gone, STDERR, 0, b"a")
    writer.append(slow, STDOUT, 0, b"b")
    now[0] += logs.IDLE_S - 1.0
    writer.append(slow, STDOUT, 1, b"c")
    now[0] += 2.0
    writer.append(last, STDOUT, 0, b"d")

    assert list(writer._open) == [slow, last]
    assert len(os.listdir("/proc/self/fd")) == descriptors + 2
    with monkeypatch.context() as patched:
        patched.setattr(logs, "_records", lambda *_: pytest.fail("how far it is was known"))
        assert writer.append(gone, STDERR, 1, b"e") == 2
    writer.close()
    assert read_runs(tmp_path / "logs", gone, 0, 100) == [ByteRun(STDERR, 0, b"ae")]


def test_a_log_that_changed_while_it_was_closed_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_OPEN_LOGS", 1)
    monkeypatch.setattr(logs, "MAX_AWAY", 1)
    writer = LogWriter(tmp_path / "logs")
    keys = [LogKey(JobId(f"ABCD123{number}"), 1, 0) for number in range(3)]
    for key in keys:
        writer.append(key, STDERR, 0, b"abc")
    path = log_path(tmp_path / "logs", keys[1])
    path.write_bytes(b"abc" + b"what no record covers")

    assert list(writer._away) == [keys[1]]
    assert [writer.received(key) for key in keys] == [{STDOUT: 0, STDERR: 3}] * 3
    assert path.read_bytes() == b"abc"
    writer.close()


def test_a_log_whose_index_cannot_be_opened_leaves_nothing_open(tmp_path):
    writer = LogWriter(tmp_path / "logs")
    writer.append(KEY, STDERR, 0, b"a")
    writer.close()
    descriptors = len(os.listdir("/proc/self/fd"))

    def opener(path: str, flags: int, mode: int) -> int:
        if path.endswith(".idx"):
            raise OSError(errno.EMFILE, "too many open files")
        return os.open(path, flags, mode)

    with pytest.raises(OSError, match="too many open files"):
        LogWriter(tmp_path / "logs", opener=opener).received(KEY)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_detached_log_is_brought_to_disk_by_another_and_can_be_opened_again(tmp_path):
    writer = LogWriter(tmp_path / "logs")
    writer.append(KEY, STDOUT, 0, b"a")
    writer.append(KEY, STDERR, 0, b"b")

    writer.detach(KEY)()

    assert writer._open == {}
    assert writer.append(KEY, STDOUT, 1, b"c") == 2
    writer.close()


def test_a_log_that_reached_its_cap_ends_with_a_marker_and_wants_nothing_more(tmp_path):
    root = tmp_path / "logs"
    writer = LogWriter(root, cap_bytes=10)
    answers = [
        writer.append(KEY, STDOUT, 0, b"01234"),
        writer.append(KEY, STDERR, 0, b"error"),
        writer.append(KEY, STDOUT, 5, b"x"),
        writer.append(KEY, STDERR, 5, b"more"),
    ]

    assert answers == [5, 5, NOTHING_MORE, NOTHING_MORE]
    assert read_runs(root, KEY, 0, 1000) == [
        ByteRun(STDOUT, 0, b"01234"),
        ByteRun(STDERR, 5, b"error" + cut_marker(10)),
    ]
    assert is_cut(root, KEY)
    writer.close()
    again = LogWriter(root, cap_bytes=10)
    assert again.received(KEY) == {STDOUT: NOTHING_MORE, STDERR: NOTHING_MORE}
    assert again.append(KEY, STDOUT, 5, b"x") == NOTHING_MORE
    assert log_size(root, KEY) == 10 + len(cut_marker(10))
    again.close()


def test_a_chunk_that_goes_over_the_cap_is_kept_up_to_it(tmp_path):
    writer = LogWriter(tmp_path / "logs", cap_bytes=4)

    assert writer.append(KEY, STDOUT, 0, b"0123456789") == NOTHING_MORE
    assert read_runs(tmp_path / "logs", KEY, 0, 4) == [ByteRun(STDOUT, 0, b"0123")]
    assert log_path(tmp_path / "logs", KEY).read_bytes() == b"0123" + cut_marker(4)
    writer.close()


def test_a_log_of_exactly_its_cap_is_whole(tmp_path):
    writer = LogWriter(tmp_path / "logs", cap_bytes=4)

    assert writer.append(KEY, STDOUT, 0, b"0123") == 4
    assert (is_cut(tmp_path / "logs", KEY), log_size(tmp_path / "logs", KEY)) == (False, 4)
    writer.close()


def test_without_a_cap_all_is_kept(tmp_path):
    writer = LogWriter(tmp_path / "logs", cap_bytes=0)

    assert writer.append(KEY, STDOUT, 0, b"x" * 1000) == 1000
    writer.close()


def test_a_long_index_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_BLOCK_RECORDS", 3)
    writer = LogWriter(tmp_path / "logs")
    for turn in range(10):
        writer.append(KEY, STDOUT, turn, b"o")
        writer.append(KEY, STDERR, turn, b"e")
    writer.close()

    assert [run.stream for run in read_runs(tmp_path / "logs", KEY, 5, 10)] == [STDERR, STDOUT] * 5
    assert LogWriter(tmp_path / "logs").received(KEY) == {STDOUT: 10, STDERR: 10}


@given(
    chunks=st.lists(
        st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(min_size=1, max_size=9)), max_size=20
    ),
    offset=st.integers(0, 60),
    limit=st.integers(1, 60),
)
def test_any_window_of_any_mixture_reads_back_exactly(tmp_path_factory, chunks, offset, limit):
    root = tmp_path_factory.mktemp("logs") / "logs"
    writer, sizes, expected = LogWriter(root), {STDOUT: 0, STDERR: 0}, []
    for stream, data in chunks:
        writer.append(KEY, stream, sizes[stream], data)
        sizes[stream] += len(data)
        expected += [(stream, byte) for byte in data]
    writer.close()

    runs = read_runs(root, KEY, offset, limit)

    read = [(run.stream, byte) for run in runs for byte in run.data]
    assert read == expected[offset : offset + limit]
    assert all(first.stream != second.stream for first, second in itertools.pairwise(runs))


def test_a_full_disk_leaves_no_half_of_a_record(tmp_path):
    root = tmp_path / "logs"
    writer = LogWriter(root)
    for number in range(4):
        writer.append(KEY, STDERR if number % 2 else STDOUT, number // 2, b"x")
    index = log_path(root, KEY).with_suffix(".idx")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (index.stat().st_size + 10, hard))
    try:
        with pytest.raises(OSError, match=r"large|space"):
            writer.append(KEY, STDOUT, 2, b"y")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert writer.append(KEY, STDOUT, 2, b"y") == 3
    assert writer.append(KEY, STDERR, 2, b"z") == 3
    whole = [
        ByteRun(STDOUT, 0, b"x"),
        ByteRun(STDERR, 1, b"x"),
        ByteRun(STDOUT, 2, b"x"),
        ByteRun(STDERR, 3, b"x"),
        ByteRun(STDOUT, 4, b"y"),
        ByteRun(STDERR, 5, b"z"),
    ]
    assert read_runs(root, KEY, 0, 100) == whole
    writer.close()
    assert LogWriter(root).received(KEY) == {STDOUT: 3, STDERR: 3}


def test_the_output_of_one_user_ends_at_their_share_over_all_jobs_and_restarts(tmp_path):
    root, owners = tmp_path / "logs", {"MALL0001": "mallory", "MALL0002": "mallory", "ANNN0001": "ann"}
    first, second, other = (LogKey(JobId(name), 1, 0) for name in owners)
    writer = LogWriter(root, shares=DiskShares(100), owner=owners.__getitem__)
    assert writer.append(first, STDOUT, 0, b"x" * 60) == 60
    writer.close()

    shares = DiskShares(100, output_by_user(root, owners))
    writer = LogWriter(root, shares=shares, owner=owners.__getitem__)
    assert shares.used("mallory") == 60
    assert writer.append(second, STDOUT, 0, b"y" * 60) == NOTHING_MORE
    assert writer.append(first, STDOUT, 60, b"x") == NOTHING_MORE
    assert writer.append(other, STDOUT, 0, b"z" * 90) == 90
    assert [log_path(root, key).read_bytes() for key in (first, second, other)] == [
        b"x" * 60 + share_marker(100),
        b"y" * 40 + share_marker(100),
        b"z" * 90,
    ]
    writer.close()
    assert output_by_user(root, owners) == {user: shares.used(user) for user in ("mallory", "ann")}


def test_those_who_run_the_cluster_have_no_share(tmp_path):
    writer = LogWriter(tmp_path / "logs", shares=DiskShares(10, {}, "root".__eq__), owner=lambda _: "root")
    assert writer.append(KEY, STDOUT, 0, b"x" * 60) == 60
    writer.close()


def test_a_log_that_is_let_go_is_on_disk_and_leaves_no_descriptor(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(logs.os, "fdatasync", synced.append)
    writer = LogWriter(tmp_path / "logs")
    before = set(os.listdir("/proc/self/fd"))
    writer.append(KEY, STDOUT, 0, b"out")
    writer.append(KEY, STDERR, 0, b"err")
    opened = len(set(os.listdir("/proc/self/fd")) - before)
    bring_to_disk = writer.detach(KEY)
    assert (opened, synced) == (2, [])
    bring_to_disk()
    assert (len(set(synced)), set(os.listdir("/proc/self/fd"))) == (2, before)
    writer.detach(KEY)()
    assert len(synced) == 2, "there is nothing any more"
    writer.close()
