"""Jobs as accounts of their own: who may have which, and what a process that is started so finds and owns.
Needs root.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.process.cells import RUNNER, copy_runner
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.run_as.account import Account, Accounts, NoAccount
from tests.e2e.people import open_directory

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can be another account")
ACCOUNT = Account("nobody", 65534, 65534, (65534, 54321), "/nonexistent", "/bin/false")


def test_root_and_services_are_had_by_map_only() -> None:
    accounts = Accounts({"ops": "root", "robot": "daemon"})
    assert accounts.of("root") == NoAccount(
        "No job runs as root on this node: submit it as another user, or"
        " its administrator can map it with `mgpu_node --map-user root=ACCOUNT`."
    )
    for user, words in {
        "daemon": "an account of the system",
        "no such user": "no account 'no such user'",
        "a\0b": "no account",
    }.items():
        refusal = accounts.of(user)
        assert isinstance(refusal, NoAccount)
        assert words in refusal.message
    ops, robot, nobody = accounts.of("ops"), accounts.of("robot"), accounts.of("")
    assert isinstance(ops, Account)
    assert isinstance(robot, Account)
    assert isinstance(nobody, Account)
    assert (ops.uid, robot.uid, nobody.uid) == (
        0,
        pwd.getpwnam("daemon").pw_uid,
        pwd.getpwnam("nobody").pw_uid,
    )


@contextlib.contextmanager
def disguised(account: Account) -> Iterator[None]:
    """Look at files with the rights of this account, in this process of one thread."""
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(account.groups)
    os.setegid(account.gid)
    os.seteuid(account.uid)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        os.setegid(group)
        os.setgroups(groups)


@needs_root
def test_cells_and_scratch_are_where_their_user_gets_to_and_nobody_else_looks(tmp_path: Path) -> None:
    with open_directory() as place:
        spool = Spool(tmp_path, place / "n1")
        cell = Path(spool.write_script(AttemptKey(JobId("ABCD1234"), 1, 1), "print(1)", ACCOUNT))
        scratch = spool.scratch_of("ABCD1234", ACCOUNT)
        with disguised(ACCOUNT):
            assert cell.read_text() == ""  # its user fills it
            cell.write_text("print(1)")
            (scratch / "mine").write_text("x")
            with pytest.raises(PermissionError):
                os.listdir(cell.parent)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (cell, scratch)] == [0o600, 0o700]
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
