"""A launch as the master asked for it becomes a start as the keeper can carry it out: directory, interpreter, words, environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from mgpu_agent.keeper.messages import Collect, Hook, RankStart, StartTasks
from mgpu_agent.process.accounts import Accounts, NoAccount
from mgpu_agent.process.banner import introduced
from mgpu_agent.process.cells import RUNNER
from mgpu_agent.process.environment import command_words, hook_facts, interpreter_words, task_environment, visible_devices
from mgpu_agent.process.interpreter import Interpreters, NoPython
from mgpu_agent.process.job_socket import JobSocket
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import CellPython, CellWish, GpuInfo, LaunchSpec
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.spawn import NOT_EXECUTABLE, NOT_FOUND


class Unprepared(msgspec.Struct, frozen=True):
    """Why a launch cannot be carried out here."""

    code: str
    message: str
    fault: str
    exit_code: int | None = None


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
        """With `accounts`, jobs run as their users; `master` is where the link leads, `runner` the program that runs Python cells."""
        self._node_id = node_id
        self._spool = spool
        self._master = master
        self._runner = runner
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._base = base
        self._interpreters = Interpreters()
        self._accounts = accounts
        self._jobs = jobs

    def prepare(self, spec: LaunchSpec, *, by_uuid: bool = False) -> StartTasks | Unprepared:
        """Return what the keeper should start, or why not; `by_uuid` when numbers of GPUs cannot be relied on."""
        if not spec.argv and spec.script is None:
            return Unprepared("no-command", "The launch names no command.", "request", NOT_EXECUTABLE)
        try:
            return self._prepare(spec, by_uuid=by_uuid)
        except (OSError, MgpuError) as error:
            return Unprepared("node-files", f"The node could not prepare the job's files: {error}.", "node")
        except ValueError as error:
            return Unprepared("bad-command", f"The command or its environment cannot be used: {error}.", "request", NOT_EXECUTABLE)

    def values_for(self, spec: LaunchSpec) -> tuple[Path, Account | None]:
        """Return where the variables of a launch are put, and for whom."""
        account = None if self._accounts is None else self._accounts.of(spec.user)
        owner = None if isinstance(account, NoAccount) else account
        return self._spool.values_of(spec.key, owner), owner

    def python_for(self, cell: CellWish) -> CellPython:
        """Return which interpreter a cell would get here."""
        account = None if self._accounts is None else self._accounts.of(cell.user)
        if isinstance(account, NoAccount):
            return CellPython()
        chosen = self._interpreters.choose(cell.python, account)
        return (
            CellPython() if isinstance(chosen, NoPython) else CellPython(path=chosen, version=self._interpreters.version(chosen, account))
        )

    def place_of(self, spec: LaunchSpec) -> tuple[Path, Account | None]:
        """Return where the folder of a launch is laid out, and for whom; one without an account is refused when it is prepared."""
        account = None if self._accounts is None else self._accounts.of(spec.user)
        return self._spool.folder_of(spec.key), None if isinstance(account, NoAccount) else account

    def _prepare(self, spec: LaunchSpec, *, by_uuid: bool) -> StartTasks | Unprepared:
        account = None if self._accounts is None else self._accounts.of(spec.user)
        if isinstance(account, NoAccount):
            return Unprepared("no-account", account.message, "request", NOT_EXECUTABLE)
        if spec.folder:
            cwd, note = str(self._spool.folder_of(spec.key)), ""
        else:
            cwd, note = self._spool.directory_for(spec.key.job_id, spec.cwd, account)
        python, script_path = "", ""
        if spec.script is not None:
            if not interpreter_words(spec.script):
                chosen = self._interpreters.choose(spec.python, account)
                if isinstance(chosen, NoPython):
                    return Unprepared("no-python", chosen.message, "node", NOT_FOUND)
                python = chosen
                if (other := self._other_python(spec, chosen, account)) is not None:
                    return other
            script_path = self._spool.write_script(spec.key, spec.script, account)
        values = str(self._spool.values_of(spec.key, account)) if spec.inputs or spec.outputs else ""
        words = command_words(spec, script_path, python, self._runner, values)
        devices = visible_devices(spec.gpus, self._gpus, by_uuid=by_uuid)
        ranks = tuple(
            RankStart(
                task.rank,
                task_environment(spec, task, node_id=self._node_id, devices=devices, cwd=cwd, base=self._base),
            )
            for task in spec.tasks
        )
        return StartTasks(
            key=spec.key,
            incarnation=spec.incarnation,
            argv=introduced(words, spec.key, self._node_id, self._master) if spec.debug else words,
            ranks=ranks,
            secret_env=self._jobs.environment(spec.key, account) if spec.mpi and self._jobs is not None else {},
            cwd=cwd,
            gpus=spec.gpus,
            python=python,
            note=note,
            lease_s=spec.lease_s,
            grace_s=spec.kill_grace_s,
            account=account,
            may_gain=spec.container,
            facts=hook_facts(spec, node_id=self._node_id, devices=devices),
            prolog=tuple(Hook(hook.command, hook.site, hook.limit_s) for hook in spec.hooks if hook.kind == "prolog"),
            epilog=tuple(Hook(hook.command, hook.site, hook.limit_s) for hook in spec.hooks if hook.kind == "epilog"),
            stdin=spec.stdin,
            pty=spec.pty,
            rows=spec.rows,
            columns=spec.columns,
            collect=Collect(spec.results, len(ranks), -1 if account is None else account.uid, values if spec.outputs else "")
            if spec.results or spec.outputs
            else None,
        )

    def _other_python(self, spec: LaunchSpec, python: str, account: Account | None) -> Unprepared | None:
        """Refuse what brings variables of another Python: what one has pickled the other need not be able to read."""
        wanted = spec.python.kernel_version
        if not (spec.inputs or spec.outputs) or wanted is None or (found := self._interpreters.version(python, account)) == wanted:
            return None
        text = f"The variables come from Python {wanted}, and {python} on this node is {found or 'none that answers'}."
        return Unprepared("other-python", text, "node", NOT_FOUND)
