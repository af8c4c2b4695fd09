"""Completions of a word on a line: flags, values, names that only the master knows. For shells and notebooks.

Reports no errors: without a master there are simply no names.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import BY_DEST
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.transport import Timeouts
from mgpu_jupyter.model.policies import MEANINGS
from mgpu_jupyter.model.waits import After

QUICK = Timeouts(connect_s=1.0, request_s=2.0, retry_s=0.0)
RECENT = 50
OF_ENDED = frozenset(("logs", "attach", "rerun", "explain", "trace", "client"))
"""Commands that accept jobs that are over, too."""


class Completion(msgspec.Struct, frozen=True):
    """A completion of a word, with a short explanation where that helps."""

    text: str
    about: str = ""


class Asked:
    """The master's names, fetched when needed; an answer, or its absence, is kept for `fresh_s`."""

    def __init__(
        self, make_client: Callable[[], Client], *, timeouts: Timeouts = QUICK, fresh_s: float = 0.0
    ) -> None:
        self._make = make_client
        self._timeouts = timeouts
        self._fresh_s = fresh_s
        self._known: dict[str, tuple[float, list[Completion]]] = {}

    def nodes(self) -> list[Completion]:
        """Return the names of nodes."""
        return self._ask(
            "nodes", lambda client: [Completion(node.id, node.state.value) for node in client.nodes()]
        )

    def jobs(self, *, ended: bool = False) -> list[Completion]:
        """Return ids of jobs, newest first; with `ended` also those that are over."""
        state = None if ended else "active"
        return self._ask(
            f"jobs {ended}",
            lambda client: [
                _job(job.snapshot) for job in client.jobs(state=state, limit=RECENT) if job.snapshot
            ],
        )

    def users(self) -> list[Completion]:
        """Return users who have jobs."""
        return self._ask(
            "users",
            lambda client: _plain(
                sorted({job.snapshot.user for job in client.jobs(limit=RECENT) if job.snapshot})
            ),
        )

    def site(self, what: str) -> list[Completion]:
        """Return the names of partitions, accounts, classes of service or strategies."""
        return self._ask(what, lambda client: _plain(getattr(client.cluster(), what)))

    def _ask(self, what: str, question: Callable[[Client], list[Completion]]) -> list[Completion]:
        at, known = self._known.get(what, (-self._fresh_s, []))
        if time.monotonic() - at < self._fresh_s:
            return known
        try:
            with self._make() as client:
                client.use(self._timeouts)
                known = question(client)
        except MgpuError:
            known = []
        self._known[what] = (time.monotonic(), known)
        return known


Values = Callable[[argparse.Action, str], list[Completion] | None]
"""Values of a flag that neither the parser nor the master knows, or None."""


class Place(msgspec.Struct, frozen=True):
    """What is being completed: the words before, the word itself, and the details of its command."""

    before: Sequence[str]
    current: str
    asked: Asked
    actions: tuple[str, ...] = ()
    """Subcommands of the command."""
    ended: bool = False
    """Whether jobs that are over count, too."""
    more: Values = lambda _action, _current: None


def complete(parser: Parser, place: Place) -> list[Completion]:
    """Return the completions of the current word."""
    if "--" in place.before:
        return []
    flag, equals, value = place.current.partition("=")
    if equals and flag.startswith("--"):
        return [
            msgspec.structs.replace(one, text=f"{flag}={one.text}")
            for one in _values(_action(parser, flag), value, place)
        ]
    if place.before and parser.takes_value(place.before[-1]):
        return _values(_action(parser, place.before[-1]), place.current, place)
    if place.current.startswith("-"):
        return _fitting(_flags(parser), place.current)
    return _positional(parser, place)


def _positional(parser: Parser, place: Place) -> list[Completion]:
    """Return the completions of a positional word."""
    places = [action for action in parser.actions if not action.option_strings]
    if not places:
        return []
    before = place.before
    taken = sum(
        not word.startswith("-") and not (at and parser.takes_value(before[at - 1]))
        for at, word in enumerate(before)
    )
    action = places[min(taken, len(places) - 1)]
    if taken >= len(places) and action.nargs not in ("*", "+"):
        return []
    if action.dest == "action":
        return _fitting(_plain(action.choices or place.actions), place.current)
    return _values(action, place.current, place)


def _values(action: argparse.Action | None, current: str, place: Place) -> list[Completion]:  # noqa: PLR0911 - one branch per kind of name
    """Return possible values of a flag or word."""
    if action is None:
        return []
    if action.choices:
        return _fitting(_plain(action.choices), current)
    asked = place.asked
    match _kind(action):
        case "nodes":
            begun, comma, last = current.rpartition(",")
            taken = begun.split(",")
            return [
                _behind(f"{begun}{comma}", one)
                for one in _fitting(asked.nodes(), last)
                if one.text not in taken
            ]
        case "node-gpus":
            begun, semicolon, last = current.rpartition(";")
            return [_behind(f"{begun}{semicolon}", one, ":") for one in _fitting(asked.nodes(), last)]
        case "node_id":
            return _fitting(asked.nodes(), current)
        case "after":
            begun, colon, last = current.rpartition(":")
            if not colon:
                return [_behind("", one, ":") for one in _fitting(_plain(After), current)]
            return [_behind(f"{begun}:", one) for one in _fitting(asked.jobs(ended=place.ended), last)]
        case "partitions" | "accounts" | "qos" | "strategies" as what:
            return _fitting(asked.site(what), current)
        case "order":
            return _fitting(_plain(MEANINGS), current)
        case "user":
            return _fitting(asked.users(), current)
        case "job" | "jobs":
            return _fitting(asked.jobs(ended=place.ended), current.upper())
    return place.more(action, current) or []


def _kind(action: argparse.Action) -> str:
    """Return the kind of name that a flag or word takes: by the table of flags, else the word's own name."""
    if action.dest == "policy" and "queue" in (action.help or ""):
        return "order"  # that of `mgpu simulate` orders the queue, and picks no nodes
    flag = BY_DEST.get(action.dest)
    return action.dest if flag is None else flag.completes


def _flags(parser: Parser) -> list[Completion]:
    return [
        Completion(name, (action.help or "").replace("%%", "%"))
        for action in parser.actions
        for name in action.option_strings
        if name.startswith("--")
    ]


def _job(info: models.Job) -> Completion:
    return Completion(info.id, f"{info.state}{f' {info.name}' if info.name else ''}")


def _behind(begun: str, one: Completion, end: str = "") -> Completion:
    return msgspec.structs.replace(one, text=f"{begun}{one.text}{end}")


def _plain(words: Iterable[object]) -> list[Completion]:
    return [Completion(str(word)) for word in words]


def _fitting(words: Iterable[Completion], current: str) -> list[Completion]:
    return [word for word in words if word.text.startswith(current)]


def _action(parser: Parser, flag: str) -> argparse.Action | None:
    return next((action for action in parser.actions if flag in action.option_strings), None)
