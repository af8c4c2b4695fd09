"""Files of users: one user's hang, links, pipes and trees cost nobody else anything, and what is done is done as that user."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mgpu_agent.process.cells import RUNNER, copy_runner
from mgpu_agent.process.passage import open_passage, own_directory
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol import variable_file
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.run_as import found_files
from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.file_requests import (
    Around,
    ClearFolder,
    Compare,
    Content,
    Done,
    Failed,
    FileAnswer,
    FileTask,
    FindResults,
    Found,
    FoundFile,
    LayOut,
    LookAround,
    Part,
    ReadResult,
    Versions,
    WriteValues,
)
from mgpu_agent.run_as.file_work import carry_out
from mgpu_agent.run_as.user_files import Ask, Trouble, UserFiles, account_of
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
        except Trouble as error:
            told.append(f"{error.fault}: {error}")

    assert users.submit(user, work)
    wait_until(lambda: bool(told), "it is answered", 10)
    return told[0]


def helpers_of(account: Account) -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if one.uids().real == account.uid and one.status() != psutil.STATUS_ZOMBIE]


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
    assert done_as(users, ANN, LookAround(directory=str(private))) == Around()
    assert done_as(users, ANN, LookAround(directory=str(place))) == Around(is_open=True)
    assert done_as(users, ANN, ReadResult(root="/etc", path="shadow", uid=-1, offset=0, size=9)) == "job: Permission denied (shadow)"
    assert done_as(users, ANN, LookAround(needs_python=True, python=str(private / "python"))) == Around(
        problem=f"{private}/python: there is no such Python on this node; leave --python out or name one that is there."
    )


@needs_root
def test_a_helper_that_is_stopped_costs_its_user_one_request_and_others_nothing(users: UserFiles) -> None:
    look = LookAround(directory="/")
    assert done_as(users, ANN, look) == Around(is_open=True)
    (helper,) = helpers_of(ANN)
    helper.send_signal(signal.SIGSTOP)
    begun_at = time.monotonic()
    told: list[FileAnswer | str] = []
    waiting = threading.Thread(target=lambda: told.append(done_as(users, ANN, look)))
    waiting.start()
    assert done_as(users, BOB, look, "bob") == Around(is_open=True)
    assert time.monotonic() - begun_at < 0.9
    waiting.join()
    why = "the helper of ann on this node did not answer within 1 s: end what stops or blocks processes of this user there"
    assert told == [f"job: {why}"]
    assert helpers_of(ANN) == []
    assert done_as(users, ANN, look) == Around(is_open=True)


@needs_root
def test_a_helper_that_its_user_ends_is_started_anew(users: UserFiles) -> None:
    assert done_as(users, ANN, LookAround(directory="/")) == Around(is_open=True)
    (helper,) = helpers_of(ANN)
    helper.kill()
    wait_until(lambda: not helper.is_running(), "nothing is left of it", 10)
    assert done_as(users, ANN, LookAround(directory="/")) == Around(is_open=True)


@needs_root
def test_idle_helpers_end_and_all_end_with_the_agent() -> None:
    users = UserFiles(idle_s=0.2)
    assert done_as(users, ANN, LookAround(directory="/")) == Around(is_open=True)
    wait_until(lambda: helpers_of(ANN) == [], "an idle helper ends", 10)
    assert done_as(users, ANN, LookAround(directory="/")) == Around(is_open=True)
    users.close()
    assert helpers_of(ANN) == []
    assert not users.submit("ann", lambda _: None)


def test_one_users_long_work_does_not_delay_anothers_even_where_all_are_the_agents_own(users: UserFiles) -> None:
    go_on = threading.Event()
    assert users.submit("ann", lambda _: bool(go_on.wait(10)))
    assert done_as(users, None, LookAround(directory="/"), "bob") == Around(is_open=True)
    go_on.set()


def test_an_error_in_some_work_does_not_end_the_thread_of_its_user(users: UserFiles) -> None:
    def fail(_: Ask) -> None:
        raise AssertionError

    assert users.submit("ann", fail)
    assert done_as(users, None, LookAround(directory="/")) == Around(is_open=True)


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
        part = Part("big", "file", 0o644, 0, data=b"x" * 8192)
        answer = done_as(users, ANN, LayOut(place=str(place), parts=(part,)))
        assert answer == "job: File too large"
    users.close()


# --- directories of the agent that users pass through -------------------------------------------------------


@needs_root
def test_a_scratch_directory_below_another_users_is_refused(place: Path, tmp_path: Path) -> None:
    """Its owner could put another runner in the place of ours, and every cell of every user would run that."""
    theirs = place / "theirs"
    theirs.mkdir()
    os.chown(theirs, BOB.uid, BOB.gid)
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "link").symlink_to(place)
    for parent, words in {"theirs": "belongs to another user", "open": "Others can change", "link": "no link to one"}.items():
        for make in (lambda path: Spool(tmp_path, path).close(), copy_runner):
            with pytest.raises(InvalidRequest, match=words) as error:
                make(place / parent / "n1")
            assert error.value.code == "unsafe-directory"
    (place / "open").chmod(0o1777)
    runner = Path(copy_runner(place / "open" / "n1"))
    assert runner.read_text() == Path(RUNNER).read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (runner, runner.parent, runner.parents[1])] == [0o644, 0o711, 0o755]


def test_the_copy_of_the_runner_brings_what_it_shares_with_kernels(place: Path, tmp_path: Path) -> None:
    variable_file.pack({"a": 20}).write(str(tmp_path / "in"))
    (tmp_path / "cell.py").write_text("b = a + 1")
    words = ["-I", copy_runner(place / "n1"), "--values", str(tmp_path), "--out", "b", str(tmp_path / "cell.py")]
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
def test_a_users_tree_is_deleted_as_that_user_whatever_it_looks_like(place: Path, tmp_path: Path, users: UserFiles) -> None:
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
def test_root_deletes_nothing_in_a_users_tree_that_the_user_could_not(place: Path, tmp_path: Path, users: UserFiles) -> None:
    spool = Spool(tmp_path, place / "n1", users)
    folder = spool.scratch_of(str(KEY), ANN)
    bobs = folder / "bobs"
    bobs.mkdir(mode=0o755)
    (bobs / "work").write_text("x")
    os.chown(bobs, BOB.uid, BOB.gid)
    (folder / "anns").write_text("x")
    spool.delete_attempts((KEY,))
    wait_until(lambda: not (folder / "anns").exists(), "what is the user's is gone", 20)
    assert done_as(users, None, LookAround(directory="/"), f"{ANN.uid} leaves") == Around(is_open=True)
    assert (bobs / "work").read_text() == "x"
    spool.close()


def test_an_account_that_is_known_no_more_has_its_uid_alone() -> None:
    assert account_of(54321) == Account("uid 54321", 54321, 54321)
    assert account_of(0).name == "root"


# --- what is found and read -----------------------------------------------------------------------------------


def found(place: Path, *patterns: str, limit: int = 0) -> tuple[list[str], list[str]]:
    answer = carry_out(FindResults(root=str(place), patterns=patterns, uid=-1, limit_bytes=limit), nothing)
    assert isinstance(answer, Found)
    return [file.path for file in answer.files], list(answer.problems)


def test_patterns_mean_what_they_did(tmp_path: Path) -> None:
    for path in ("a.pt", "out/b.pt", "out/deep/c.pt", ".hidden", "out/.hidden/d.txt", "x[1]"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "link").symlink_to("a.pt")
    everything = ["a.pt", "out/b.pt", "out/deep/c.pt", ".hidden", "out/.hidden/d.txt", "x[1]"]
    table: dict[tuple[str, ...], list[str]] = {
        ("*.pt",): ["a.pt"],
        ("**/*.pt",): ["a.pt", "out/b.pt", "out/deep/c.pt"],
        ("out",): ["out/.hidden/d.txt", "out/b.pt", "out/deep/c.pt"],
        ("out/",): ["out/.hidden/d.txt", "out/b.pt", "out/deep/c.pt"],
        ("o*/*",): ["out/.hidden/d.txt", "out/b.pt", "out/deep/c.pt"],
        ("**/**/c.pt", "a.pt", "a.pt"): ["out/deep/c.pt", "a.pt"],
        ("./out/../a.pt",): ["a.pt"],
        ("x[[]1]",): ["x[1]"],
        ("nothing", "/etc/*", "../*"): [],
    }
    assert {patterns: found(tmp_path, *patterns)[0] for patterns in table} == table
    for whole in (".", "**"):
        files, problems = found(tmp_path, whole)
        assert (sorted(files), problems) == (sorted(everything), ["link: Too many levels of symbolic links"])


def test_a_file_over_the_limit_is_refused_by_its_size_before_anything_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(60 * 1000**3)
    (tmp_path / "small").write_bytes(b"x" * 600)
    (tmp_path / "small2").write_bytes(b"x" * 600)
    begun_at = time.monotonic()
    files, problems = found(tmp_path, "*", limit=1000)
    assert time.monotonic() - begun_at < 5
    assert files == ["small"]
    assert problems == [
        "small2: it has 600 bytes, and results are kept up to 1000 bytes",
        "sparse: it has 60000000000 bytes, and results are kept up to 1000 bytes",
    ]


def test_a_tree_without_end_is_looked_at_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_files, "MAX_VISITS", 50)
    for number in range(100):
        (tmp_path / f"{number}").write_text("")
    assert found(tmp_path, "**/x") == ([], ["The patterns mean too much to be looked through: name the files more exactly"])


def test_pipes_and_strange_names_keep_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pyvenv.cfg")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / os.fsdecode(b"n\xff")).write_text("x")
    files, problems = found(tmp_path, "pipe", "n*")
    assert files == []
    assert [problem.partition(": ")[2][:20] for problem in problems] == ["it is no plain file", "'utf-8' codec can't "]
    look = LookAround(needs_python=True, kernel=str(tmp_path / "bin" / "python"), kernel_version=HERE)
    assert carry_out(look, nothing) == Around(python=sys.executable, version=HERE)


def test_a_part_is_read_and_a_piece_of_variables_is_written_where_it_belongs(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"....")
    assert carry_out(WriteValues(path=f"{tmp_path}/in", offsets=(0, 3), data=b"x"), nothing) == Done()
    part = ReadResult(root=str(tmp_path), path="in", uid=os.getuid(), offset=1, size=100)
    assert carry_out(part, nothing) == Content(data=b"..x")
    whole = carry_out(FindResults(root=str(tmp_path), patterns=("in",), uid=-1), nothing)
    assert whole == Found(files=(FoundFile("in", 4, hashlib.sha256(b"x..x").hexdigest(), (tmp_path / "in").stat().st_mode & 0o777),))
    (tmp_path / "link").symlink_to("in")
    refused = carry_out(WriteValues(path=f"{tmp_path}/link", offsets=(0,), data=b"x"), nothing)
    assert refused == Failed(why=f"Too many levels of symbolic links ({tmp_path}/link)")


def test_a_folder_is_laid_out_and_cleared(tmp_path: Path) -> None:
    parts = (
        Part("d", "directory", 0o500, 0),
        Part("d/f", "file", 0o640, 10**18, data=b"ab", is_last=False),
        Part("d/f", "file", 0o640, 10**18, offset=2, data=b"cd"),
        Part("d/l", "link", 0o777, 0, target="f"),
        Part("d", "settle", 0o500, 10**18),
    )
    assert carry_out(LayOut(place=str(tmp_path), parts=parts), nothing) == Done()
    file = tmp_path / "d" / "f"
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode), file.stat().st_mtime_ns) == (b"abcd", 0o640, 10**18)
    assert os.readlink(tmp_path / "d" / "l") == "f"
    assert carry_out(ClearFolder(place=str(tmp_path)), nothing) == Done()
    assert list(tmp_path.iterdir()) == []


# --- which Python ------------------------------------------------------------------------------------------------


def fake_python(place: Path, *, named: str = "python", config: str = "", library: str = "") -> str:
    path = place / "bin" / named
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {place}/it-ran\necho 3.7\n")
    path.chmod(0o755)
    if config:
        (place / "pyvenv.cfg").write_text(config)
    if library:
        (place / "lib" / library).mkdir(parents=True)
    return str(path)


@pytest.mark.parametrize(
    ("make", "version"),
    [
        (lambda place: fake_python(place, named="python3.7"), "3.7"),
        (lambda place: fake_python(place, config="home = /usr/bin\nversion = 3.8.1\n"), "3.8"),
        (lambda place: fake_python(place, config="home = /usr/bin\nversion_info = 3.9.1.final.0\n"), "3.9"),
        (lambda place: fake_python(place, library="python3.10"), "3.10"),
        (fake_python, ""),
        (lambda place: f"{place}/bin/nothing", ""),
    ],
)
def test_the_version_of_an_interpreter_is_read_and_never_asked_for(tmp_path: Path, make: Callable[[Path], str], version: str) -> None:
    path = make(tmp_path)
    told = carry_out(Compare(is_cell=True, wished=path), nothing)
    assert told == Versions(python=version) or (not Path(path).exists() and isinstance(told, Versions))
    chosen = carry_out(LookAround(needs_python=True, kernel=path, kernel_version=version or "3.7"), nothing)
    is_kernels = bool(version)
    assert chosen == Around(python=path if is_kernels else sys.executable, version=version if is_kernels else HERE)
    assert not (tmp_path / "it-ran").exists()


def test_torch_is_read_off_what_pip_wrote(tmp_path: Path) -> None:
    path = fake_python(tmp_path, config="version = 3.9.1\ninclude-system-site-packages = false\n")
    packages = tmp_path / "lib" / "python3.9" / "site-packages"
    packages.mkdir(parents=True)
    assert carry_out(Compare(argv=(path, "x.py")), nothing) == Versions(python="3.9")
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text("__version__: str = '2.1.0+cu118'\n")
    assert carry_out(Compare(argv=(path, "x.py")), nothing) == Versions(python="3.9", torch="2.1.0+cu118")
    (packages / "torch-2.2.0+cpu.dist-info").mkdir()
    assert carry_out(Compare(argv=(path, "x.py")), nothing) == Versions(python="3.9", torch="2.2.0+cpu")
    assert not (tmp_path / "it-ran").exists()
