"""Spool files give back what the master has: late enough that it is safe there, at once where it is not
wanted.
"""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from mgpu_agent.process import output
from mgpu_agent.process.output import KEPT_S, LOST, PUNCH_BYTES, OutputShipper, Puncher, punch_hole
from mgpu_agent.protocol.model import NOTHING_MORE, OutputMark
from tests.agent.test_output import KEY, a_status, shipped, spool_name, stem, write
from tests.processes import wait_until

SIZE = PUNCH_BYTES + 4096


def a_flood(path: Path, punch=punch_hole) -> OutputShipper:
    """Return a shipper whose one stream has written `SIZE` bytes, all sent and none acknowledged."""
    shipper = OutputShipper(str(path), punch)
    shipper.restart(4 * SIZE, ())
    write(path, b"x" * SIZE)
    shipper.follow(a_status(), stem(KEY))
    assert sum(len(data) for *_, data in shipped(shipper)) == SIZE
    return shipper


def blocks(path: Path) -> int:
    return os.stat(path / spool_name(KEY, 1)).st_blocks * 512


def test_what_the_master_has_had_for_a_while_is_given_back(tmp_path: Path) -> None:
    shipper = a_flood(tmp_path)
    shipper.acknowledge(OutputMark(KEY, 0, 1, SIZE), 1.0)
    shipper.release(1.0)
    shipper.release(1.0 + KEPT_S - 1)
    early = blocks(tmp_path)
    shipper.release(1.0 + KEPT_S)

    assert (early >= SIZE, blocks(tmp_path)) == (True, 0)
    assert os.stat(tmp_path / spool_name(KEY, 1)).st_size == SIZE
    write(tmp_path, b"more")
    shipper.grew(None)
    assert shipped(shipper) == [("A", 1, SIZE, b"more")]


def test_what_is_not_wanted_is_neither_sent_nor_kept(tmp_path: Path) -> None:
    shipper = a_flood(tmp_path)
    shipper.acknowledge(OutputMark(KEY, 0, 1, NOTHING_MORE), 1.0)
    write(tmp_path, b"y" * SIZE)
    shipper.grew(None)
    shipper.release(1.0)

    assert (shipped(shipper), shipper.has_more, shipper.in_flight_bytes) == ([], False, 0)
    assert SIZE <= blocks(tmp_path) < SIZE + 2 * 4096
    shipper.follow(a_status(sizes=(2 * SIZE, 0)), stem(KEY))
    assert shipped(shipper) == []


def test_a_new_connection_learns_that_nothing_more_is_wanted(tmp_path: Path) -> None:
    shipper = a_flood(tmp_path)
    shipper.restart(SIZE, (OutputMark(KEY, 0, 1, NOTHING_MORE),))

    assert shipped(shipper) == []


def test_a_master_that_lost_what_the_node_let_go_of_gets_a_line_about_it(tmp_path: Path) -> None:
    shipper = a_flood(tmp_path)
    shipper.acknowledge(OutputMark(KEY, 0, 1, SIZE), 1.0)
    shipper.release(1.0)
    shipper.release(1.0 + KEPT_S)
    shipper.acknowledge(OutputMark(KEY, 0, 1, SIZE - 200), 2.0)

    assert shipped(shipper) == [("A", 1, SIZE - 200, LOST.ljust(200))]


def test_a_master_that_forgot_its_cap_gets_what_is_left(tmp_path: Path) -> None:
    shipper = a_flood(tmp_path)
    shipper.acknowledge(OutputMark(KEY, 0, 1, NOTHING_MORE), 1.0)
    write(tmp_path, b"y" * SIZE)
    shipper.release(1.0)
    shipper.acknowledge(OutputMark(KEY, 0, 1, SIZE - 3), 2.0)
    first, second, *_ = shipped(shipper)

    assert first == ("A", 1, SIZE - 3, b"xxx")
    assert (second[2], second[3][: len(LOST)]) == (SIZE, LOST)


def test_a_file_system_that_cannot_is_not_asked_again(tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []

    def cannot(_: str, start: int, end: int) -> bool:
        asked.append((start, end))
        return False

    shipper = a_flood(tmp_path, cannot)
    shipper.acknowledge(OutputMark(KEY, 0, 1, NOTHING_MORE), 1.0)
    write(tmp_path, b"y" * SIZE)
    for now in (1.0, 2.0, 1000.0):
        shipper.release(now)

    assert asked == [(SIZE, 2 * SIZE)]


def test_files_that_are_gone_are_no_trouble(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(output, "PUNCH_BYTES", 0)
    shipper = a_flood(tmp_path)
    shipper.acknowledge(OutputMark(KEY, 0, 1, NOTHING_MORE), 1.0)
    (tmp_path / spool_name(KEY, 1)).unlink()
    shipper.release(1.0)

    assert (shipped(shipper), punch_hole(str(tmp_path / "no such file"), 0, 1)) == ([], True)


def test_blocks_are_given_back_beside_the_agents_own_work(tmp_path: Path) -> None:
    """A hole of gigabytes takes a file system seconds, in which nothing else of the node would be heard."""
    may_go_on, punched = threading.Event(), queue.SimpleQueue[tuple[str, int, int]]()

    def slow(path: str, start: int, end: int) -> bool:
        if start:
            assert may_go_on.wait(30)
            punched.put((path, start, end))
        return True

    punch = Puncher(str(tmp_path), slow)

    assert (punch("a", 1, 2), punch("b", 3, 4), punched.empty()) == (True, True, True)
    may_go_on.set()
    assert [punched.get(timeout=120), punched.get(timeout=120)] == [("a", 1, 2), ("b", 3, 4)]
    assert os.listdir(tmp_path) == []


def test_a_file_system_that_cannot_give_back_is_found_out_at_the_start(tmp_path: Path) -> None:
    assert Puncher(str(tmp_path), lambda *_: False)("a", 0, 1) is False
    assert Puncher(str(tmp_path))(str(tmp_path / "gone"), 0, 1) is True
    assert Puncher(str(tmp_path / "nowhere"))("a", 0, 1) is True


def test_one_that_can_no_longer_is_asked_no_more(tmp_path: Path) -> None:
    asked = queue.SimpleQueue[str]()

    def breaks(path: str, start: int, end: int) -> bool:
        asked.put(path)
        return path != "broken"

    punch = Puncher(str(tmp_path), breaks)
    asked.get(timeout=120)
    assert punch("broken", 0, 1) is True
    assert asked.get(timeout=120) == "broken"
    wait_until(lambda: not punch("next", 0, 1), "it is known that it cannot")
