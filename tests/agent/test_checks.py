"""What a node looks at by itself: disk, address, a program of the site; and when it tells."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mgpu_agent import node_checks
from mgpu_agent.core.commands import Say, Send, SetChecks
from mgpu_agent.core.events import LinkFell, LinkRose, Ticked
from mgpu_agent.node_checks import Checks, check_address, check_disk, check_interpreter
from mgpu_agent.protocol.addresses import FoundAddress, FoundBy
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.messages import Check, Checked, Hello, Resync
from mgpu_agent.protocol.model import Ailment, GpuInfo, HealthChecks
from tests.agent.core_world import ATTACHED, JOINED, a_machine, said
from tests.agent.master import wait_until

DISK = Ailment(check="disk", text="Its disk is full.")
HERE = FoundAddress("127.0.0.1", FoundBy.WAY_TO_MASTER)
GPUS = tuple(GpuInfo(index=index, uuid=GpuUuid(f"GPU-{index}"), name="g", memory_bytes=1) for index in (0, 3))


# --- when it tells ---------------------------------------------------------------------------------


def test_a_finding_is_told_once_and_again_after_each_hello() -> None:
    machine = a_machine(*JOINED)
    failed = Say(event="check_failed", fields={"check": "disk", "text": DISK.text}, is_warning=True)

    assert machine.handle(Ticked(at=0.5, ailments=())) == []
    assert machine.handle(Ticked(at=0.6, ailments=(DISK,))) == [
        failed,
        Send(message=Checked(ailments=(DISK,))),
    ]
    assert machine.handle(Ticked(at=0.7, ailments=(DISK,))) == []
    assert machine.handle(Ticked(at=0.8)) == []
    hello, again = machine.handle(said(Resync(), at=0.9))
    assert isinstance(hello, Send)
    assert isinstance(hello.message, Hello)
    assert again == Send(message=Checked(ailments=(DISK,)))


def test_what_is_found_while_there_is_no_master_is_told_when_there_is_one() -> None:
    machine = a_machine(*JOINED)
    machine.handle(Ticked(at=0.5, ailments=(DISK,)))
    machine.handle(LinkFell(at=0.6, may_enrol=False))

    assert machine.handle(Ticked(at=0.7, ailments=())) == [
        Say(event="check_passed", fields={"check": "disk"})
    ]
    machine.handle(ATTACHED)
    assert [
        type(command.message) for command in machine.handle(LinkRose(at=1.0)) if isinstance(command, Send)
    ] == [Hello]


def test_what_to_look_at_comes_from_the_master() -> None:
    wanted = HealthChecks(every_s=5.0, program=("check",))

    assert a_machine(*JOINED).handle(said(Check(checks=wanted), at=0.5)) == [SetChecks(checks=wanted)]


# --- what it looks at ------------------------------------------------------------------------------


def test_a_disk_with_room_is_well(tmp_path: Path) -> None:
    assert check_disk(tmp_path, 1) == []


def test_a_disk_with_too_little_room_says_how_much(tmp_path: Path) -> None:
    (found,) = check_disk(tmp_path, 1 << 62)

    assert (found.check, found.gpu) == ("disk", None)
    assert found.text.endswith("left and should have 4194304 TiB: make room under its state directory.")


def test_a_directory_that_cannot_be_written_is_an_ailment(tmp_path: Path) -> None:
    (found,) = check_disk(tmp_path / "gone", 0)

    text = (
        "Its state directory cannot be written (No such file or directory): make room or mount it writable."
    )
    assert found == Ailment(check="disk", text=text)


@pytest.mark.parametrize(
    ("found", "is_well"),
    [
        (HERE, True),
        (FoundAddress("192.0.2.77", FoundBy.GIVEN), True),
        (FoundAddress("192.0.2.77", FoundBy.WAY_TO_MASTER), False),
        (FoundAddress("192.0.2.77", FoundBy.DEFAULT_ROUTE), False),
    ],
)
def test_an_address_must_be_one_of_the_machines_unless_it_was_given(
    found: FoundAddress, is_well: bool
) -> None:
    assert (check_address(found) == []) == is_well


def test_the_python_of_cells_must_be_there(tmp_path: Path) -> None:
    gone = tmp_path / "python"

    assert check_interpreter(sys.executable) == []
    (found,) = check_interpreter(str(gone))
    text = (
        f"Its Python {gone} is gone, so that cells cannot run: install mgpu-jupyter there anew and "
        f"restart mgpu_node."
    )
    assert found == Ailment(check="interpreter", text=text)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("pass", []),
        ("print('GPU 0: fine'); pass", []),
        (
            "print('the fan is off'); exit(3)",
            [Ailment(check="program", text="The site's health check {name} says: the fan is off.")],
        ),
        ("exit(3)", [Ailment(check="program", text="The site's health check {name} says: exit code 3.")]),
        (
            "print('gpu 3: too hot'); print('GPU 3: still'); exit(1)",
            [
                Ailment(
                    check="program",
                    text="The site's health check {name} says: too hot.",
                    gpu=GpuUuid("GPU-3"),
                )
            ],
        ),
        (
            "print('gpu 7: is not ours'); print('gpu 0'); exit(1)",
            [
                Ailment(check="program", text="The site's health check {name} says: gpu 7: is not ours."),
                Ailment(
                    check="program",
                    text="The site's health check {name} says: it is not well.",
                    gpu=GpuUuid("GPU-0"),
                ),
            ],
        ),
        (
            "import os; exit(os.environ['MGPU_NODE_ID'])",
            [Ailment(check="program", text="The site's health check {name} says: n1.")],
        ),
    ],
)
def test_a_program_of_the_site_says_what_is_wrong(
    tmp_path: Path, script: str, expected: list[Ailment]
) -> None:
    program = (sys.executable, "-c", script)
    name = Path(sys.executable).name

    found = one_round(tmp_path, HealthChecks(program=program))

    assert found == tuple(
        Ailment(check=one.check, text=one.text.format(name=name), gpu=one.gpu) for one in expected
    )


def test_a_program_that_is_missing_or_hangs_is_an_ailment(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")

    assert one_round(tmp_path, HealthChecks(program=(missing,))) == (
        Ailment(
            check="program", text="The site's health check nothing cannot be run: No such file or directory."
        ),
    )
    assert one_round(tmp_path, HealthChecks(program=("sleep", "600"), program_timeout_s=0.1)) == (
        Ailment(check="program", text="The site's health check sleep did not end within 0.1 s."),
    )


def test_a_check_that_breaks_does_not_end_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[int] = []

    def look(directory: Path, min_free_bytes: int) -> list[Ailment]:
        broken.append(1)
        if len(broken) == 1:
            raise RuntimeError("broken")
        return [DISK]

    monkeypatch.setattr(node_checks, "check_disk", look)

    assert one_round(tmp_path, HealthChecks(every_s=0.01)) == (DISK,)


def one_round(directory: Path, wanted: HealthChecks) -> tuple[Ailment, ...]:
    """Return what the first round finds."""
    looking = Checks("n1", directory, HERE, GPUS)
    try:
        assert looking.take() is None
        looking.set(wanted)
        found: list[tuple[Ailment, ...]] = []

        def is_there() -> bool:
            newest = looking.take()
            found.extend([] if newest is None else [newest])
            return bool(found)

        wait_until(is_there)
        return found[0]
    finally:
        looking.close()
