"""The agent's machine with a join line, and when it is revoked."""

from __future__ import annotations

from mgpu_agent.core.commands import Connect, End, SaveEnrolment, Say, Send, SetPace, StopAttempt
from mgpu_agent.core.connection import HANG_UPS, HUNG_UP, LINE_REFUSED, LINE_TRIES, WHY
from mgpu_agent.core.events import Began, LinkFell, LinkRose, TaskTold
from mgpu_agent.protocol.messages import Enrol, Enrolled, Launch, Refuse
from tests.agent.core_world import (
    ATTACHED,
    JOINED,
    JOINING,
    KEY,
    NODE,
    OTHER,
    WELCOME,
    a_machine,
    a_spec,
    a_status,
    said,
)

PACE = SetPace(sample_s=1.0, output_window_bytes=100, received=())
LINE_FELL = LinkFell(at=1.0, may_enrol=True, keys_refused=True)


def test_a_line_that_is_refused_again_and_again_ends_the_agent() -> None:
    """In between it tries the node's own key: the answer to an enrolment may have been lost."""
    machine = a_machine(Began(at=0.0), ATTACHED, is_enrolled=False, has_line=True)

    steps = [machine.handle(LINE_FELL) for _ in range(4)]

    assert steps == [
        [Connect(enrolling=False, delay_s=0.1)],
        [Connect(enrolling=True, delay_s=0.2)],
        [Connect(enrolling=False, delay_s=0.4)],
        [End(reason=LINE_REFUSED, code=1)],
    ]


def test_connections_that_break_before_keys_are_exchanged_are_tried_again_at_once_and_not_called_refused() -> (  # noqa: E501
    None
):
    """A network that is cut does that; a lease must not run out while the agent waits to be forgiven."""
    machine = a_machine(*JOINED)
    fell = LinkFell(at=1.0, may_enrol=False, hung_up=True)

    steps = [machine.handle(fell) for _ in range(HANG_UPS + 2)]

    told = Say(event="refused", fields={"code": HUNG_UP, "message": WHY[HUNG_UP]}, is_warning=True)
    assert steps == [
        [Say(event="master_lost", is_warning=True), Connect(enrolling=False, delay_s=0.1)],
        [Connect(enrolling=False, delay_s=0.2)],
        [Connect(enrolling=False, delay_s=0.4)],
        [told, Connect(enrolling=False, delay_s=0.8)],
        [Connect(enrolling=False, delay_s=1.6)],
        [Connect(enrolling=False, delay_s=2.0)],
    ]


def test_a_break_between_others_is_not_one_of_many_in_a_row() -> None:
    fell = LinkFell(at=1.0, may_enrol=True, hung_up=True)
    machine = a_machine(*JOINING, *[fell] * (HANG_UPS - 1), LinkFell(at=2.0, may_enrol=True))

    assert machine.handle(fell) == [Connect(enrolling=False, delay_s=1.6)]


def test_a_master_that_always_hangs_up_at_home_is_enrolled_with_anew() -> None:
    fell = LinkFell(at=1.0, may_enrol=True, hung_up=True)
    machine = a_machine(*JOINING, *[fell] * (HANG_UPS - 1))

    assert machine.handle(fell) == [Connect(enrolling=True, delay_s=0.8)]


def test_a_line_of_a_master_that_always_hangs_up_ends_the_agent() -> None:
    machine = a_machine(Began(at=0.0), ATTACHED, is_enrolled=False, has_line=True)
    fell = LinkFell(at=1.0, may_enrol=False, hung_up=True)

    steps = [machine.handle(fell) for _ in range(HANG_UPS + LINE_TRIES - 1)]

    assert steps[-1] == [End(reason=LINE_REFUSED, code=1)]
    assert [step for step in steps[:-1] if not isinstance(step[-1], Connect)] == []


def test_an_enrolment_whose_answer_was_lost_is_found_to_have_worked() -> None:
    machine = a_machine(
        Began(at=0.0), ATTACHED, LINE_FELL, LinkRose(at=2.0), is_enrolled=False, has_line=True
    )

    assert machine.handle(said(WELCOME)) == [
        SaveEnrolment(),
        PACE,
        Say(event="joined", fields={"cluster": "c"}),
    ]


def test_a_line_for_a_node_that_is_enrolled_already_is_not_needed() -> None:
    machine = a_machine(*JOINING, has_line=True)

    assert machine.handle(said(WELCOME)) == [
        SaveEnrolment(),
        PACE,
        Say(event="joined", fields={"cluster": "c"}),
    ]
    assert machine.handle(said(WELCOME)) == [PACE, Say(event="joined", fields={"cluster": "c"})]


def test_a_fresh_line_is_used_when_the_old_key_is_refused() -> None:
    machine = a_machine(*JOINING[:2], has_line=True)

    steps = [
        machine.handle(LINE_FELL),
        machine.handle(LinkRose(at=2.0)),
        machine.handle(said(Enrolled(node_id=NODE))),
    ]

    assert steps == [
        [Connect(enrolling=True, delay_s=0.1)],
        [Send(message=Enrol(node_id=NODE, public_key="key"))],
        [SaveEnrolment(), Say(event="enrolled"), Connect(enrolling=False)],
    ]


def test_an_enrolment_by_a_line_that_is_refused_with_a_reason_ends_with_it() -> None:
    machine = a_machine(Began(at=0.0), ATTACHED, LinkRose(at=0.0), is_enrolled=False, has_line=True)

    assert machine.handle(said(Refuse(code="node-id-taken", message="Choose another."))) == [
        End(reason="Choose another.", code=1)
    ]


def test_a_revoked_node_ends_what_it_runs_and_itself() -> None:
    running = (said(Launch(spec=a_spec())), TaskTold(at=1.0, status=a_status()))
    machine = a_machine(*JOINED, *running, said(Launch(spec=a_spec(OTHER))))

    assert machine.handle(said(Refuse(code="revoked", message="Not part of this cluster any more."))) == [
        StopAttempt(key=KEY, grace_s=15.0, reason="This node was revoked."),
        StopAttempt(key=OTHER, grace_s=15.0, reason="This node was revoked."),
        End(reason="Not part of this cluster any more.", code=1),
    ]
