"""The parser that all commands share: one sentence about a mistake, with the nearest flag. Knows no
command.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.meanings import flags_meant

MAX_WIDTH = 110
HELP_COLUMN = 32
HELP_WORDS = ("--help", "-h")
_CHOICE = re.compile(r"argument (\S+): invalid choice: '?(.*?)'? \(choose from (.*)\)")
_MISSING = "the following arguments are required: "
_NEGATIVE = re.compile(r"-\d.*", re.DOTALL)


class Help(msgspec.Struct, frozen=True):
    """A help text, where the line asked for it."""

    text: str


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises one sentence, which names the nearest flag, and ends no process."""

    def __init__(
        self, prog: str, usage: str, description: str = "", *, examples: Sequence[str] = (), more: str = ""
    ) -> None:
        super().__init__(
            prog=prog,
            usage=usage.replace("%", "%%"),
            description=description,
            epilog=_epilog(examples, more),
            add_help=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.elsewhere: Mapping[str, str] = {}
        """Flags that exist, but not here, and where they do."""
        self.add_argument("--help", "-h", action="store_true", help="show this")

    def error(self, message: str) -> NoReturn:
        """Raise the sentence that argparse found."""
        raise InvalidRequest("usage", f"{_plain(message)} (see {self.prog} --help).")

    def read(self, words: Sequence[str]) -> argparse.Namespace | Help:
        """Return the values of `words`, or the help text."""
        if any(word in HELP_WORDS for word in words):
            return Help(self.format_help())
        values, unknown = self.parse_known_args(self._attached(words))
        if unknown:
            self.refuse(unknown[0])
        return values

    def refuse(self, word: str) -> NoReturn:
        """Refuse a word that is not a flag, and name the nearest one."""
        flag, equals, _ = word.partition("=")
        if equals and self.takes_value(flag) is False:
            raise InvalidRequest("unknown-flag", f"{flag} takes no value: leave out what follows it.")
        if where := self.elsewhere.get(flag):
            raise InvalidRequest("unknown-flag", f"{flag} works only {where}: leave it out here.")
        near = flags_meant(flag, self.flag_names()) if flag.startswith("-") else []
        if near:
            raise InvalidRequest(
                "unknown-flag",
                f"There is no flag {flag}: use {' or '.join(near)}, or see {self.prog} --help.",
            )
        kind = "flag" if flag.startswith("-") else "argument"
        raise InvalidRequest("unknown-flag", f"There is no {kind} {flag} here: see {self.prog} --help.")

    def flag_names(self) -> list[str]:
        """Return all flags."""
        return [name for action in self._actions for name in action.option_strings]

    def _attached(self, words: Sequence[str]) -> list[str]:
        """Return the words with values like -5m joined to their flags: argparse would take them for flags."""
        found: list[str] = []
        is_value = False
        for word in words:
            if is_value and _NEGATIVE.fullmatch(word) and self.takes_value(word) is None:
                found[-1] += f"={word}" if found[-1].startswith("--") else word
                is_value = False
                continue
            found.append(word)
            is_value = not is_value and self.takes_value(word) is True
        return found

    def takes_value(self, flag: str) -> bool | None:
        """Tell whether a flag takes the next word, or None for a word that is not a flag."""
        for action in self._actions:
            if flag in action.option_strings:
                return action.nargs != 0
        return None

    @property
    def actions(self) -> list[argparse.Action]:
        """Return all flags and positional words, for completion."""
        return list(self._actions)


class _Formatter(argparse.HelpFormatter):
    """Wraps the description as argparse does, keeps examples as they are, and gives flags more room."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH) - 2
        super().__init__(prog, max_help_position=HELP_COLUMN, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def _epilog(examples: Sequence[str], more: str) -> str:
    """Return the text below the flags; its line break keeps it from being wrapped."""
    lines = [more] if more else []
    if examples:
        lines += ["examples:" if len(examples) > 1 else "example:", *(f"  {line}" for line in examples)]
    return "\n".join(lines) + "\n" if lines else ""


def _plain(message: str) -> str:
    """Turn argparse's `argument --gpus/-G: expected one argument` into words."""
    if choice := _CHOICE.fullmatch(message):
        return f"{choice[1]} {choice[2]}: write one of {choice[3].replace(chr(39), '')}"
    if message.startswith(_MISSING):
        return f"{message.removeprefix(_MISSING)} is missing: name it"
    text = message.removeprefix("argument ").replace(": expected one argument", " needs a value")
    return text[:1].upper() + text[1:] if not text.startswith("-") else text
