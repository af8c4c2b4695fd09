"""The agent's core from its enrolment to its end."""

from __future__ import annotations

import pytest

from mgpu_agent.core.commands import (
    Command,
    Connect,
    End,
    SaveEnrolment,
    SaveMasterEpoch,
    Say,
    Send,
    StartLaunch,
)
from mgpu_agent.core.connection import LONELY_S, Phase
from mgpu_agent.core.events import (
    Began,
    Event,
    KeeperAttached,
    LinkFell,
    LinkRose,
    MasterMoved,
    TaskTold,
    Ticked,
)
from mgpu_agent.core.work import REFUSALS_KEPT
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import (
    Bye,
    Enrol,
    Enrolled,
    Launch,
    Refuse,
    Start,
)
from tests.agent.core_world import (
    ATTACHED,
    FACTS,
    GPU,
    HELLO,
    JOINED,
    NODE,
    a_machine,
    a_spec,
    a_status,
    said,
)


def test_enrolment_from_the_start() -> None:
    machine = a_machine(is_enrolled=False, master_epoch=0)
    steps = [
        machine.handle(Began(at=0.0)),
        machine.handle(LinkRose(at=0.0)),
        machine.handle(ATTACHED),
        machine.handle(Ticked(at=2.9)),
        machine.handle(Ticked(at=3.0)),
        machine.handle(LinkFell(at=3.0, may_enrol=True)),
        machine.handle(said(Refuse(code="no", message="not yet"))),
        machine.handle(MasterMoved(at=3.0, is_another=False)),
        machine.handle(said(Enrolled(node_id=NODE), epoch=4)),
        machine.handle(LinkRose(at=4.0)),
    ]

    assert steps == [
        [Connect(enrolling=True)],
        [Send(message=Enrol(node_id=NODE, public_key="key"))],
        [],
        [],
        [
            Say(event="no_answer", fields={"phase": "enrolling"}, is_warning=True),
            Connect(enrolling=True, delay_s=0.1),
        ],
        [Connect(enrolling=True, delay_s=0.2)],
        [
            SaveMasterEpoch(master_epoch=1),
            Say(event="refused", fields={"code": "no", "message": "not yet"}, is_warning=True),
            Connect(enrolling=True, delay_s=4.0),
        ],
        [Connect(enrolling=True)],
        [SaveMasterEpoch(master_epoch=4), SaveEnrolment(), Say(event="enrolled"), Connect(enrolling=False)],
        [HELLO],
    ]


@pytest.mark.parametrize(
    ("given", "when", "then"),
    [
        (JOINED, said(Bye()), [End(reason="The master stopped.")]),
        ((*JOINED, said(Launch(spec=a_spec()))), said(Bye()), [Say(event="master_said_bye")]),
        (
            (
                *JOINED,
                said(Launch(spec=a_spec())),
                said(Bye()),
                LinkFell(at=1.0, may_enrol=False),
                TaskTold(at=2.0, status=a_status(ended=True)),
            ),
            Ticked(at=2.1),
            [End(reason="The master stopped, and the last job is over.")],
        ),
        (
            (*JOINED, said(Launch(spec=a_spec())), said(Bye()), LinkFell(at=1.0, may_enrol=False)),
            Ticked(at=2.0),
            [],
        ),
        ((Began(at=0.0), Ticked(at=0.0)), Ticked(at=LONELY_S - 1), []),
        ((Began(at=0.0), Ticked(at=0.0)), Ticked(at=LONELY_S), [End(reason="No master and nothing to run.")]),
        (
            (Began(at=0.0), KeeperAttached(at=0.0, facts=FACTS, tasks=(a_status(),)), Ticked(at=0.0)),
            Ticked(at=LONELY_S),
            [],
        ),
    ],
)
def test_an_embedded_agent_ends_with_its_master(
    given: tuple[Event, ...], when: Event, then: list[Command]
) -> None:
    assert then == a_machine(*given, is_embedded=True).handle(when)


def test_held_gpus_name_a_pid() -> None:
    machine = a_machine(*JOINED, said(Launch(spec=a_spec(gpus=(GPU,)))))
    before = machine.held_gpus()
    machine.handle(TaskTold(at=1.0, status=a_status(gpus=(GPU,))))
    running = machine.held_gpus()
    machine.handle(TaskTold(at=1.0, status=a_status(gpus=(GPU,), ended=True)))

    assert (before, running, machine.held_gpus()) == ({GPU: 0}, {GPU: 10}, {})
    assert (machine.is_busy, machine.may_ship, machine.phase) == (False, True, Phase.WELCOMED)


def test_another_master_starts_its_own_epochs() -> None:
    machine = a_machine(*JOINED, master_epoch=1)
    machine.handle(MasterMoved(at=1.0, is_another=True))

    assert machine.master_epoch == 0


def test_only_so_many_refusals_are_kept() -> None:
    machine = a_machine(*JOINED)
    for number in range(REFUSALS_KEPT + 1):
        machine.handle(said(Start(key=AttemptKey(JobId(f"{number:08}"), 1, 5))))

    last, first = (a_spec(AttemptKey(JobId(f"{number:08}"), 1, 5)) for number in (REFUSALS_KEPT, 0))
    assert [
        type(command) for spec in (last, first) for command in machine.handle(said(Launch(spec=spec)))
    ] == [Send, StartLaunch]
