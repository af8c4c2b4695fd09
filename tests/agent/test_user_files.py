"""Files of users: one user's hang, links, pipes and trees cost nobody else anything, and what is done is done
as that user.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mgpu_agent.process.cells import RUNNER, copy_runner
from mgpu_agent.process.passage import open_passage, own_directory
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol import variable_file
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.requests import (
    Compare,
    FileAnswer,
    FileTask,
    FindResults,
    FolderPart,
    Found,
    FoundAround,
    LayOut,
    LookAround,
    ReadResult,
    Versions,
)
from mgpu_agent.run_as.user_files import Ask, FileTrouble, UserFiles, account_of
from tests.e2e.people import open_directory
from tests.processes import wait_until

pytestmark = pytest.mark.slow

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can be another account")
ANN, BOB = Account("ann", 54321, 54321), Account("bob", 54322, 54322)
KEY = AttemptKey(JobId("ABCD1234"), 1, 7)
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def users() -> Iterator[UserFiles]:
    users = UserFiles(silent_s=1.0)
    yield users
    users.close()


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as path:
        yield path


def done_as(users: UserFiles, account: Account | None, task: FileTask, user: str = "ann") -> FileAnswer | str:
    """Return what came of something, or what went wrong and whose fault it is."""
    told: list[FileAnswer | str] = []

    def work(ask: Ask) -> None:
        try:
            told.append(ask(account, task))
        except FileTrouble as error:
            told.append(f"{error.fault}: {error}")

    assert users.submit(user, work)
    wait_until(lambda: bool(told), "it is answered", 10)
    return told[0]


def helpers_of(account: Account) -> list[psutil.Process]:
    return [
        one
        for one in psutil.Process().children()
        if one.uids().real == account.uid and one.status() != psutil.STATUS_ZOMBIE
    ]


def nothing() -> None:
    """Tell nobody."""


# --- whose rights, and who waits -------------------------------------------------------------------------


@needs_root
def test_a_user_sees_and_reads_with_own_rights_alone(users: UserFiles, place: Path, tmp_path: Path) -> None:
    private = place / "bob"
    private.mkdir(mode=0o700)
    (private / "secret-name").write_text("x")
    os.chown(private, BOB.uid, BOB.gid)
    os.symlink(private, place / "peek")
    look = FindResults(root=str(place), patterns=("bob/*", "peek/*", "**/secret*"), uid=ANN.uid)
    assert done_as(users, ANN, look) == Found()
    assert done_as(users, ANN, LookAround(directory=str(private))) == FoundAround()
    assert done_as(users, ANN, LookAround(directory=str(place))) == FoundAround(is_open=True)
    assert (
        done_as(users, ANN, ReadResult(root="/etc", path="shadow", uid=-1, offset=0, size=9))
        == "job: Permission denied (shadow)"
    )
    assert done_as(users, ANN, LookAround(needs_python=True, python=str(private / "python"))) == FoundAround(
        problem=f"{private}/python: there is no such Python on this node; leave --python out or name one "
        f"that is there."
    )


@needs_root
def test_a_helper_that_is_stopped_costs_its_user_one_request_and_others_nothing(users: UserFiles) -> None:
    look = LookAround(directory="/")
    assert done_as(users, ANN, look) == FoundAround(is_open=True)
    (helper,) = helpers_of(ANN)
    helper.send_signal(signal.SIGSTOP)
    begun_at = time.monotonic()
    told: list[FileAnswer | str] = []
    waiting = threading.Thread(target=lambda: told.append(done_as(users, ANN, look)))
    waiting.start()
    assert done_as(users, BOB, look, "bob") == FoundAround(is_open=True)
    assert time.monotonic() - begun_at < 0.9
    waiting.join()
    why = (
        "the helper of ann on this node did not answer within 1 s: end what stops or blocks processes of "
        "this user there"
    )
    assert told == [f"job: {why}"]
    assert helpers_of(ANN) == []
    assert done_as(users, ANN, look) == FoundAround(is_open=True)


@needs_root
def test_a_helper_that_its_user_ends_is_started_anew(users: UserFiles) -> None:
    assert done_as(users, ANN, LookAround(directory="/")) == FoundAround(is_open=True)
    (helper,) = helpers_of(ANN)
    helper.kill()
    wait_until(lambda: not helper.is_running(), "nothing is left of it", 10)
    assert done_as(users, ANN, LookAround(directory="/")) == FoundAround(is_open=True)


@needs_root
def test_idle_helpers_end_and_all_end_with_the_agent() -> None:
    users = UserFiles(idle_s=0.2)
    assert done_as(users, ANN, LookAround(directory="/")) == FoundAround(is_open=True)
    wait_until(lambda: helpers_of(ANN) == [], "an idle helper ends", 10)
    assert done_as(users, ANN, LookAround(directory="/")) == FoundAround(is_open=True)
    users.close()
    assert helpers_of(ANN) == []
    assert not users.submit("ann", lambda _: None)


def test_one_users_long_work_does_not_delay_anothers_even_where_all_are_the_agents_own(
    users: UserFiles,
) -> None:
    go_on = threading.Event()
    assert users.submit("ann", lambda _: bool(go_on.wait(10)))
    assert done_as(users, None, LookAround(directory="/"), "bob") == FoundAround(is_open=True)
    go_on.set()


def test_an_error_in_some_work_does_not_end_the_thread_of_its_user(users: UserFiles) -> None:
    def fail(_: Ask) -> None:
        raise AssertionError

    assert users.submit("ann", fail)
    assert done_as(users, None, LookAround(directory="/")) == FoundAround(is_open=True)


def test_who_asks_and_waits_hears_nothing_of_what_takes_too_long(users: UserFiles) -> None:
    go_on = threading.Event()
    users.submit("ann", lambda _: bool(go_on.wait(10)))
    assert users.ask("ann", lambda: None, Compare(), 0.01) is None
    go_on.set()
    assert isinstance(users.ask("ann", lambda: None, Compare(), 10), Versions)


@needs_root
def test_helpers_are_bound_like_jobs() -> None:
    users = UserFiles(Confinement(limits=(("fsize", 4096, 4096),)))
    with open_directory() as place:
        os.chown(place, ANN.uid, ANN.gid)
        part = FolderPart("big", "file", 0o644, 0, data=b"x" * 8192)
        answer = done_as(users, ANN, LayOut(place=str(place), parts=(part,)))
        assert answer == "job: File too large"
    users.close()


# --- directories of the agent that users pass through -------------------------------------------------------


@needs_root
def test_a_scratch_directory_below_another_users_is_refused(place: Path, tmp_path: Path) -> None:
    """Its owner could put another runner in the place of ours, and every cell of every user would run
    that.
    """
    theirs = place / "theirs"
    theirs.mkdir()
    os.chown(theirs, BOB.uid, BOB.gid)
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "link").symlink_to(place)
    for parent, words in {
        "theirs": "belongs to another user",
        "open": "Others can change",
        "link": "no link to one",
    }.items():
        for make in (lambda path: Spool(tmp_path, path).close(), copy_runner):
            with pytest.raises(InvalidRequest, match=words) as error:
                make(place / parent / "n1")
            assert error.value.code == "unsafe-directory"
    (place / "open").chmod(0o1777)
    runner = Path(copy_runner(place / "open" / "n1"))
    assert runner.read_text() == Path(RUNNER).read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (runner, runner.parent, runner.parents[1])] == [
        0o644,
        0o711,
        0o755,
    ]


def test_the_copy_of_the_runner_brings_what_it_shares_with_kernels(place: Path, tmp_path: Path) -> None:
    variable_file.pack({"a": 20}).write(str(tmp_path / "in"))
    (tmp_path / "cell.py").write_text("b = a + 1")
    words = [
        "-I",
        copy_runner(place / "n1"),
        "--values",
        str(tmp_path),
        "--out",
        "b",
        str(tmp_path / "cell.py"),
    ]
    subprocess.run([sys.executable, *words], check=True, cwd="/")
    assert variable_file.unpack(str(tmp_path / "out.0")).value("b") == 21


@needs_root
def test_what_lies_in_the_way_of_a_users_directory_is_not_given_away(place: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    passage = open_passage(place / "n1")
    (place / "n1" / "linked").symlink_to(secret)
    (place / "n1" / "bobs").mkdir()
    os.chown(place / "n1" / "bobs", BOB.uid, BOB.gid)
    for name in ("linked", "bobs"):
        with pytest.raises(OSError, match=r"Not a directory|another user"):
            own_directory(passage, name, ANN)
    own_directory(passage, "own", ANN)
    own_directory(passage, "own", ANN)
    os.close(passage)
    owners = {name: (place / "n1" / name).lstat().st_uid for name in ("linked", "bobs", "own")}
    assert owners == {"linked": 0, "bobs": BOB.uid, "own": ANN.uid}
    assert secret.stat().st_uid == 0


@needs_root
def test_a_users_tree_is_deleted_as_that_user_whatever_it_looks_like(
    place: Path, tmp_path: Path, users: UserFiles
) -> None:
    outside = place / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    spool = Spool(tmp_path, place / "n1", users)
    folder = spool.scratch_of(str(KEY), ANN)
    where = os.open(folder, os.O_RDONLY)
    for _ in range(1500):  # deeper than a recursion, and than a path may be long
        os.mkdir("deep", 0o700, dir_fd=where)
        os.chown("deep", ANN.uid, ANN.gid, dir_fd=where)
        inner = os.open("deep", os.O_RDONLY, dir_fd=where)
        os.close(where)
        where = inner
    os.close(where)
    closed = folder / "closed"
    closed.mkdir()
    (closed / "file").write_text("x")
    (closed / "inner").mkdir()
    os.chown(closed, ANN.uid, ANN.gid)
    os.chown(closed / "inner", ANN.uid, ANN.gid)
    (closed / "inner").chmod(0o500)
    closed.chmod(0)
    (folder / "link").symlink_to(outside)
    spool.delete_attempts((KEY,))
    wait_until(lambda: not folder.exists(), "it is gone", 20)
    assert (outside / "kept").read_text() == "x"
    spool.close()


@needs_root
def test_root_deletes_nothing_in_a_users_tree_that_the_user_could_not(
    place: Path, tmp_path: Path, users: UserFiles
) -> None:
    spool = Spool(tmp_path, place / "n1", users)
    folder = spool.scratch_of(str(KEY), ANN)
    bobs = folder / "bobs"
    bobs.mkdir(mode=0o755)
    (bobs / "work").write_text("x")
    os.chown(bobs, BOB.uid, BOB.gid)
    (folder / "anns").write_text("x")
    spool.delete_attempts((KEY,))
    wait_until(lambda: not (folder / "anns").exists(), "what is the user's is gone", 20)
    assert done_as(users, None, LookAround(directory="/"), f"{ANN.uid} leaves") == FoundAround(is_open=True)
    assert (bobs / "work").read_text() == "x"
    spool.close()


def test_an_account_that_is_known_no_more_has_its_uid_alone() -> None:
    assert account_of(54321) == Account("uid 54321", 54321, 54321)
    assert account_of(0).name == "root"
