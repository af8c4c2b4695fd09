"""Turns a launch of the master into a start for the keeper: directory, interpreter, command line,
environment.

What can only be read or written as the job's user is done before, by `settle`: on the thread of that user
where jobs run as their users, and otherwise at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from mgpu_agent.core.events import LaunchFailed
from mgpu_agent.keeper.messages import DISK_FULL, Collect, Hook, RankStart, StartTasks
from mgpu_agent.process.banner import introduced
from mgpu_agent.process.cells import RUNNER
from mgpu_agent.process.copier import copied
from mgpu_agent.process.environment import (
    command_words,
    hook_facts,
    interpreter_words,
    task_environment,
    visible_devices,
)
from mgpu_agent.process.job_socket import JobSocket
from mgpu_agent.process.spool import SCRATCH_DAYS, Spool
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.model import CellPython, CellWish, GpuInfo, LaunchSpec, PythonWish
from mgpu_agent.run_as.account import Account, Accounts, NoAccount
from mgpu_agent.run_as.cgroups import Share
from mgpu_agent.run_as.file_work import carry_out
from mgpu_agent.run_as.requests import (
    Compare,
    Failed,
    FileAnswer,
    FileTask,
    FoundAround,
    LookAround,
    Versions,
)
from mgpu_agent.run_as.spawn import NOT_EXECUTABLE, NOT_FOUND
from mgpu_agent.run_as.user_files import Ask, FileTrouble, UserFiles

LOOK_S = 3.0
RESULTS_LIMIT_BYTES = 20 * 1024**3  # where the master names none


class Unprepared(msgspec.Struct, frozen=True):
    """Why a launch cannot be carried out here."""

    code: str
    message: str
    fault: str
    exit_code: int | None = None

    def as_event(self, at: float, key: AttemptKey) -> LaunchFailed:
        """Return the event for a launch that cannot be carried out."""
        return LaunchFailed(
            at=at,
            key=key,
            code=self.code,
            message=self.message,
            fault=self.fault,
            exit_code=self.exit_code,
        )


class LaunchPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a launch runs and with what, as its user finds it."""

    account: Account | None = None
    cwd: str
    note: str = ""
    python: str = ""
    script: str = ""
    values: str = ""


class Preparation:
    """Prepares launches on one node."""

    def __init__(
        self,
        node_id: NodeId,
        spool: Spool,
        gpus: Iterable[GpuInfo],
        base: Mapping[bytes, bytes],
        accounts: Accounts | None = None,
        *,
        master: str = "",
        runner: str = RUNNER,
        jobs: JobSocket | None = None,
    ) -> None:
        """With `accounts`, jobs run as their users; `master` is the address of the link, `runner` runs Python
        cells.
        """
        self._node_id = node_id
        self._spool = spool
        self._master = master
        self._runner = runner
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._base = base
        self._accounts = accounts
        self._jobs = jobs
        self._places: dict[AttemptKey, LaunchPlace] = {}

    def prepare(self, spec: LaunchSpec, *, by_uuid: bool = False) -> StartTasks | Unprepared:
        """Return what the keeper should start, or why not; `by_uuid` when GPU numbers are not reliable."""
        place = self._places.get(spec.key) or self.settle(spec, _at_once)
        if isinstance(place, Unprepared):
            return place
        try:
            return self._start(spec, place, by_uuid=by_uuid)
        except ValueError as error:
            return Unprepared(
                "bad-command",
                f"The command or its environment cannot be used: {error}.",
                "request",
                NOT_EXECUTABLE,
            )

    def prove(self, spec: LaunchSpec) -> Unprepared | None:
        """See that there is room for what a launch writes when it starts; return why not."""
        try:
            self._spool.try_output(spec.key)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return Unprepared("disk-full", DISK_FULL, "node")
            return Unprepared("node-files", f"The node could not prepare the job's files: {error}.", "node")
        return None

    def is_settled(self, spec: LaunchSpec) -> bool:
        """Tell whether nothing is left to be read as the user of a launch."""
        return self._accounts is None or spec.key in self._places

    def keep(self, key: AttemptKey, place: LaunchPlace) -> None:
        """Store the result of `settle`."""
        self._places[key] = place

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """Forget these attempts."""
        for key in keys:
            self._places.pop(key, None)

    def discard(self, key: AttemptKey) -> None:
        """Delete what was made for a launch that failed."""
        self._places.pop(key, None)
        self._spool.delete_attempts((key,))

    def account_of(self, user: str) -> Account | None:
        """Return a user's account, None for the agent's own; raises `FileTrouble` where there is none."""
        account = None if self._accounts is None else self._accounts.of(user)
        if isinstance(account, NoAccount):
            raise FileTrouble(account.message, "request")
        return account

    def folder_for(self, spec: LaunchSpec) -> tuple[Path, Account | None]:
        """Return a directory for the folder of a launch, and its account."""
        account = self.account_of(spec.user)
        self._spool.scratch_of(str(spec.key), account)
        return self._spool.folder_of(spec.key), account

    def values_for(self, spec: LaunchSpec) -> tuple[Path, Account | None]:
        """Return where the variables of a launch are put, and their account."""
        account = self.account_of(spec.user)
        return self._spool.values_of(spec.key, account), account

    def python_for(self, cell: CellWish, ask: Ask) -> CellPython:
        """Return which interpreter a cell would get here."""
        try:
            around = ask(self.account_of(cell.user), self._question(cell.python))
        except OSError:
            return CellPython()
        return (
            CellPython(path=around.python, version=around.version)
            if isinstance(around, FoundAround) and around.python
            else CellPython()
        )

    def comparison_of(self, spec: LaunchSpec) -> Compare:
        """Return the question which Python and torch the processes of a launch will find."""
        wished = spec.python.path or spec.python.kernel_path or ""
        return Compare(
            argv=spec.argv,
            is_cell=spec.script is not None,
            wished=wished,
            search=spec.env.get("PATH", self._search),
        )

    def settle(self, spec: LaunchSpec, ask: Ask) -> LaunchPlace | Unprepared:
        """Find out where a launch runs and with what, and make what it needs there."""
        if not spec.argv and spec.script is None:
            return Unprepared("no-command", "The launch names no command.", "request", NOT_EXECUTABLE)
        try:
            account = self.account_of(spec.user)
        except FileTrouble as error:
            return Unprepared("no-account", str(error), "request", NOT_EXECUTABLE)
        try:
            return self._settle(spec, account, ask)
        except FileTrouble as error:
            return Unprepared(
                "node-files", f"The node could not prepare the job's files: {error}.", error.fault
            )
        except (OSError, MgpuError) as error:
            return Unprepared("node-files", f"The node could not prepare the job's files: {error}.", "node")
        except ValueError as error:
            return Unprepared(
                "bad-command",
                f"The command or its environment cannot be used: {error}.",
                "request",
                NOT_EXECUTABLE,
            )

    def _settle(self, spec: LaunchSpec, account: Account | None, ask: Ask) -> LaunchPlace | Unprepared:
        is_cell = spec.script is not None and not interpreter_words(spec.script)
        task = self._question(spec.python) if is_cell else LookAround()
        task = replace(task, needs_python=is_cell, directory=None if spec.folder else spec.cwd)
        script = ""
        if spec.script is not None and account is not None:
            script = self._spool.write_script(spec.key, spec.script, account)
            task = replace(task, script=script, source=spec.script)
        around = ask(account, task) if is_cell or script or task.directory is not None else FoundAround()
        assert isinstance(around, FoundAround)
        if around.problem:
            return Unprepared("no-python", around.problem, "node", NOT_FOUND)
        if is_cell and (other := _other_python(spec, around)) is not None:
            return other
        if spec.script is not None and account is None:
            script = self._spool.write_script(spec.key, spec.script)
        cwd, note = self._directory_for(spec, around, account)
        values = str(self._spool.values_of(spec.key, account)) if spec.inputs or spec.outputs else ""
        return LaunchPlace(
            account=account, cwd=cwd, note=note, python=around.python, script=script, values=values
        )

    def _directory_for(
        self, spec: LaunchSpec, around: FoundAround, account: Account | None
    ) -> tuple[str, str]:
        """Return where a job runs and a line about it: its folder, the directory it asks for if that can be
        entered, else its scratch.
        """
        if spec.folder:
            return str(self._spool.folder_of(spec.key)), ""
        if spec.cwd is not None and around.is_open:
            return spec.cwd, ""
        path = self._spool.scratch_of(spec.key.job_id, account)
        if spec.cwd is None:
            return str(path), ""
        return (
            str(path),
            (
                f"{spec.cwd} cannot be entered on this node: the job runs in {path}, which is kept for "
                f"{SCRATCH_DAYS} days."
            ),
        )

    @property
    def _search(self) -> str:
        return os.fsdecode(self._base.get(b"PATH", b"")) or os.defpath

    def _question(self, wish: PythonWish) -> LookAround:
        return LookAround(
            needs_python=True,
            python=wish.path,
            kernel=wish.kernel_path,
            kernel_version=wish.kernel_version,
            search=self._search,
        )

    def _start(self, spec: LaunchSpec, place: LaunchPlace, *, by_uuid: bool) -> StartTasks:
        account, cwd, python, values = place.account, place.cwd, place.python, place.values
        words = command_words(spec, place.script, python, self._runner, values)
        if spec.debug:
            words = introduced(words, spec.key, self._node_id, self._master)
        if any(task.files for task in spec.tasks):
            words = copied(words)
        devices = visible_devices(spec.gpus, self._gpus, by_uuid=by_uuid)
        ranks = tuple(
            RankStart(
                task.rank,
                task_environment(
                    spec, task, node_id=self._node_id, devices=devices, cwd=cwd, base=self._base
                ),
            )
            for task in spec.tasks
        )
        return StartTasks(
            key=spec.key,
            incarnation=spec.incarnation,
            argv=words,
            ranks=ranks,
            secret_env=self._jobs.environment(spec.key, account)
            if spec.mpi and self._jobs is not None
            else {},
            cwd=cwd,
            gpus=spec.gpus,
            python=python,
            note=place.note,
            lease_s=spec.lease_s,
            grace_s=spec.kill_grace_s,
            account=account,
            may_gain=spec.container,
            share=Share(spec.cpus, spec.mem_bytes),
            facts=hook_facts(spec, node_id=self._node_id, devices=devices),
            prolog=tuple(
                Hook(hook.command, hook.site, hook.limit_s) for hook in spec.hooks if hook.kind == "prolog"
            ),
            epilog=tuple(
                Hook(hook.command, hook.site, hook.limit_s) for hook in spec.hooks if hook.kind == "epilog"
            ),
            stdin=spec.stdin,
            pty=spec.pty,
            rows=spec.rows,
            columns=spec.columns,
            collect=_collect(spec, account, values) if spec.results or spec.outputs else None,
        )


def look_for(users: UserFiles, places: Preparation, spec: LaunchSpec) -> Versions | None:
    """Return what the processes of a launch will find, read from files as its user; waits for a while."""
    found = users.ask(spec.user, lambda: places.account_of(spec.user), places.comparison_of(spec), LOOK_S)
    return found if isinstance(found, Versions) else None


def _collect(spec: LaunchSpec, account: Account | None, values: str) -> Collect:
    uid = -1 if account is None else account.uid
    limit = spec.results_limit_bytes or RESULTS_LIMIT_BYTES
    return Collect(spec.results, len(spec.tasks), uid, values if spec.outputs else "", spec.user, limit)


def _other_python(spec: LaunchSpec, around: FoundAround) -> Unprepared | None:
    """Refuse variables of another Python version: one may be unable to read what the other pickled.

    Where files do not tell the version, the cell itself compares it.
    """
    wanted = spec.python.kernel_version
    if not (spec.inputs or spec.outputs) or wanted is None or around.version in ("", wanted):
        return None
    text = f"The variables come from Python {wanted}, and {around.python} on this node is {around.version}."
    return Unprepared("other-python", text, "node", NOT_FOUND)


def _at_once(_account: Account | None, task: FileTask) -> FileAnswer:
    """Do something as the agent itself."""
    answer = carry_out(task, lambda: None)
    if isinstance(answer, Failed):
        raise FileTrouble(answer.why, "node")
    return answer
