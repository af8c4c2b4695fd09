"""Whose a process is, by a process table that a test makes up: descent, sessions, groups, marks, users."""

from __future__ import annotations

import os

import pytest

from mgpu_agent.keeper.live_tasks import LiveTask
from mgpu_agent.keeper.trees import Process, ProcessTable, Seen
from tests.agent.keepers import a_key
from tests.agent.process_world import ANNE, BERT, KEEPER, Machine, machine

__all__ = ("machine",)  # fixtures


# --- the process table ---------------------------------------------------------------------------------


def members(machine: Machine, seen: Seen | None = None, **more: object) -> list[int]:
    table = ProcessTable(dict(machine.processes))
    found = table.members(201, b"mark", seen or Seen(), {KEEPER}, **more)  # type: ignore[arg-type]
    return sorted(process.pid for process in found)


def test_a_tree_is_found_by_descent_session_group_and_mark(machine: Machine) -> None:
    machine.run(201, KEEPER)
    machine.run(301, 201, session=301)  # a child in a session of its own
    machine.run(302, 1, session=301)  # what hides in that session
    machine.run(303, 1, session=201)
    machine.processes[304] = Process(304, 1, 201, 999, 1)  # its group alone
    machine.run(305, 1, marker=b"mark", user=os.getuid())
    machine.run(306, 305)
    machine.run(401, 1, marker=b"mark2")
    machine.run(402, 1, session=301, user=BERT)  # in that session, but another's
    machine.users[304] = 0

    assert members(machine) == [201, 301, 302, 303, 304, 305, 306]


@pytest.mark.parametrize(
    ("user", "uid", "parent", "counts"),
    [
        (0, ANNE, 1, True),
        (ANNE, ANNE, 1, True),
        (BERT, ANNE, 1, False),
        (BERT, ANNE, KEEPER, False),
        (BERT, None, 1, os.getuid() == BERT),
        (BERT, None, KEEPER, True),
        (BERT, None, 501, True),
    ],
)
def test_a_mark_counts_on_who_may_bear_it(
    machine: Machine, user: int, uid: int | None, parent: int, counts: bool
) -> None:
    machine.run(501, KEEPER)
    machine.run(301, parent, marker=b"mark", user=user)

    assert members(machine, uid=uid) == ([301] if counts else [])


def test_a_number_that_was_given_away_is_not_the_leader(machine: Machine) -> None:
    machine.run(201, 1, session=201)
    machine.run(301, 1, session=201)

    assert (members(machine), members(machine, leader_gone=True)) == ([201, 301], [])


def test_a_leader_that_is_gone_leaves_its_session(machine: Machine) -> None:
    machine.run(301, 1, session=201)

    assert members(machine, leader_gone=True) == [301]


def test_what_was_seen_is_known_again_by_number_and_start(machine: Machine) -> None:
    seen = Seen()
    machine.run(201, KEEPER)
    machine.run(301, 201, session=301, start=5)
    members(machine, seen)
    machine.vanish(201)
    machine.run(301, 1, session=301, start=5)  # adopted
    machine.run(302, 1, session=301)  # under a session that was seen
    adopted = members(machine, seen)
    machine.run(301, 1, session=301, start=6)  # a stranger by that number, who leads that session
    machine.vanish(302)

    assert (adopted, members(machine, seen)) == ([301, 302], [])


def test_the_keepers_own_session_and_session_nought_say_nothing(machine: Machine) -> None:
    machine.run(201, KEEPER, session=KEEPER)
    machine.run(301, 1, session=KEEPER)
    machine.processes[302] = Process(302, 201, 0, 0, 1)
    machine.processes[303] = Process(303, 1, 0, 0, 1)
    machine.users |= {302: 0, 303: 0}

    assert members(machine) == [201, 302]


def test_descendants_and_marked_processes(machine: Machine) -> None:
    machine.run(201, KEEPER, marker=b"ledger/a")
    machine.run(301, 201, marker=b"other")
    machine.run(302, 301, marker=b"ledger/b")
    table = ProcessTable(dict(machine.processes))

    assert [
        sorted(process.pid for process in found)
        for found in (table.descendants(201), table.descendants(999), table.marked(b"ledger/"))
    ] == [[301, 302], [], [201, 302]]


def test_a_start_in_ticks_is_a_moment_of_the_boot_clock() -> None:
    ticks = os.sysconf("SC_CLK_TCK")

    assert Process(1, 0, 1, 1, 3 * ticks).started_boot_s == 3.0


@pytest.mark.parametrize(("uid", "may"), [(None, [True, True, True]), (ANNE, [True, True, False])])
def test_a_process_of_root_or_of_its_account_may_be_its_own(uid: int | None, may: list[bool]) -> None:
    task = LiveTask(a_key(), 0, 201, b"mark", uid=uid)

    assert [task.may_own(user) for user in (0, ANNE, BERT)] == may
