"""The agent's connection to its master: its purpose, its phase, the messages that wait for it, what follows
its end. Part of the machine; pure.

Between a Hello and its Welcome things happen that the Hello does not mention, and the master may already have
sent the question that they answer, which it would not repeat. So they are kept until the Welcome. Findings of
checks are told after each Hello, and when they change.
"""

from __future__ import annotations

from enum import StrEnum

from mgpu_agent.core.commands import Command, Connect, End, SaveEnrolment, Say, Send
from mgpu_agent.core.events import LinkFell, MasterMoved, Ticked
from mgpu_agent.protocol.messages import Checked, Refuse
from mgpu_agent.protocol.model import Ailment

ANSWER_S = (
    3.0  # a master on the same machine answers in milliseconds; after this the key is taken as unknown to it
)
SILENCE_S = 120.0  # an end is told every 10 s: a master that acknowledges none of twelve does not hear us
LONELY_S = 60.0
BACK_OFF_S = (0.1, 2.0)
REFUSED_BACK_OFF_S = (1.0, 30.0)


class BackOff:
    """Delays that double with each failure in a row."""

    def __init__(self) -> None:
        self._failures = 0

    def next_s(self, limits: tuple[float, float] = BACK_OFF_S) -> float:
        """Return the delay before the next try, between these limits."""
        first, most = limits
        delay_s = min(most, first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return delay_s

    def reset(self) -> None:
        """Start over: a connection worked."""
        self._failures = 0


LINE_TRIES = 4  # with the line's key and with our own in turn: the answer to an enrolment may have been lost
HANG_UPS = 4
"""A master under another key hangs up without a word, and so does a network that breaks: only this many in
a row are taken for a refusal.
"""
KEY_REFUSED = "key-refused"
HUNG_UP = "hung-up"
ASK_AGAIN = "run `mgpu join-token` on the master's machine"
LINE_REFUSED = (
    f"The master refused this join line: it was used already, has expired, or is not this "
    f"master's; {ASK_AGAIN} for a new one."
)
WHY = {
    KEY_REFUSED: f"The master does not know this node's key (any more): stop this agent and {ASK_AGAIN}.",
    HUNG_UP: (
        "Each connection ends before the master has shown its key: something on the way cuts it, or the "
        "master was set up anew"
        f" and has another key; then stop this agent and {ASK_AGAIN}."
    ),
}


class Reconnect:
    """The attempts to connect since the last one that worked."""

    def __init__(self) -> None:
        self._back_off = BackOff()
        self._said = ""
        self._hang_ups = 0
        self._line_refusals = 0

    def worked(self) -> None:
        """Start over."""
        self._back_off.reset()
        self._said = ""
        self._hang_ups = 0

    def next_s(self) -> float:
        """Return how long to wait before the next try."""
        return self._back_off.next_s()

    def after_fall(
        self, event: LinkFell, *, is_enrolling: bool, has_line: bool
    ) -> tuple[list[Say], Connect | End]:
        """Return what to log and to do when a connection fell or did not come about."""
        self._hang_ups = self._hang_ups + 1 if event.hung_up else 0
        is_refused = event.keys_refused or self._hang_ups >= HANG_UPS
        if is_refused and has_line:
            self._line_refusals += 1
            if self._line_refusals >= LINE_TRIES:
                return [], End(reason=LINE_REFUSED, code=1)
            return [], Connect(enrolling=not is_enrolling, delay_s=self.next_s())
        if is_refused and not event.may_enrol:
            # Keep trying: the master may have been restored from a backup. Slowly, unless the network may be
            # at fault.
            code, limits = (KEY_REFUSED, REFUSED_BACK_OFF_S) if event.keys_refused else (HUNG_UP, BACK_OFF_S)
            return self._say(code, WHY[code]), Connect(
                enrolling=is_enrolling, delay_s=self._back_off.next_s(limits)
            )
        return [], Connect(enrolling=is_enrolling or is_refused, delay_s=self.next_s())

    def after_refusal(self, code: str, message: str, *, is_enrolling: bool) -> tuple[list[Say], Connect]:
        """Return what to log and to do when the master refused."""
        return self._say(code, message), Connect(
            enrolling=is_enrolling, delay_s=self._back_off.next_s(REFUSED_BACK_OFF_S)
        )

    def _say(self, code: str, message: str) -> list[Say]:
        """Return the log line, unless the same was logged last."""
        if code == self._said:
            return []
        self._said = code
        return [Say(event="refused", fields={"code": code, "message": message}, is_warning=True)]


class UntilWelcome:
    """Messages for the master that wait for its Welcome."""

    def __init__(self) -> None:
        self._kept: list[Command] | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether a Hello was sent and not answered yet."""
        return self._kept is not None

    def open(self) -> None:
        """Start with a Hello, which contains what was kept before, or makes the master ask for it again."""
        self._kept = []

    def keep(self, commands: list[Command]) -> list[Command]:
        """Keep messages that have to wait; return the commands that can be carried out now."""
        if self._kept is None:
            return commands
        self._kept += [command for command in commands if isinstance(command, Send)]
        return [command for command in commands if not isinstance(command, Send)]

    def close(self) -> list[Command]:
        """Return what was kept, because it can be sent now, or because nobody will ever receive it."""
        kept, self._kept = self._kept or [], None
        return kept


class CheckFindings:
    """The newest findings of one node."""

    def __init__(self) -> None:
        self._found: tuple[Ailment, ...] = ()

    def greet(self) -> list[Command]:
        """Return what follows a `Hello`: the master takes a node that says nothing more for healthy."""
        return [self._tell()] if self._found else []

    def take(self, ailments: tuple[Ailment, ...] | None, *, may_tell: bool) -> list[Command]:
        """Take a round of checks, if there was one."""
        if ailments is None or ailments == self._found:
            return []
        gone = [one for one in self._found if one not in ailments]
        come = [one for one in ailments if one not in self._found]
        self._found = ailments
        said: list[Command] = [
            Say(event="check_failed", fields={"check": one.check, "text": one.text}, is_warning=True)
            for one in come
        ]
        said += [Say(event="check_passed", fields={"check": one.check}) for one in gone]
        return [*said, self._tell()] if may_tell else said

    def _tell(self) -> Send:
        return Send(message=Checked(ailments=self._found))


class Phase(StrEnum):
    """What the present connection is for, and how far it got."""

    ENROLLING = "enrolling"
    JOINING = "joining"
    WELCOMED = "welcomed"


class Connection:
    """The present connection, and the failed attempts before it."""

    def __init__(self, *, is_enrolled: bool, has_line: bool, is_embedded: bool) -> None:
        self.phase = Phase.JOINING if is_enrolled else Phase.ENROLLING
        self.is_up = False
        self.until_welcome = UntilWelcome()
        self._is_enrolled = is_enrolled
        self._has_line = has_line
        self._is_embedded = is_embedded
        self._reconnect = Reconnect()
        self._answer_by: float | None = None
        self._lonely_since: float | None = None
        self._is_dismissed = False

    @property
    def is_enrolling(self) -> bool:
        """Tell whether this connection serves to enrol."""
        return self.phase is Phase.ENROLLING

    @property
    def is_welcomed(self) -> bool:
        """Tell whether the master accepts messages now."""
        return self.phase is Phase.WELCOMED

    @property
    def may_tell(self) -> bool:
        """Tell whether the master will learn what happens now, at once or after its `Welcome`."""
        return self.is_welcomed or self.until_welcome.is_open

    def connect(self, *, enrolling: bool, delay_s: float) -> list[Command]:
        """Begin a new connection."""
        self.phase = Phase.ENROLLING if enrolling else Phase.JOINING
        self.is_up = False
        self._answer_by = None
        self.until_welcome.close()
        return [Connect(enrolling=enrolling, delay_s=delay_s)]

    def enrol(self, at: float) -> None:
        """Note that `Enrol` was sent, and wait for its answer."""
        self._answer_by = at + ANSWER_S

    def greet(self, at: float) -> None:
        """Note that `Hello` was sent, and wait for its answer."""
        self.phase = Phase.JOINING
        self._answer_by = at + ANSWER_S
        self.until_welcome.open()

    def enrolled(self) -> list[Command]:
        """Continue with a connection for work: the master knows this node's key now."""
        self._reconnect.worked()
        self._is_enrolled, self._has_line = True, False
        return [SaveEnrolment(), Say(event="enrolled"), *self.connect(enrolling=False, delay_s=0.0)]

    def welcome(self) -> list[Command]:
        """Note that the master answered a `Hello`."""
        self.phase = Phase.WELCOMED
        self._answer_by = None
        self._reconnect.worked()
        self._lonely_since = None
        self._is_dismissed = False
        # Also when a join line was used up by an enrolment whose answer was lost.
        save: list[Command] = [] if self._is_enrolled and not self._has_line else [SaveEnrolment()]
        self._is_enrolled, self._has_line = True, False
        return save

    def fall(self, event: LinkFell) -> list[Command]:
        """Note that the connection ended, or did not come about."""
        lost = [Say(event="master_lost", is_warning=True)] if self.is_welcomed else []
        says, step = self._reconnect.after_fall(
            event, is_enrolling=self.is_enrolling, has_line=self._has_line
        )
        return [*lost, *says, *self._do(step)]

    def move(self, event: MasterMoved) -> list[Command]:
        """Connect to where the master is now."""
        return self.connect(enrolling=event.is_another or self.is_enrolling, delay_s=0.0)

    def refuse(self, message: Refuse) -> list[Command]:
        """Note that the master refused."""
        if self.is_enrolling and self._has_line:
            return [End(reason=message.message, code=1)]
        says, step = self._reconnect.after_refusal(
            message.code, message.message, is_enrolling=self.is_enrolling
        )
        return [*says, *self._do(step)]

    def dismiss(self, *, is_busy: bool) -> list[Command]:
        """Note that the master stops: an embedded agent ends with its last job."""
        self._is_dismissed = self._is_embedded
        if self._is_dismissed and not is_busy:
            return [End(reason="The master stopped.")]
        return [Say(event="master_said_bye")]

    def is_late(self, at: float) -> bool:
        """Tell whether an answer should have come by now."""
        return self._answer_by is not None and at >= self._answer_by

    def give_up(self, event: Ticked) -> list[Command]:
        """Connect again, because no answer came in time."""
        say = Say(event="no_answer", fields={"phase": self.phase.value}, is_warning=True)
        enrolling = self.is_enrolling or event.may_enrol
        return [say, *self.connect(enrolling=enrolling, delay_s=self._reconnect.next_s())]

    def alone(self, at: float, *, is_busy: bool) -> list[Command]:
        """Return what an agent without a master does now: an embedded one ends after a while."""
        if not self._is_embedded or is_busy:
            self._lonely_since = None
            return []
        if self._is_dismissed:
            return [End(reason="The master stopped, and the last job is over.")]
        if self._lonely_since is None:
            self._lonely_since = at
        return [End(reason="No master and nothing to run.")] if at - self._lonely_since >= LONELY_S else []

    def _do(self, step: Connect | End) -> list[Command]:
        return (
            [step] if isinstance(step, End) else self.connect(enrolling=step.enrolling, delay_s=step.delay_s)
        )
