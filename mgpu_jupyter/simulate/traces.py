"""Reads traces: one job a line, as CSV, plain or gzipped. Checks each line; knows nothing of clusters."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, NotFound

NEEDED = ("submit_s", "duration_s", "gpus")
KNOWN = (*NEEDED, "estimate_s", "user", "name", "job_name", "job_id", "exclusive")
MAX_GPUS = 1_000_000


class TraceJob(msgspec.Struct, frozen=True):
    """One job of a trace."""

    submit_s: float
    duration_s: float
    gpus: int
    estimate_s: float | None = None
    user: str = ""
    name: str = ""
    exclusive: bool = False


def read_trace(path: Path) -> list[TraceJob]:
    """Return the jobs of a trace in the order of their submission."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="") as lines
        ):
            return sorted(_works(path.name, lines), key=lambda work: work.submit_s)
    except FileNotFoundError:
        raise NotFound("no-trace", f"There is no file {path}: name a CSV file, plain or gzipped.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InvalidRequest(
            "bad-trace", f"{path.name} is no whole gzip file: unpack it, or fetch it again."
        ) from None
    except UnicodeDecodeError:
        raise InvalidRequest(
            "bad-trace", f"{path.name} is no text in UTF-8: name a CSV file, plain or gzipped as .gz."
        ) from None
    except OSError as error:
        raise InvalidRequest(
            "bad-trace", f"{path} cannot be read ({error.strerror}): name a CSV file, plain or gzipped."
        ) from None


def repeat_trace(works: Sequence[TraceJob], times: int) -> list[TraceJob]:
    """Return a trace several times, one after the other, with the mean gap between two jobs in between."""
    if times == 1 or len(works) < 2:
        return list(works) * times
    span = works[-1].submit_s - works[0].submit_s
    shift = span + span / (len(works) - 1)
    return [
        msgspec.structs.replace(work, submit_s=work.submit_s + number * shift)
        for number in range(times)
        for work in works
    ]


def _works(name: str, lines: Iterable[str]) -> list[TraceJob]:
    rows = csv.reader(lines)
    try:
        header = [column.strip() for column in next(rows, [])]
        columns = _columns(name, header)
        works = []
        for row in rows:
            if row:
                if len(row) != len(header):
                    raise _bad(
                        name, rows.line_num, f"has {len(row)} fields where the first line names {len(header)}"
                    )
                works.append(_work(name, rows.line_num, row, columns))
    except csv.Error as error:
        raise _bad(name, rows.line_num, f"is no CSV: {error}") from None
    if not works:
        raise InvalidRequest("bad-trace", f"{name} has no jobs: each line after the first is one.")
    return works


def _columns(name: str, header: list[str]) -> Mapping[str, int]:
    if not any(header):
        raise InvalidRequest(
            "bad-trace", f"{name} is empty: its first line names the columns, {','.join(NEEDED)} and others."
        )
    missing = [column for column in NEEDED if column not in header]
    if missing:
        raise InvalidRequest(
            "bad-trace", f"{name} has no column {missing[0]}: its first line must name {', '.join(NEEDED)}."
        )
    twice = [column for column in KNOWN if header.count(column) > 1]
    if twice:
        raise InvalidRequest("bad-trace", f"{name} names the column {twice[0]} twice: name it once.")
    columns = {column: header.index(column) for column in KNOWN if column in header}
    if "name" not in columns and "job_name" in columns:
        columns["name"] = columns["job_name"]
    return columns


def _work(name: str, line: int, row: list[str], columns: Mapping[str, int]) -> TraceJob:
    submit = _number(name, line, "submit_s", row[columns["submit_s"]])
    duration = _number(name, line, "duration_s", row[columns["duration_s"]])
    gpus = _number(name, line, "gpus", row[columns["gpus"]])
    if gpus != int(gpus) or gpus > MAX_GPUS:
        raise _bad(name, line, f"has gpus {row[columns['gpus']].strip()}: write a whole number")
    text = row[columns["estimate_s"]].strip() if "estimate_s" in columns else ""
    estimate = _number(name, line, "estimate_s", text) if text else None
    user = row[columns["user"]].strip() if "user" in columns else ""
    return TraceJob(
        submit,
        duration,
        int(gpus),
        estimate or None,
        user,
        row[columns["name"]].strip() if "name" in columns else "",
        _flag(name, line, "exclusive", row[columns["exclusive"]]) if "exclusive" in columns else False,
    )


def _flag(name: str, line: int, column: str, text: str) -> bool:
    if text.strip() not in ("", "0", "1"):
        raise _bad(name, line, f"has {column} {text.strip()}: write 1 or 0")
    return text.strip() == "1"


def _number(name: str, line: int, column: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _bad(name, line, f"has {column} {text.strip() or 'empty'}: write a number") from None
    if not math.isfinite(number) or number < 0:
        raise _bad(name, line, f"has {column} {text.strip()}: write a number that is not negative")
    return number


def _bad(name: str, line: int, what: str) -> InvalidRequest:
    return InvalidRequest("bad-trace", f"Line {line} of {name} {what}.")
