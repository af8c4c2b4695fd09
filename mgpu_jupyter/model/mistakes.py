"""Describes a value of the wrong shape in plain words: no Python type and no pattern reaches people.

Reads the messages of msgspec, which are made for programmers. Knows no flag and no route. Pure.
"""

from __future__ import annotations

import re

import msgspec

from mgpu_agent.protocol.ids import JOB_ID_PATTERN, NODE_ID_PATTERN
from mgpu_jupyter.model import job

_AT = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<kinds>[^`]*)`(?P<bound>.*?)(?:, got `?(?P<got>\w+)`?)?", re.DOTALL)
_LENGTH = re.compile(r" of length (?:(?P<sign>[<>]=) )?(?P<number>\d+)")
_NUMBER = re.compile(r" (?P<sign>[<>]=?) (?P<number>[-+.\de]+)")
_PATTERN = re.compile(r" matching regex (?P<pattern>.*)", re.DOTALL)
_FIELD = re.compile(r"Object (?P<how>contains unknown|missing required) field `(?P<field>[^`]*)`")
_CHOICE = re.compile(r"Invalid enum value (?P<value>.*)")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of names and values",
    "null": "nothing",
}
_NAME = "use letters, digits, dot, dash and underscore, at most"
_PATTERNS = {
    NODE_ID_PATTERN: f"{_NAME} 63",
    JOB_ID_PATTERN: "a job id is eight characters A-Z and 0-9",
    job.PLAIN_PATTERN: "line breaks and control characters are not allowed",
    r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,63})?$(?!\n)": f"{_NAME} 64",
    r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)": "use letters, digits and underscore",
    r"^[^\x00]*$": "a NUL character is not allowed",
    r"^[^\x00]+$": "it is empty or has a NUL character",
    r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$(?!\n)": "use letters, digits and . _ @ -, at most 64",
    r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,62}$(?!\n)": "use letters, digits and _ . / -, at most 63",
    r"^([A-Za-z0-9_.][A-Za-z0-9_./:-]{0,62})?$(?!\n)": "use letters, digits and _ . / : -, at most 63",
    r"^([0-9a-f]{64})?$(?!\n)": "it must be a SHA-256, 64 digits 0-9 and a-f",
    r"^(/[^\x00]*|[0-9a-f]{64})?$(?!\n)": "it must be a whole path, from / on, or a SHA-256",
    r"^[A-Za-z0-9:+@-]*$(?!\n)": "use letters, digits and : + @ -",
    r"^/[^\x00]*$": "it must be a whole path, from / on",
}
CHARACTERS = "some characters are not allowed here"
HUGE = 1e12  # more digits than anybody reads
_SIGNS = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}


class Mistake(msgspec.Struct, frozen=True):
    """What is wrong, as the second half of a sentence, and where."""

    what: str
    path: str = ""
    """Like `.spec.nodes`; empty for the whole."""


def mistake_of(error: msgspec.ValidationError) -> Mistake:
    """Return what msgspec found, in plain words."""
    told = _AT.fullmatch(str(error))
    assert told is not None
    return Mistake(_in_words(told["what"]), told["path"] or "")


def about_body(error: msgspec.ValidationError) -> str:
    """Return what is wrong with the body of a request, for its author."""
    mistake = mistake_of(error)
    where = mistake.path.removeprefix(".") or "The request"
    return f"{where} is not valid: {mistake.what}; change that and send it again (see openapi.json)."


def _in_words(what: str) -> str:  # noqa: PLR0911 - a table of kinds
    if found := _FIELD.fullmatch(what):
        if found["how"] == "missing required":
            return f"the field {found['field']} is missing"
        return f"there is no field {found['field']}"
    if found := _CHOICE.fullmatch(what):
        return f"{found['value']} is none of the values that it can have"
    if what == "Number out of range":
        return "it is too large"
    found = _EXPECTED.fullmatch(what)
    if found is None:
        return what[:1].lower() + what[1:].replace("`", "")
    kinds = [kind for kind in found["kinds"].split(" | ") if kind != "null"] or ["null"]
    if pattern := _PATTERN.fullmatch(found["bound"]):
        known = (text for one, text in _PATTERNS.items() if pattern["pattern"] == repr(one))
        return next(known, CHARACTERS)
    if length := _LENGTH.fullmatch(found["bound"]):
        unit = "characters" if kinds == ["str"] else "entries"
        limit = int(length["number"])
        if length["sign"] == ">=" and limit == 1:
            return "it is empty"
        return f"it may have {_SIGNS.get(length['sign'], 'exactly')} {limit} {unit}"
    if number := _NUMBER.fullmatch(found["bound"]):
        bound = float(number["number"])
        return "it is too large" if bound >= HUGE else f"it must be {_SIGNS[number['sign']]} {bound:.12g}"
    got = f", and it is {_KINDS.get(found['got'], found['got'])}" if found["got"] else ""
    return f"it must be {' or '.join(_KINDS.get(kind, kind) for kind in kinds)}{got}"
