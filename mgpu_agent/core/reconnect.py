"""How the agent connects again: how long it waits for what, ever more slowly, and what it makes of being refused. Pure."""

from __future__ import annotations

from mgpu_agent.core.commands import Connect, End, Say
from mgpu_agent.core.events import LinkFell

ANSWER_S = 3.0  # a master on the same machine answers in milliseconds; after this the key is taken as unknown to it
SILENCE_S = 120.0  # an end is told every 10 s: a master that takes none of twelve does not hear us
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
        """Begin anew: it worked."""
        self._failures = 0


LINE_TRIES = 4  # with the line's key and with our own in turn: the answer to an enrolment may have been lost
HANG_UPS = 4
"""A master under another key hangs up without a word, and so does a network that breaks: only so many in a row are taken for a refusal."""
KEY_REFUSED = "key-refused"
HUNG_UP = "hung-up"
ASK_AGAIN = "run `mgpu join-token` on the master's machine"
LINE_REFUSED = f"The master refused this join line: it was used already, has expired, or is not this master's; {ASK_AGAIN} for a new one."
WHY = {
    KEY_REFUSED: f"The master does not know this node's key (any more): stop this agent and {ASK_AGAIN}.",
    HUNG_UP: (
        "Each connection ends before the master has shown its key: something on the way cuts it, or the master was set up anew"
        f" and has another key; then stop this agent and {ASK_AGAIN}."
    ),
}


class Reconnect:
    """The tries since it last worked."""

    def __init__(self) -> None:
        self._back_off = BackOff()
        self._said = ""
        self._hang_ups = 0
        self._line_refusals = 0

    def worked(self) -> None:
        """Begin anew."""
        self._back_off.reset()
        self._said = ""
        self._hang_ups = 0

    def next_s(self) -> float:
        """Return how long to wait before the next try."""
        return self._back_off.next_s()

    def after_fall(self, event: LinkFell, *, is_enrolling: bool, has_line: bool) -> tuple[list[Say], Connect | End]:
        """Return what to say and to do when a connection fell or did not come about."""
        self._hang_ups = self._hang_ups + 1 if event.hung_up else 0
        is_refused = event.keys_refused or self._hang_ups >= HANG_UPS
        if is_refused and has_line:
            self._line_refusals += 1
            if self._line_refusals >= LINE_TRIES:
                return [], End(reason=LINE_REFUSED, code=1)
            return [], Connect(enrolling=not is_enrolling, delay_s=self.next_s())
        if is_refused and not event.may_enrol:
            # Go on trying: the master may be one that was brought back from a backup. Slowly, unless the network may be at fault.
            code, limits = (KEY_REFUSED, REFUSED_BACK_OFF_S) if event.keys_refused else (HUNG_UP, BACK_OFF_S)
            return self._say(code, WHY[code]), Connect(enrolling=is_enrolling, delay_s=self._back_off.next_s(limits))
        return [], Connect(enrolling=is_enrolling or is_refused, delay_s=self.next_s())

    def after_refusal(self, code: str, message: str, *, is_enrolling: bool) -> tuple[list[Say], Connect]:
        """Return what to say and to do when the master said no."""
        return self._say(code, message), Connect(enrolling=is_enrolling, delay_s=self._back_off.next_s(REFUSED_BACK_OFF_S))

    def _say(self, code: str, message: str) -> list[Say]:
        """Say the same but once."""
        if code == self._said:
            return []
        self._said = code
        return [Say(event="refused", fields={"code": code, "message": message}, is_warning=True)]
