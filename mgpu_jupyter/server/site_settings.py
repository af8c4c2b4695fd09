"""The site's settings about scheduling, checked, as one value; and its own strategies. Starts nothing.

A wrong setting is refused with a sentence that names it, and the nearest known key where a key is wrong.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar, get_args

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import Word
from mgpu_jupyter.model.settings import Account, Partition, Qos, Quota, Scheduling
from mgpu_jupyter.scheduler.placement.strategies import BUILT_IN, ENTRY_POINTS, Strategy

log = logging.getLogger("mgpu.settings")

_T = TypeVar("_T")
Table = Mapping[str, object]
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*?)`(?: - at `\$(?P<path>.*)`)?")
_AT = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_NAMED: dict[str, type[msgspec.Struct]] = {
    "partitions": Partition,
    "accounts": Account,
    "qos": Qos,
    "quotas": Quota,
}


def scheduling_of(
    plain: Table, written: Table, tables: Mapping[str, Table], strategies: Iterable[str]
) -> Scheduling:
    """Return the settings: `written` (`MgpuApp.scheduling`) overrides `plain`; `tables` are by name."""
    values = merged(plain, written)
    for name, table in tables.items():
        if table:
            if values.get(name):
                raise _wrong(
                    f"{name} is set twice, by itself and within MgpuApp.scheduling", name, "leave one out"
                )
            values[name] = table
    for name, kind in _NAMED.items():
        named = values.get(name)
        if isinstance(named, Mapping):
            values[name] = {
                _name(key, name): read_setting(one, kind, f"{name}[{key!r}]") for key, one in named.items()
            }
    settings = read_setting(values, Scheduling, "scheduling")
    check_names(settings, (*BUILT_IN, *strategies))
    return settings


def merged(below: Table, above: Table) -> dict[str, object]:
    """Return both tables merged, table within table; values of `above` take precedence."""
    values = {**below, **above}
    for key, value in above.items():
        other = below.get(key)
        if isinstance(other, Mapping) and isinstance(value, Mapping):
            values[key] = merged(other, value)
    return values


def load_strategies() -> dict[str, Strategy]:
    """Return the strategies of installed packages; one that cannot be loaded is logged and left out."""
    found: dict[str, Strategy] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        strategy = _load(point)
        if strategy is not None:
            found[point.name] = strategy
    return found


def _load(point: EntryPoint) -> Strategy | None:
    strategy: Strategy | None = None
    try:
        strategy = point.load()
    except Exception as error:  # noqa: BLE001 - foreign code must not keep the master from starting
        problem = f"{type(error).__name__}: {error}"
    else:
        problem = (
            "that name is one of mgpu's own"
            if point.name in BUILT_IN
            else ""
            if callable(strategy)
            else "it is not a function"
        )
    if problem:
        log.warning("the strategy %s (%s) is left out: %s", point.name, point.value, problem)
        return None
    return strategy


def read_setting(value: object, kind: type[_T], where: str) -> _T:
    """Return a setting as a value, or raise what is wrong with it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.fullmatch(str(error))
        if unknown is not None:
            path, key = unknown["path"] or "", unknown["key"]
            known = _keys_at(kind, path)
            near = get_close_matches(key, known, 1, 0.5)
            hint = f"write {near[0]}" if near else f"it has {', '.join(known)}"
            raise _wrong(f"there is no key {key}", f"{where}{path}", hint, key=key) from error
        told = _AT.fullmatch(str(error))
        what, path = (told["what"], told["path"] or "") if told else (str(error), "")
        raise _wrong(
            what[0].lower() + what[1:].replace("`", ""), f"{where}{path}", "write it anew"
        ) from error


def _keys_at(kind: object, path: str) -> list[str]:
    """Return the keys that a setting has at a path like `.planning.weights`."""
    for part in filter(None, path.split(".")):
        found = _types_of(kind).get(part)
        kind = next((one for one in (found, *get_args(found)) if _is_struct(one)), None)
    return list(_types_of(kind))


def _types_of(kind: object) -> dict[str, object]:
    """Return the keys of a setting with their types; empty for one without keys."""
    if not _is_struct(kind):
        return {}
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}  # type: ignore[arg-type]


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _name(name: object, table: str) -> str:
    try:
        return msgspec.convert(name, Word) if name else msgspec.convert(" ", Word)
    except msgspec.ValidationError as error:
        raise _wrong(f"{name!r} cannot be a name", table, "use letters, digits and . _ -") from error


def check_names(settings: Scheduling, strategies: tuple[str, ...]) -> None:
    """Refuse unknown strategies and accounts, and a second default partition."""
    if settings.strategy not in strategies:
        raise _wrong(
            f"there is no strategy {settings.strategy}",
            "default_policy",
            _nearest(settings.strategy, strategies),
        )
    for name, one in settings.partitions.items():
        if one.policy and one.policy not in strategies:
            raise _wrong(
                f"there is no strategy {one.policy}",
                f"partitions[{name!r}].policy",
                _nearest(one.policy, strategies),
            )
        for key in ("allow_accounts", "deny_accounts"):
            for account in getattr(one, key):
                if account not in settings.accounts:
                    raise _wrong(
                        f"there is no account {account}",
                        f"partitions[{name!r}].{key}",
                        _nearest(account, settings.accounts),
                    )
    defaults = [name for name, one in settings.partitions.items() if one.default]
    if len(defaults) > 1:
        raise _wrong(f"{' and '.join(defaults)} cannot both be the default", "partitions", "leave it to one")


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(word, names, 1, 0.5)
    return (
        f"write {near[0]}" if near else f"it is one of {', '.join(names)}" if names else "there are none yet"
    )


def _wrong(what: str, where: str, hint: str, *, key: str = "") -> InvalidRequest:
    details = {"what": what, "where": where, "hint": hint, "key": key}
    return InvalidRequest("bad-setting", f"The setting MgpuApp.{where} is wrong: {what}; {hint}.", details)
