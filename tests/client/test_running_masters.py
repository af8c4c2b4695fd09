"""Masters of this user are found wherever their state is; what others made, or left, is not believed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_agent.protocol import places
from mgpu_agent.protocol.errors import Conflict, Unavailable
from mgpu_jupyter.client.discovery import Address, Locator, locate
from mgpu_jupyter.client.running_masters import Note, announce, running_masters
from tests.client.conftest import publish

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
MASTER = """
import os, sys
from pathlib import Path
from mgpu_jupyter.client.running_masters import announce
from tests.client.conftest import publish
state, port = Path(sys.argv[1]), int(sys.argv[2])
publish(state, f"http://127.0.0.1:{port}/", port, f"token-{port}", started_at=port)
announce(state / "run" / f"master-{port}.json", os.environ)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user whose usual state directory is empty."""
    monkeypatch.setattr(places, "SYSTEM_STATE_DIR", tmp_path / "none" / "system")
    (tmp_path / "none").write_text("in the way")
    (tmp_path / "home").mkdir(mode=0o700)
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def start(env: dict[str, str], tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Start processes that tell of a master as a server does; they end with the test."""
    processes = []

    def start(port: int) -> subprocess.Popen[str]:
        state = tmp_path / f"state-{port}"
        state.mkdir(mode=0o700)
        process = subprocess.Popen(
            [sys.executable, "-c", MASTER, str(state), str(port)],
            env={**env, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.communicate()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def here(env: dict[str, str], state: Path) -> Path:
    """Leave a note of this very process, as a master in `state`."""
    state.mkdir(mode=0o700, exist_ok=True)
    publish(state, "http://127.0.0.1:7001/", 7001, "token-7001")
    note = announce(state / "run" / "master-7001.json", env)
    assert note is not None
    return note


def test_a_master_in_any_directory_is_found_until_it_is_gone(env, start, tmp_path):
    process = start(7001)
    assert locate(None, None, env) == Address(
        "http://127.0.0.1:7001/", "token-7001", state=str(tmp_path / "state-7001")
    )
    end(process)
    with pytest.raises(Unavailable, match=r"^No mgpu master runs on this machine: start JupyterLab"):
        locate(None, None, env)
    here(env, tmp_path / "own")
    assert len(list((tmp_path / "home/.local/state/mgpu-running").iterdir())) == 1, "the old note is removed"


def test_of_several_the_user_chooses_and_is_told_how(env, start, tmp_path):
    start(7001), start(7002)
    with pytest.raises(Conflict) as caught:
        locate(None, None, env)
    assert caught.value.message == (
        f"2 masters of yours run on this machine, http://127.0.0.1:7002/ (its state is in "
        f"{tmp_path}/state-7002) and http://127.0.0.1:7001/ (its state is in {tmp_path}/state-7001): "
        f"name the port of one by MGPU_MASTER_PORT=7002, or its directory by MGPU_STATE_DIR."
    )
    assert locate(None, None, {**env, "MGPU_MASTER_PORT": "7001"}).token == "token-7001"
    assert locate(None, None, {**env, "MGPU_STATE_DIR": f"{tmp_path}/state-7002"}).token == "token-7002"
    assert locate("http://127.0.0.1:7001", None, env).token == "token-7001"


def test_a_named_state_directory_is_the_only_one_that_counts(env, start, tmp_path):
    start(7001)
    with pytest.raises(Unavailable):
        locate(None, None, {**env, "MGPU_STATE_DIR": str(tmp_path / "other")})


def test_a_master_that_is_gone_is_never_replaced_by_another_one(env, start, tmp_path):
    first = start(7001)
    locator = Locator(env=env)
    assert locator.address().url == "http://127.0.0.1:7001/"
    start(7002)
    end(first)
    assert (locator.look_again(), locator.renew_token()) == (False, False)
    publish(tmp_path / "state-7001", "http://127.0.0.1:7003/", 7003, "token-7003")
    assert (locator.look_again(), locator.address().url) == (True, "http://127.0.0.1:7003/")


def test_the_systems_directory_for_a_user_is_taken_where_it_is_private(env, tmp_path):
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    note = here({**env, "XDG_RUNTIME_DIR": str(runtime)}, tmp_path / "state")
    assert (note.parent, note.stat().st_mode & 0o777) == (runtime / "mgpu", 0o600)
    runtime.chmod(0o777)
    assert running_masters({**env, "XDG_RUNTIME_DIR": str(runtime)}) == []
    assert here({**env, "XDG_RUNTIME_DIR": str(runtime)}, tmp_path / "state").parent.name == "mgpu-running"


def test_without_any_directory_of_its_own_a_master_runs_all_the_same(tmp_path):
    (tmp_path / "file").write_text("")
    assert announce(tmp_path / "x", {}) is None
    assert announce(tmp_path / "x", {"HOME": str(tmp_path / "file")}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "elsewhere"},
        {"boot_id": "before"},
        {"born": "1"},
        {"pid": 2**22 + 1},
        {"runtime_file": "run/x"},
    ],
)
def test_a_note_of_another_machine_boot_or_process_is_not_believed(env, tmp_path, changes):
    note = here(env, tmp_path / "state")
    assert len(running_masters(env)) == 1
    told = msgspec.json.decode(note.read_bytes(), type=Note)
    note.write_bytes(msgspec.json.encode(replace(told, **changes)))
    assert running_masters(env) == []


def test_what_others_can_read_or_a_link_leads_to_is_not_believed(env, tmp_path):
    note = here(env, tmp_path / "state")
    runtime_file = tmp_path / "state/run/master-7001.json"
    for path in (note, runtime_file, note.parent, runtime_file.parent):
        mode = path.stat().st_mode
        path.chmod(mode | 0o044)
        assert running_masters(env) == [], path
        path.chmod(mode)
        away = path.rename(path.with_name("away"))
        path.symlink_to(away)
        assert running_masters(env) == [], path
        path.unlink()
        away.rename(path)
        assert len(running_masters(env)) == 1
    note.write_text("{")
    assert running_masters(env) == []


@as_root
def test_what_another_user_made_is_not_believed(env, tmp_path):
    note = here(env, tmp_path / "state")
    for path in (note, tmp_path / "state/run/master-7001.json", note.parent, tmp_path / "state/run"):
        os.chown(path, NOBODY, NOBODY)
        assert running_masters(env) == [], path
        os.chown(path, 0, 0)
        assert len(running_masters(env)) == 1
    theirs = tmp_path / "theirs"
    (theirs / "mgpu").mkdir(mode=0o700, parents=True)
    theirs.chmod(0o700)
    note.rename(theirs / "mgpu" / note.name)
    os.chown(theirs, NOBODY, NOBODY)
    assert running_masters({**env, "XDG_RUNTIME_DIR": str(theirs)}) == []
