"""The magics: turn a line of a notebook into a call of the client, and show the result in the cell.

`%mgpu_srun` and `%%mgpu_srun` run, `%mgpu_queue` and `%mgpu_nodes` look, `%mgpu_explain` says why,
`%mgpu_trace` where, `%mgpu_cancel` ends. How lines are read is in `client/line.py`.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

import msgspec
from IPython.core.error import UsageError
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.client import choice, front, reports, watch
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.line import read_line, split_words, variables
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.request import Submission, parse
from mgpu_jupyter.client.sweep_table import SweepTable
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.model.display import with_display
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.launchers import tasks_of
from mgpu_jupyter.notebook import panel, parsers
from mgpu_jupyter.notebook.attaching import attach, find, jobs_of, left, logs
from mgpu_jupyter.notebook.completing import install
from mgpu_jupyter.notebook.errors import interruption, shorten
from mgpu_jupyter.notebook.front import NotebookFront, show_bundle
from mgpu_jupyter.notebook.gauges import gauges_of
from mgpu_jupyter.notebook.leaving import Leaving
from mgpu_jupyter.notebook.live_job import LiveJobs
from mgpu_jupyter.notebook.notes import Notes, PlainNotes, RichNotes
from mgpu_jupyter.notebook.offer import offer
from mgpu_jupyter.notebook.remember import Memory
from mgpu_jupyter.notebook.stream import CellViewer
from mgpu_jupyter.notebook.tables import Answer, Queue, nodes_table
from mgpu_jupyter.notebook.variables import CellVariables

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
    for name in parsers.PARSERS:
        ipython.register_magic_function(
            helped(getattr(magics, name), name), "line_cell" if name == "mgpu_srun" else "line", name
        )
    magics.install()


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


def helped(magic: Callable[P, T], name: str) -> Callable[P, T]:
    """Give a magic a docstring with examples and all flags, for `?`."""

    @wraps(magic)
    def with_help(*args: P.args, **kwargs: P.kwargs) -> T:
        return magic(*args, **kwargs)

    with_help.__doc__ = parsers.doc_of(name)
    return with_help


def _unaltered(magic: Callable[P, T]) -> Callable[P, T]:
    """Keep IPython from rewriting the line, as its own `no_var_expand` does."""
    magic.__dict__["_ipython_magic_no_var_expand"] = True
    return magic


class MgpuMagics:
    """The magics of one kernel, which share one client."""

    def __init__(self, shell: Shell, make_client: Callable[[], Client] = Client) -> None:
        self._shell = shell
        self._make_client = make_client
        self._client: Client | None = None
        self._memory = Memory(shell)
        self._leaving = Leaving(shell)
        self._panels: panel.Panels | None = None
        # Only a kernel's front end can replace what it shows; a terminal prints each update again.
        self._is_rich = getattr(shell, "kernel", None) is not None

    def install(self) -> None:
        """Show jobs, bars and completions in the kernel's way from now on."""
        front.use(
            NotebookFront(
                lambda job, rank: self._show(attach(job, rank, self._viewer)), is_rich=self._is_rich
            )
        )
        install(
            self._shell,
            self._make_client,
            LiveJobs(is_rich=self._is_rich, gauges_of=lambda: gauges_of(self.client)),
        )

    @_unaltered
    @_short
    def mgpu_srun(
        self, line: str, cell: str | None = None
    ) -> Job | Answer | SweepTable | dict[str, object] | None:
        """Run a command (`%mgpu_srun --gpus 2 -- python train.py`) or the cell's body (`%%mgpu_srun --gpus
        2`) on GPUs of the pool.

        Output streams into the cell; interrupting the kernel cancels the job; a job that fails fails the
        cell. With `--background` it returns the job at once, and `--as job` puts it into a variable. `$name`
        stands for a variable of the notebook, single quotes protect it. `--help` lists the flags.
        """
        prog = "%mgpu_srun" if cell is None else "%%mgpu_srun"
        typed = read_line(line, variables(self._shell.user_ns, os.environ), self._evaluate)
        here = self._memory.here
        request = parse(typed, cell=cell, environ=os.environ, prog=prog, in_notebook=True, here=here)
        if isinstance(request, Help):
            _show(request)
            return None
        if request.dry_run:
            told = self.client.dry_run_spec(request.spec)
            return msgspec.to_builtins(told) if request.json else Answer(told, time.time())
        spec = replace(request.spec, origin=self._memory.origin(typed.words, cell))
        request = replace(request, spec=spec)
        if (
            not (request.again or request.json)
            and (running := self._memory.still_runs(self.client, spec.origin)) is not None
        ):
            raise offer(
                running,
                lambda: self._take_up(running, request),
                lambda: self._show(self._start(request)),
                is_rich=self._is_rich,
            )
        return self._start(request)

    def _start(self, request: Submission) -> Job | SweepTable | dict[str, object] | None:
        """Submit the request of a cell, and watch it unless it is for the background."""
        variables = CellVariables(self.client.caller, self._shell.user_ns, request.spec)
        variables.send(request.inputs)
        if variables.note:
            self._notes().say(variables.note)
        request = replace(request, spec=variables.spec)
        if request.spec.sweep and not request.background:
            table = attach(
                self._submit(request), None, self._viewer, cancel=lambda: not self._leaving.has_left()
            )
            for problem in variables.unpack_all(table) if table is not None else ():
                self._notes().say(problem)
            return table
        if request.background or request.spec.array:
            job = self._submit(request)
            return {"job_id": job.id, "state": job.state.value} if request.json else job
        self._run(variables, request.variable)
        return None

    def _submit(self, request: Submission) -> Job:
        job = self.client.submit_spec(self._displaying(request.spec))
        self._submitted(request.variable, job, request.spec)
        return job

    def _take_up(self, job: Job, request: Submission) -> None:
        """Continue with a job that an earlier run of the cell submitted."""
        self._keep(request.variable, job)
        if request.background:
            self._show(job)
        else:
            self._show(attach(job, None, self._viewer))

    def _show(self, value: object) -> None:
        if value is not None:
            show_bundle(value, raw=False)

    @_short
    def mgpu_queue(self, line: str = "") -> Queue | None:
        """Show running and waiting jobs; `--all` those that ended too, `-u USER` one user's."""
        values = parsers.queue("%mgpu_queue").read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return None
        return Queue(choice.selected(self.client, values), self.client.nodes(), time.time())

    @_short
    def mgpu_nodes(self, line: str = "") -> Table | None:
        """Show the nodes and their GPUs."""
        values = parsers.nodes("%mgpu_nodes").read(split_words(line))
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
        values = parsers.explain("%mgpu_explain").read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return None
        if not values.job:
            raise InvalidRequest("usage", "Name the job, as in `%mgpu_explain R4T8W2ZB`.")
        return Answer(self.client.explain(values.job), time.time())

    @_short
    def mgpu_trace(self, line: str) -> None:
        """Show where and when a job ran, step by step: `%mgpu_trace ID`; `--verify` asks its nodes and
        compares.
        """
        values = parsers.trace("%mgpu_trace").read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return
        if not values.job:
            raise InvalidRequest("usage", "Name the job, as in `%mgpu_trace R4T8W2ZB`.")
        trace = self.client.trace(values.job, verify=values.verify)
        tell(*reports.trace_lines(trace))

    @_short
    def mgpu_attach(self, line: str = "") -> Table | SweepTable | None:
        """Show a job from its first byte and go on live: `%mgpu_attach ID`; without an id, the jobs of this
        notebook.
        """
        values = parsers.attach("%mgpu_attach").read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return None
        if not values.job:
            return jobs_of(self.client, self._memory.notebook)
        return attach(find(self.client, values.job), values.rank, self._viewer)

    @_short
    def mgpu_logs(self, line: str) -> None:
        """Show what a job printed so far: `%mgpu_logs ID`, `--rank R` of one rank, `--tail N` the last
        lines.
        """
        values = parsers.logs("%mgpu_logs").read(split_words(line))
        if isinstance(values, Help):
            _show(values)
            return
        sys.stdout.write(logs(self.client, values.job, values.rank, values.tail))

    @_short
    def mgpu_panel(self, line: str = "") -> None:
        """Show the cluster live: `%mgpu_panel [queue|gpus|submit|job ID]`; text where there are no
        widgets.
        """
        wanted = panel.read_line(line)
        if isinstance(wanted, Help):
            _show(wanted)
        elif told := panel.missing(self._shell):
            tell(told, "", *panel.plain(self.client, wanted).split("\n"))
        else:
            self._panels = self._panels or panel.Panels(self._shell, self._make_client())
            self._panels.show(wanted, self._shell.user_ns)

    @property
    def client(self) -> Client:
        """Return the kernel's client, made at the first use."""
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _run(self, variables: CellVariables, variable: str | None) -> None:
        spec = self._displaying(variables.spec)
        viewer = self._viewer(tasks_of(spec), lambda job: self._submitted(variable, job, spec))
        self.client.caller.on_trouble = viewer.trouble
        try:
            outcome = watch.run(self.client, spec, viewer, self._leaving)
        finally:
            self.client.caller.on_trouble = None
            viewer.close()
        if outcome.detached:
            raise shorten(KeyboardInterrupt(left(outcome.job.id))) from None
        if outcome.interrupted:
            raise interruption(outcome.job) from None
        if outcome.job.state is not JobState.COMPLETED:
            raise viewer.failure(outcome.job)
        variables.unpack(outcome.job.id)
        viewer.done(outcome.job, str(variables))

    def _displaying(self, spec: JobSpec) -> JobSpec:
        """Return a request whose displays and errors are shown as those of this cell."""
        return with_display(spec, f"{self._memory.cell_number()}-{secrets.token_hex(12)}")

    def _submitted(self, variable: str | None, job: Job, spec: JobSpec) -> None:
        self._memory.submitted(job, spec.origin)
        self._keep(variable, job)

    def _keep(self, variable: str | None, job: Job) -> None:
        if variable is not None:
            self._shell.user_ns[variable] = job

    def _evaluate(self, expression: str) -> str | None:
        try:
            return str(self._shell.ev(expression))
        except Exception:  # noqa: BLE001 - what is no Python is left as it was written
            return None

    def _notes(self) -> Notes:
        return RichNotes() if self._is_rich else PlainNotes()

    def _viewer(self, ranks: int, on_submitted: Callable[[Job], None] = lambda _: None) -> CellViewer:
        gauges = gauges_of(self.client) if self._is_rich else None
        return CellViewer(
            self._notes(),
            ranks,
            on_submitted,
            kernel=getattr(self._shell, "kernel", None),
            gauges=gauges,
            shell=self._shell,
        )


def _show(wanted: Help) -> None:
    tell(*wanted.text.split("\n"), end="")
