"""Extends IPython: Tab completion on the line of a magic, in kernels and terminals, and the display of jobs
that are values.

Names that only the master knows are asked for with a short timeout and kept for a second; without an answer
there are none.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.completion import Asked, Completion, Place, complete
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.transport import Timeouts
from mgpu_jupyter.notebook.live_job import LiveJobs
from mgpu_jupyter.notebook.parsers import OF_ENDED, PARSERS

QUICK = Timeouts(connect_s=0.3, request_s=0.5, retry_s=0.0)
FRESH_S = 1.0
Matcher = Callable[[CompletionContext], SimpleMatcherResult]
OF_VARIABLES = frozenset(("--in", "--out", "--as"))
_MAGIC = re.compile(r"(?:^|=)\s*(%%?)(mgpu_\w+)[ \t]")
_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s'\"]+")


def install(shell: object, make_client: Callable[[], Client], live: LiveJobs) -> None:
    """Register completion and display with IPython; a shell without these is left alone."""
    completer = getattr(shell, "Completer", None)
    if completer is not None and hasattr(completer, "custom_matchers"):
        kept = [
            one for one in completer.custom_matchers if getattr(one, "matcher_identifier", "") != IDENTIFIER
        ]
        completer.custom_matchers = [
            *kept,
            matcher_of(shell, Asked(make_client, timeouts=QUICK, fresh_s=FRESH_S)),
        ]
    formatter = getattr(shell, "display_formatter", None)
    if formatter is not None:
        formatter.ipython_display_formatter.for_type(Job, live.show)


IDENTIFIER = "mgpu"


def matcher_of(shell: object, asked: Asked) -> Matcher:
    """Return the matcher that IPython asks."""

    def match(context: CompletionContext) -> SimpleMatcherResult:
        found, current = candidates(
            context.text_until_cursor, context.cursor_line, asked, getattr(shell, "user_ns", {})
        )
        token = context.token if current.endswith(context.token) else current
        cut = len(current) - len(token)
        completions = [
            SimpleCompletion(one.text[cut:], type="flag" if one.text.startswith("--") else one.about)
            for one in found
        ]
        return SimpleMatcherResult(
            completions=completions, matched_fragment=token, suppress=bool(completions), ordered=True
        )

    mark: Callable[[Matcher], Matcher] = context_matcher(identifier=IDENTIFIER)
    return mark(match)


def candidates(
    before_cursor: str, line: int, asked: Asked, namespace: Mapping[str, object]
) -> tuple[list[Completion], str]:
    """Return the completions at the cursor, and the word that they would replace."""
    magic = _MAGIC.search(before_cursor)
    if magic is None or magic[2] not in PARSERS or (magic[1] == "%%" and (line > 0 or magic.start(1) > 0)):
        return [], ""
    rest = before_cursor[magic.end() :]
    words = _WORD.findall(rest)
    current = words.pop() if rest and not rest[-1].isspace() and words else ""
    if current[:1] in ("'", '"'):
        return [], ""
    place = Place(
        before=words, current=current, asked=asked, ended=magic[2] in OF_ENDED, more=_variables(namespace)
    )
    return complete(PARSERS[magic[2]](f"{magic[1]}{magic[2]}"), place), current


def _variables(namespace: Mapping[str, object]) -> Callable[[argparse.Action, str], list[Completion] | None]:
    def values(action: argparse.Action, current: str) -> list[Completion] | None:
        if not OF_VARIABLES & set(action.option_strings):
            return None
        begun, comma, last = current.rpartition(",")
        taken = begun.split(",")
        return [
            Completion(f"{begun}{comma}{name}", type(value).__name__)
            for name, value in list(namespace.items())
            if name.startswith(last) and name not in taken and _is_data(name, value)
        ]

    return values


def _is_data(name: str, value: Any) -> bool:
    """Tell whether a user could mean this variable: no history, no modules, no functions."""
    return (
        not name.startswith("_")
        and name not in ("In", "Out", "exit", "quit", "get_ipython")
        and not isinstance(value, ModuleType | FunctionType | type)
    )
