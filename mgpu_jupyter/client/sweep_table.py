"""The results of a sweep or array, one row for each job. Asks for their last lines once, when needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api.files import ValueList
from mgpu_jupyter.client.fetching import bring
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.lines import Tail
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.client.words import duration, exit_status, ran_for
from mgpu_jupyter.model.job import JobState

LAST_LINE = "last line"
HEADINGS = {"job": "Job", "state": "State", "seconds": "Time", "exit_code": "Exit", LAST_LINE: "Last line"}
_WORDS = {"True": True, "False": False, "None": None}
SHOWN_CHARS = 80
LAST_LINES = 5
"""How many lines are searched for one that is not empty."""


class SweepTable:
    """Rows of a sweep: values, state, seconds, exit code, and the last line printed or variables of `--out`.

    Shown as a table; `to_dicts()` and `to_pandas()` are for further work.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = tuple(jobs)
        self._rows: list[dict[str, object]] | None = None
        """Kept once all of them are over."""
        self.problems: list[str] = []
        """Why variables of completed jobs are missing, in words."""

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[dict[str, object]]:
        """Iterate over the rows as dictionaries."""
        return iter(self.to_dicts())

    def __getitem__(self, index: int) -> dict[str, object]:
        """Return one row as a dictionary."""
        return self.to_dicts()[index]

    def to_dicts(self) -> list[dict[str, object]]:
        """Return the rows; values of the sweep are numbers where they are written so."""
        rows = self._rows
        if rows is None:
            names = self._outputs()
            self.problems.clear()
            rows = [_row(job) | (self._left(job, names) if names else _said(job)) for job in self.jobs]
            if all(JobState(str(row["state"])).is_final for row in rows):
                self._rows = rows
        return [dict(row) for row in rows]

    def variables(self) -> dict[str, list[object]]:
        """Return the variables of `--out`: for each a list in the order of the jobs, None where it is
        missing.
        """
        names, rows = self._outputs(), self.to_dicts()
        return {name: [row[name] for row in rows] for name in names}

    def _left(self, job: Job, names: Sequence[str]) -> dict[str, object]:
        """Return the variables that a job returned; None for missing ones."""
        found: dict[str, object] = dict.fromkeys(names)
        if job.info.state is JobState.COMPLETED:
            brought = bring(job.caller, job.id)
            found |= brought.values
            self.problems += [f"Job {job.id}: {problem}" for problem in brought.problems.values()]
        return found

    def _outputs(self) -> tuple[str, ...]:
        """Return the names of `--out`, the same for all of them."""
        try:
            job = self.jobs[0]
            return job.caller.call(Request(path=f"jobs/{job.id}/values"), ValueList).outputs
        except (IndexError, MgpuError):  # a master without variables: there are none to show
            return ()

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise MgpuError(
                "no-pandas", "pandas is not installed here: `pip install pandas`, or take `.to_dicts()`."
            ) from None
        return pandas.DataFrame(self.to_dicts())

    def table(self) -> Table:
        """Return it as text for people."""
        rows = self.to_dicts()
        columns = list(dict.fromkeys(name for row in rows for name in row))
        headings = [HEADINGS.get(name, name) for name in columns]
        cells = [[_cell(name, row.get(name)) for name in columns] for row in rows]
        done = sum(row["state"] == JobState.COMPLETED for row in rows)
        return Table(f"{done} of {len(rows)} completed", headings, cells, "No jobs.")

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        """Return the table as HTML."""
        return self.table()._repr_html_()


def value_of(text: str) -> object:
    """Return a value of a sweep as a Python cell has it: a number where it is one, else the text."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _row(job: Job) -> dict[str, object]:
    info = job.info
    row: dict[str, object] = {name: value_of(text) for name, text in info.sweep.items()}
    if not row and info.array_index is not None:
        row["index"] = info.array_index
    row |= {
        "job": str(job.id),
        "state": info.state.value,
        "seconds": ran_for(info) if info.state.is_final else None,
        "exit_code": exit_status(info) if info.state.is_final else None,
    }
    return row


def _said(job: Job) -> dict[str, object]:
    """Return the last line that a job printed."""
    seen = Tail()
    try:
        seen.feed(0, job.tail(LAST_LINES))
    except MgpuError:  # its output may be gone; the rest of the table is still useful
        return {LAST_LINE: ""}
    return {LAST_LINE: "".join(seen.last_lines(0, 1))}


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "seconds" and isinstance(value, float):
        return duration(value)
    text = str(value) if isinstance(value, str | int | float) else repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
