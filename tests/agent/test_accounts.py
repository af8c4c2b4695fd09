"""Jobs as accounts of their own: who may have which, and what a process that is started so finds and owns. Needs root."""

from __future__ import annotations

import os
import pwd
import signal
import stat
from pathlib import Path

import pytest

from mgpu_agent.keeper.disguise import disguised, environment_of
from mgpu_agent.keeper.messages import Account
from mgpu_agent.keeper.spawn import SpawnFailure, spawn
from mgpu_agent.process.accounts import Accounts, NoAccount, can_enter
from mgpu_agent.process.cells import RUNNER, copy_runner
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import AttemptKey, JobId
from tests.e2e.people import open_directory

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can be another account")
ACCOUNT = Account("nobody", 65534, 65534, (65534, 54321), "/nonexistent", "/bin/false")


def test_root_and_services_are_had_by_map_only() -> None:
    accounts = Accounts({"ops": "root", "robot": "daemon"})
    assert accounts.of("root") == NoAccount(
        "No job runs as root on this node: submit it as another user, or"
        " its administrator can map it with `mgpu_node --map-user root=ACCOUNT`."
    )
    for user, words in {"daemon": "an account of the system", "no such user": "no account 'no such user'", "a\0b": "no account"}.items():
        refusal = accounts.of(user)
        assert isinstance(refusal, NoAccount)
        assert words in refusal.message
    ops, robot, nobody = accounts.of("ops"), accounts.of("robot"), accounts.of("")
    assert isinstance(ops, Account)
    assert isinstance(robot, Account)
    assert isinstance(nobody, Account)
    assert (ops.uid, robot.uid, nobody.uid) == (0, pwd.getpwnam("daemon").pw_uid, pwd.getpwnam("nobody").pw_uid)


def test_the_environment_is_that_of_a_login_and_nothing_of_the_agents_session() -> None:
    base = {b"PATH": b"/bin", b"HOME": b"/home/agent", b"XDG_RUNTIME_DIR": b"/run/user/0", b"SUDO_USER": b"x", b"MAIL": b"y"}
    assert environment_of(ACCOUNT, base) == {
        b"PATH": b"/bin",
        b"HOME": b"/nonexistent",
        b"USER": b"nobody",
        b"LOGNAME": b"nobody",
        b"SHELL": b"/bin/false",
    }


def _run(argv: tuple[bytes, ...], directory: Path) -> str | SpawnFailure:
    out, err = directory / "x.out", directory / "x.err"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pid = spawn(argv, {b"PATH": b"/usr/bin:/bin"}, str(out), str(err), [signal.SIGINT], account=ACCOUNT)
    finally:
        signal.signal(signal.SIGINT, before)
    if isinstance(pid, SpawnFailure):
        return pid
    os.waitpid(pid, 0)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert (out.stat().st_uid, err.stat().st_uid) == (ACCOUNT.uid, ACCOUNT.uid)
    return out.read_text() + err.read_text()


@needs_root
def test_a_process_has_all_ids_all_groups_and_plain_signals_of_its_account(tmp_path: Path) -> None:
    os.chdir("/")
    said = _run((b"cat", b"/proc/self/status"), tmp_path)
    assert isinstance(said, str)
    fields = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    assert fields["Uid"].split() == ["65534"] * 4
    assert fields["Gid"].split() == ["65534"] * 4
    assert sorted(fields["Groups"].split()) == ["54321", "65534"]
    assert not int(fields["SigIgn"], 16) & 1 << (signal.SIGINT - 1)
    assert os.getuid() == os.geteuid() == 0


@needs_root
def test_what_root_alone_could_run_is_not_found_for_an_account(tmp_path: Path) -> None:
    os.chdir("/")
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nid -u\n")
    tool.chmod(0o700)
    refused = _run((os.fsencode(tool),), tmp_path)
    assert isinstance(refused, SpawnFailure)
    assert refused.code == "not-executable"


@needs_root
def test_looking_with_an_accounts_rights_ends_with_the_block(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    with disguised(ACCOUNT), pytest.raises(PermissionError):
        secret.read_text()
    assert secret.read_text() == "x"
    assert not can_enter(str(tmp_path), ACCOUNT)
    assert can_enter("/", ACCOUNT)
    assert not can_enter("/no/such", ACCOUNT)


@needs_root
def test_cells_and_scratch_are_where_their_user_gets_to_and_nobody_else_looks(tmp_path: Path) -> None:
    with open_directory() as place:
        spool = Spool(tmp_path, place / "n1")
        cell = Path(spool.write_script(AttemptKey(JobId("ABCD1234"), 1, 1), "print(1)", ACCOUNT))
        scratch, note = spool.directory_for(JobId("ABCD1234"), None, ACCOUNT)
        assert note == ""
        with disguised(ACCOUNT):
            assert cell.read_text() == "print(1)"
            (Path(scratch) / "mine").write_text("x")
            with pytest.raises(PermissionError):
                os.listdir(cell.parent)
        assert stat.S_IMODE(Path(scratch).stat().st_mode) == 0o700
        runner = Path(copy_runner(place / "n1"))
        with disguised(ACCOUNT):
            assert runner.read_text() == Path(RUNNER).read_text()
            with pytest.raises(PermissionError):
                runner.write_text("other")
        spool.close()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(InvalidRequest, match=r"Users cannot enter .*chmod o\+x"):
        Spool(tmp_path, closed / "n1")
