"""A start as a trial: the decisions, and a whole agent with a keeper whose directories are spoilt and
mended.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.core.commands import Command, ForgetAttempts, Send, StartLaunch, StopAttempt
from mgpu_agent.core.events import Event, KeeperAttached, KeeperLost, LaunchFailed, LinkFell, TaskTold, Ticked
from mgpu_agent.core.trial import LIMIT_S, SCRIPT
from mgpu_agent.node_checks import INTERVAL_S, Gauge
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import Probe, Probed
from mgpu_agent.protocol.model import LaunchSpec, TaskSpec
from tests.agent.conftest import Node
from tests.agent.core_world import ATTACHED, FACTS, JOINED, NODE, a_machine, a_status, said
from tests.agent.master import SmallMaster, wait_until

WALL = 1_700_000_000.5
TICK = Ticked(at=1.0, wall=WALL)
PROBE = said(Probe(number=7), at=1.0)
KEY = AttemptKey(JobId("trial-1700000000500"), 1, 7)
EARLIER = AttemptKey(JobId("trial-1600000000000"), 1, 3)
FORGET = ForgetAttempts(keys=(KEY,))


def a_start(key: AttemptKey = KEY) -> StartLaunch:
    return StartLaunch(
        spec=LaunchSpec(
            key=key,
            node_id=NODE,
            incarnation=FACTS.incarnation,
            user="",
            tasks=(TaskSpec(rank=0),),
            script=SCRIPT,
        )
    )


def a_stop(key: AttemptKey = KEY) -> StopAttempt:
    return StopAttempt(key=key, grace_s=0.0, reason="This trial is over.")


def told(message: str = "", number: int = 7) -> Send:
    return Send(message=Probed(number=number, ok=not message, message=message))


STARTED = TaskTold(at=2.0, status=a_status(KEY))
ENDED = TaskTold(at=2.0, status=a_status(KEY, ended=True))
BROKEN = LaunchFailed(at=2.0, key=KEY, code="node-files", message="The disk is full.", fault="node")

CASES: dict[str, tuple[tuple[Event, ...], Event, list[Command]]] = {
    "it is prepared and started like a job": ((TICK,), PROBE, [a_start()]),
    "that it started is not enough": ((TICK, PROBE), STARTED, []),
    "an end without a fault is told": ((TICK, PROBE, STARTED), ENDED, [FORGET, told()]),
    "so is an exit code": (
        (TICK, PROBE),
        TaskTold(at=2.0, status=replace(a_status(KEY, ended=True), exit_code=2)),
        [FORGET, told("A trial start ended with exit code 2.")],
    ),
    "and a signal": (
        (TICK, PROBE),
        TaskTold(
            at=2.0, status=replace(a_status(KEY, ended=True), exit_code=None, signal=9, reason="killed")
        ),
        [FORGET, told("A trial start ended with signal 9 (killed).")],
    ),
    "and that it could not be started": ((TICK, PROBE), BROKEN, [told("The disk is full.")]),
    "what was told is not told again": ((TICK, PROBE, ENDED), BROKEN, []),
    "it may take some time": ((TICK, PROBE), Ticked(at=1.0 + LIMIT_S - 0.1), []),
    "but not for ever": (
        (TICK, PROBE),
        Ticked(at=1.0 + LIMIT_S),
        [a_stop(), told("A trial start was not over within 10 s.")],
    ),
    "an end after that is only cleared away": ((TICK, PROBE, Ticked(at=1.0 + LIMIT_S)), ENDED, [FORGET]),
    "a new one takes the place of one that is not over": (
        (TICK, PROBE, Ticked(at=2.0, wall=WALL + 1)),
        said(Probe(number=8), at=2.0),
        [a_stop(), a_start(AttemptKey(JobId("trial-1700000001500"), 1, 8))],
    ),
    "without a keeper it fails": ((TICK, KeeperLost(at=1.0)), PROBE, [told("Its keeper is away.")]),
    "one of an earlier agent is ended": ((), TaskTold(at=2.0, status=a_status(EARLIER)), [a_stop(EARLIER)]),
    "and cleared away": (
        (),
        TaskTold(at=2.0, status=a_status(EARLIER, ended=True)),
        [ForgetAttempts(keys=(EARLIER,))],
    ),
    "without a master nothing is said": ((TICK, PROBE, LinkFell(at=1.5, may_enrol=False)), ENDED, [FORGET]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_trial(case: str) -> None:
    before, event, expected = CASES[case]
    commands = a_machine(*JOINED, *before).handle(event)

    assert [
        command
        for command in commands
        if not isinstance(command, Send) or isinstance(command.message, Probed)
    ] == expected


def test_a_trial_that_a_new_agent_finds_is_no_task() -> None:
    machine = a_machine()
    commands = machine.handle(
        KeeperAttached(at=0.0, facts=FACTS, tasks=(a_status(EARLIER, ended=True), a_status(KEY)))
    )

    assert commands == [ForgetAttempts(keys=(EARLIER,)), a_stop()]
    assert not machine.is_busy
    assert a_machine().handle(ATTACHED) == []


# --- a whole agent ------------------------------------------------------------------------------------


def probe(master: SmallMaster, number: int) -> Probed:
    master.say(Probe(number=number))
    return master.wait(lambda: next((trial for trial in master.trials if trial.number == number), None))


def test_a_node_that_can_start_processes_says_so_and_keeps_nothing_of_it(
    joined: SmallMaster, node: Node
) -> None:
    assert [probe(joined, number) for number in (1, 2)] == [
        Probed(number=number, ok=True) for number in (1, 2)
    ]
    assert (joined.reports, joined.refusals) == ([], [])
    key = joined.launch("true")
    joined.wait_end(key)
    joined.forget(key)
    wait_until(
        lambda: (
            not [
                path
                for name in ("spool", "scratch")
                for path in (node.directory / name).iterdir()
                if "trial" in path.name
            ]
        )
    )


@pytest.mark.parametrize("name", ["scratch", "spool"])
def test_a_node_whose_directory_is_spoilt_says_what_is_wrong_until_it_is_mended(
    joined: SmallMaster, node: Node, name: str
) -> None:
    directory = node.directory / name
    away = directory.rename(node.directory / "away")
    directory.write_text("in the way")
    key = joined.launch("true", cwd="/no/such/directory")
    refusal = joined.wait(lambda: next((one for one in joined.refusals if one.key == key), None))
    spoilt = probe(joined, 1)

    assert (refusal.fault, spoilt.ok) == ("node", False)
    assert spoilt.message.startswith("The node could not prepare the job's files:")
    directory.unlink()
    away.rename(directory)
    assert probe(joined, 2) == Probed(number=2, ok=True)
    assert joined.wait_end(joined.launch("true", cwd="/no/such/directory")).exit_code == 0


def test_heartbeats_carry_how_busy_the_machine_is(joined: SmallMaster) -> None:
    beat = joined.wait(
        lambda: next((beat for beat in joined.heartbeats if beat.cpu_percent is not None), None)
    )

    assert beat.cpu_percent is not None
    assert 0.0 <= beat.cpu_percent <= 100.0
    assert beat.memory_available_bytes is not None
    assert 0 < beat.memory_available_bytes <= joined.hellos[0].facts.memory_bytes


def test_a_reading_is_used_for_its_whole_interval() -> None:
    gauge = Gauge()
    assert gauge.read(5.0).cpu_percent is None
    first = gauge.read(5.0 + INTERVAL_S)
    assert first.load is not None
    assert gauge.read(5.0 + 1.9 * INTERVAL_S) is first
    assert gauge.read(5.0 + 2 * INTERVAL_S) is not first


def test_a_directory_that_cannot_be_read_does_not_end_the_clearing_of_files(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.write_script(KEY, "#!/bin/sh")
    (tmp_path / "scratch").rmdir()
    spool.delete_attempts((KEY,))
    spool.close()

    assert list((tmp_path / "spool").iterdir()) == []
