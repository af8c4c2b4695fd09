"""The parser that all commands share: says in one sentence what is wrong, names the nearest flag, shows examples. Knows no command."""

from __future__ import annotations

import argparse
import difflib
import shutil
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest

MAX_WIDTH = 110
HELP_COLUMN = 32
HELP_WORDS = ("--help", "-h")


class Help(msgspec.Struct, frozen=True):
    """The line asked for the help text."""

    text: str


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises one sentence instead of ending the process, and names the nearest flag."""

    def __init__(self, prog: str, usage: str, description: str = "", *, examples: Sequence[str] = (), more: str = "") -> None:
        super().__init__(
            prog=prog,
            usage=usage.replace("%", "%%"),
            description=description,
            epilog=_epilog(examples, more),
            add_help=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.add_argument("--help", "-h", action="store_true", help="show this")

    def error(self, message: str) -> NoReturn:
        """Raise the sentence that argparse found."""
        raise InvalidRequest("usage", f"{_plain(message)} (see {self.prog} --help).")

    def read(self, words: Sequence[str]) -> argparse.Namespace | Help:
        """Return the values of `words`, or the help text."""
        if any(word in HELP_WORDS for word in words):
            return Help(self.format_help())
        values, unknown = self.parse_known_args(list(words))
        if unknown:
            self.refuse(unknown[0])
        return values

    def refuse(self, word: str) -> NoReturn:
        """Refuse a word that is no flag, and name the nearest one."""
        flag, equals, _ = word.partition("=")
        if equals and self.takes_value(flag) is False:
            raise InvalidRequest("unknown-flag", f"{flag} takes no value: leave out what follows it.")
        near = difflib.get_close_matches(flag, self.flag_names(), 1, 0.7) if flag.startswith("-") else []
        if near:
            raise InvalidRequest("unknown-flag", f"There is no flag {flag}: use {near[0]}, or see {self.prog} --help.")
        kind = "flag" if flag.startswith("-") else "argument"
        raise InvalidRequest("unknown-flag", f"There is no {kind} {flag} here: see {self.prog} --help.")

    def flag_names(self) -> list[str]:
        """Return all long flags."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def takes_value(self, flag: str) -> bool | None:
        """Tell whether a flag takes the next word, or None for a word that is no flag."""
        for action in self._actions:
            if flag in action.option_strings:
                return action.nargs != 0
        return None

    @property
    def actions(self) -> list[argparse.Action]:
        """Return all flags and positional words, for completion."""
        return list(self._actions)


class _Formatter(argparse.HelpFormatter):
    """Wraps the description as argparse does, leaves examples as they are, and gives flags room."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH) - 2
        super().__init__(prog, max_help_position=HELP_COLUMN, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def _epilog(examples: Sequence[str], more: str) -> str:
    """Return what stands below the flags; it has a line break, and so is left as it is."""
    lines = [more] if more else []
    if examples:
        lines += ["examples:" if len(examples) > 1 else "example:", *(f"  {line}" for line in examples)]
    return "\n".join(lines) + "\n" if lines else ""


def _plain(message: str) -> str:
    """Turn argparse's `argument --gpus/-G: expected one argument` into words."""
    text = message.removeprefix("argument ").replace(": expected one argument", " needs a value")
    return text[:1].upper() + text[1:] if not text.startswith("-") else text
