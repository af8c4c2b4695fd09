"""The magics: a line of a notebook becomes a call of the client, and what comes back is shown in the cell.

`%mgpu_srun` and `%%mgpu_srun` run, `%mgpu_queue` and `%mgpu_nodes` look, `%mgpu_explain` says why, `%mgpu_trace` where,
`%mgpu_cancel` ends. How lines are read is in `line.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

import msgspec
from IPython.core.error import UsageError

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.client import choice, trails, watch, words
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import parse
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.tasks import tasks_of
from mgpu_jupyter.notebook.errors import failure, interruption, shorten
from mgpu_jupyter.notebook.line import split_line, split_words, variables
from mgpu_jupyter.notebook.stream import CellViewer, Notes, PlainNotes, RichNotes
from mgpu_jupyter.notebook.tables import Answer, Queue, nodes_table

P = ParamSpec("P")
T = TypeVar("T")


class Shell(Protocol):
    """What is needed of IPython's shell."""

    user_ns: dict[str, object]

    def ev(self, expr: str) -> object:
        """Return the value of an expression of the notebook."""

    def register_magic_function(self, func: Callable[..., object], magic_kind: str, magic_name: str) -> None:
        """Make `func` a magic."""


def load(ipython: Shell) -> None:
    """Register the magics with a shell."""
    magics = MgpuMagics(ipython)
    ipython.register_magic_function(magics.mgpu_srun, "line_cell", "mgpu_srun")
    ipython.register_magic_function(magics.mgpu_queue, "line", "mgpu_queue")
    ipython.register_magic_function(magics.mgpu_nodes, "line", "mgpu_nodes")
    ipython.register_magic_function(magics.mgpu_cancel, "line", "mgpu_cancel")
    ipython.register_magic_function(magics.mgpu_explain, "line", "mgpu_explain")
    ipython.register_magic_function(magics.mgpu_trace, "line", "mgpu_trace")


def _short(magic: Callable[P, T]) -> Callable[P, T]:
    """Show errors as one sentence."""

    @wraps(magic)
    def shown(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return magic(*args, **kwargs)
        except InvalidRequest as error:
            raise UsageError(error.message) from None
        except MgpuError as error:
            raise shorten(error) if not hasattr(error, "_render_traceback_") else error from None

    return shown


def _unaltered(magic: Callable[P, T]) -> Callable[P, T]:
    """Keep IPython from rewriting the line, as its own `no_var_expand` does."""
    magic.__dict__["_ipython_magic_no_var_expand"] = True
    return magic


class MgpuMagics:
    """The magics of one kernel, with one client among them."""

    def __init__(self, shell: Shell, make_client: Callable[[], Client] = Client) -> None:
        self._shell = shell
        self._make_client = make_client
        self._client: Client | None = None

    @_unaltered
    @_short
    def mgpu_srun(self, line: str, cell: str | None = None) -> Job | Answer | dict[str, object] | None:
        """Run a command (`%mgpu_srun --gpus 2 -- python train.py`) or the cell's body (`%%mgpu_srun --gpus 2`) on GPUs of the pool.

        Output streams into the cell; interrupting the kernel cancels the job; a job that fails fails the cell. With `--background` it
        returns the job at once, and `--as job` puts it into a variable. `$name` stands for a variable of the notebook, single quotes
        protect it. `--help` lists the flags.
        """
        prog = "%mgpu_srun" if cell is None else "%%mgpu_srun"
        words_of_line = split_line(line, variables(self._shell.user_ns, os.environ), self._evaluate)
        request = parse(words_of_line, cell=cell, environ=os.environ, prog=prog, in_notebook=True)
        if isinstance(request, Help):
            _show(request)
            return None
        if request.dry_run:
            told = self.client.dry_run_spec(request.spec)
            return msgspec.to_builtins(told) if request.json else Answer(told, time.time())
        if request.background:
            job = self.client.submit_spec(request.spec)
            self._keep(request.variable, job)
            return {"job_id": job.id, "state": job.state.value} if request.json else job
        self._run(request.spec, request.variable)
        return None

    @_short
    def mgpu_queue(self, line: str = "") -> Queue | None:
        """Show running and waiting jobs; `--all` those that ended too, `-u USER` one user's."""
        parser = Parser("%mgpu_queue", "%mgpu_queue [--all] [-u USER]", "Show running and waiting jobs.")
        choice.add_selection(parser)
        values = parser.read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return None
        found = self.client.jobs(state=None if values.all else "active", user=values.user)
        return Queue([job.snapshot for job in found if job.snapshot], self.client.nodes(), time.time())

    @_short
    def mgpu_nodes(self, line: str = "") -> Table | None:
        """Show the nodes and their GPUs."""
        values = Parser("%mgpu_nodes", "%mgpu_nodes", "Show the nodes and their GPUs.").read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return None
        return nodes_table(self.client.nodes())

    @_short
    def mgpu_cancel(self, line: str) -> None:
        """Cancel jobs: `%mgpu_cancel ID…`, `--all`, `-u USER` or `--name NAME`."""
        values = choice.cancel_parser("%mgpu_cancel").read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return
        ids = choice.chosen(self.client, values)
        if not ids:
            self._notes().say("No job to cancel: nothing that runs or waits matches.")
        for job_id in ids:
            done, text = choice.cancel(self.client, job_id)
            if not done:
                raise MgpuError("cancel-failed", text)
            self._notes().say(text)

    @_short
    def mgpu_explain(self, line: str) -> Answer | None:
        """Say why a job waits, what would start it now, and what it was told before: `%mgpu_explain ID`."""
        parser = Parser("%mgpu_explain", "%mgpu_explain JOB", "Say why a job waits, and what would start it now.")
        parser.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
        values = parser.read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return None
        if not values.job:
            raise InvalidRequest("usage", "Name the job, as in `%mgpu_explain R4T8W2ZB`.")
        return Answer(self.client.explain(values.job), time.time())

    @_short
    def mgpu_trace(self, line: str) -> None:
        """Show where and when a job ran, step by step: `%mgpu_trace ID`; `--verify` asks its nodes and compares."""
        parser = Parser("%mgpu_trace", "%mgpu_trace JOB [--verify]", "Show the whole way of a job: when, where, by which process.")
        parser.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
        parser.add_argument("--verify", action="store_true", help="compare what was assigned with what is there now")
        values = parser.read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return
        if not values.job:
            raise InvalidRequest("usage", "Name the job, as in `%mgpu_trace R4T8W2ZB`.")
        trace = self.client.trace(values.job, verify=values.verify)
        print("\n".join(trails.as_lines(trace)))  # noqa: T201 - lines are what was asked for

    @property
    def client(self) -> Client:
        """Return the kernel's client, made at the first use."""
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _run(self, spec: JobSpec, variable: str | None) -> None:
        notes = self._notes()
        viewer = CellViewer(notes, ranks=tasks_of(spec), on_submitted=lambda job: self._keep(variable, job))
        self.client.caller.on_trouble = notes.show_waiting
        try:
            outcome = watch.run(self.client, spec, viewer)
        finally:
            self.client.caller.on_trouble = None
            viewer.close()
        if outcome.interrupted:
            raise interruption(outcome.job) from None
        if outcome.job.state is not JobState.COMPLETED:
            raise failure(outcome.job, viewer.last_lines(outcome.job))
        notes.say(f"{words.ending(outcome.job)} · {outcome.job.id}")

    def _keep(self, variable: str | None, job: Job) -> None:
        if variable is not None:
            self._shell.user_ns[variable] = job

    def _evaluate(self, expression: str) -> str | None:
        try:
            return str(self._shell.ev(expression))
        except Exception:  # noqa: BLE001 - what is no Python is left as it was written
            return None

    def _notes(self) -> Notes:
        # Only a kernel's front end can replace what it shows; a terminal prints each update anew.
        return RichNotes() if getattr(self._shell, "kernel", None) is not None else PlainNotes()


def _show(wanted: Help) -> None:
    print(wanted.text, end="")  # noqa: T201 - a help text is output
