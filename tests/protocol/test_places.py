from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from mgpu_agent.protocol import places
from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_agent.protocol.places import RuntimeFile, StatePlace

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw - proc proc rw
30 21 0:40 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/ada/fast rw - xfs /dev/sdb1 rw
32 21 0:41 / /mnt/with\\040blank rw - cifs //server/share rw
33 21 0:42 / /scratch rw - lustre mds:/scratch rw
34 21 0:43 / /scratch rw - tmpfs tmpfs rw
"""


# --- network file systems --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "on_network"),
    [
        ("/var/lib/mgpu", False),
        ("/home", True),
        ("/home/ada/.local/state", True),
        ("/homely", False),
        ("/home/ada/fast/state", False),
        ("/mnt/with blank/x", True),
        ("/scratch/x", False),
    ],
    ids=str,
)
def test_the_innermost_and_newest_mount_decides(path: str, on_network: bool) -> None:
    assert places.is_on_network(Path(path), MOUNTS) is on_network


def test_the_real_mount_table_can_be_read() -> None:
    assert places.is_on_network(Path("/proc")) is False


# --- the state directory ---------------------------------------------------------------------------


@pytest.fixture
def candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The three places in order, all of them unusable until a test allows one."""
    monkeypatch.setattr(places, "SYSTEM_STATE_DIR", tmp_path / "system")
    monkeypatch.setattr(places, "is_on_network", lambda path: False)
    monkeypatch.setattr(places, "_make_writable", lambda path: False)
    return [
        tmp_path / "system",
        tmp_path / "xdg" / "mgpu" / places.host_name(),
        Path(f"/var/tmp/mgpu-{os.getuid()}"),
    ]


def _usable(monkeypatch: pytest.MonkeyPatch, writable: list[Path], network: list[Path]) -> None:
    monkeypatch.setattr(places, "_make_writable", lambda path: path in writable)
    monkeypatch.setattr(places, "is_on_network", lambda path: path in network)


def test_order_of_the_places(candidates: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "xdg")}
    chosen = []
    for first in range(3):
        _usable(monkeypatch, candidates[first:], [])
        chosen.append(places.state_place(env))
    assert chosen == [StatePlace(path) for path in candidates]


def test_a_local_place_goes_before_an_earlier_one_on_the_network(
    candidates: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _usable(monkeypatch, candidates, candidates[:2])
    assert places.state_place({"XDG_STATE_HOME": str(tmp_path / "xdg")}) == StatePlace(candidates[2])


def test_only_a_network_place_is_taken_and_says_so(
    candidates: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _usable(monkeypatch, candidates[1:2], candidates)
    assert places.state_place({"XDG_STATE_HOME": str(tmp_path / "xdg")}) == StatePlace(
        candidates[1], on_network=True
    )


def test_no_place_at_all(candidates: list[Path]) -> None:
    with pytest.raises(Unavailable) as caught:
        places.state_place({"HOME": "/nowhere"})
    assert (caught.value.code, caught.value.message) == (
        "state-dir",
        "No directory for state is writable: set MGPU_STATE_DIR to one of your own.",
    )


@pytest.mark.parametrize("env", [{"HOME": "{tmp}/home"}, {"HOME": "{tmp}/home", "XDG_STATE_HOME": ""}])
def test_home_without_xdg(
    env: dict[str, str], candidates: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tmp_path / "home/.local/state/mgpu" / places.host_name()
    _usable(monkeypatch, [expected], [])
    assert places.state_place(
        {name: value.format(tmp=tmp_path) for name, value in env.items()}
    ) == StatePlace(expected)


def test_no_home_in_the_environment(candidates: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Path(os.path.expanduser("~/.local/state/mgpu")) / places.host_name()
    _usable(monkeypatch, [expected], [])
    assert places.state_place({}) == StatePlace(expected)


def test_named_directory_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "a" / "b"
    monkeypatch.setenv("MGPU_STATE_DIR", str(named))
    assert places.state_place() == StatePlace(named)
    assert named.stat().st_mode & 0o777 == 0o700


def test_named_directory_on_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "is_on_network", lambda path: True)
    assert places.state_place({"MGPU_STATE_DIR": str(tmp_path)}) == StatePlace(tmp_path, on_network=True)


def test_named_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest) as caught:
        places.state_place({"MGPU_STATE_DIR": f"{tmp_path}/file/state"})
    assert (caught.value.code, caught.value.message) == (
        "state-dir",
        f"MGPU_STATE_DIR={tmp_path}/file/state is not writable: point it at a directory of your own.",
    )


# --- private files and directories -----------------------------------------------------------------


def test_private_directory_is_made_for_its_owner(tmp_path: Path) -> None:
    made = places.make_private_dir(tmp_path / "keys")
    assert (made, made.stat().st_mode & 0o777) == (tmp_path / "keys", 0o700)


def test_a_private_directory_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: (synced.append(os.readlink(f"/proc/self/fd/{descriptor}")), real(descriptor)),
    )
    for _ in range(2):  # the second time nothing is missing
        places.make_private_dir(tmp_path / "nodes" / "n1" / "keys")
    assert synced == [str(tmp_path), str(tmp_path / "nodes"), str(tmp_path / "nodes" / "n1")]


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o710, 0o701, 0o777])
def test_directory_that_others_can_enter_is_refused(mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(InvalidRequest) as caught:
        places.make_private_dir(tmp_path)
    assert (caught.value.code, caught.value.message) == (
        "unsafe-directory",
        f"{tmp_path} must belong to you alone: run  chmod 700 {tmp_path}",
    )


def test_a_link_of_another_user_leads_nowhere_and_ones_own_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = places.make_private_dir(tmp_path / "mine"), tmp_path / "link"
    link.symlink_to(target)
    assert places.make_private_dir(link) == link
    if os.getuid() == 0:
        os.lchown(link, 12345, 12345)
    else:
        monkeypatch.setattr("mgpu_agent.protocol.places.os.getuid", lambda: 12345)
    with pytest.raises(InvalidRequest) as caught:
        places.make_private_dir(link)
    assert (caught.value.code, caught.value.message) == (
        "unsafe-directory",
        f"{link} is a link that another user made: remove it, or name another directory.",
    )


def test_things_of_another_user_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places.write_private_file(tmp_path / "key", b"secret")
    other = os.getuid() + 1
    monkeypatch.setattr("mgpu_agent.protocol.places.os.getuid", lambda: other)
    with pytest.raises(
        InvalidRequest, match=f"^{tmp_path} belongs to another user: run  sudo chown {other} {tmp_path}$"
    ):
        places.make_private_dir(tmp_path)
    with pytest.raises(
        InvalidRequest, match=f"belongs to another user: run  sudo chown {other} {tmp_path}/key$"
    ):
        places.read_private_file(tmp_path / "key")


def test_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "key"
    places.write_private_file(path, b"first")
    places.write_private_file(path, b"2nd")
    assert (places.read_private_file(path), path.stat().st_mode & 0o777) == (b"2nd", 0o600)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"secret")
    path.chmod(mode)
    with pytest.raises(InvalidRequest) as caught:
        places.read_private_file(path)
    assert (caught.value.code, caught.value.message) == (
        "unsafe-file",
        f"{path} must be readable by you alone: run  chmod 600 {path}",
    )


PRIVATE = {
    ".": (0o750, "unsafe-directory", "belong to", 700),
    "keys": (0o755, "unsafe-directory", "belong to", 700),
    "run": (0o701, "unsafe-directory", "belong to", 700),
    "nodes": (0o770, "unsafe-directory", "belong to", 700),
    "logs": (0o710, "unsafe-directory", "belong to", 700),
    "keys/link.key": (0o640, "unsafe-file", "be readable by", 600),
    "run/master-1.json": (0o604, "unsafe-file", "be readable by", 600),
    "mgpu.db": (0o644, "unsafe-file", "be readable by", 600),
    "mgpu.db-wal": (0o644, "unsafe-file", "be readable by", 600),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_a_state_directory_that_others_can_look_into_is_refused_with_the_command_that_fixes_it(
    name: str, tmp_path: Path
) -> None:
    state = places.make_private_dir(tmp_path / "state")
    for directory in ("keys", "run", "nodes", "logs"):
        places.make_private_dir(state / directory)
    for file in ("keys/link.key", "run/master-1.json", "mgpu.db", "mgpu.db-wal"):
        places.write_private_file(state / file, b"secret")
    places.check_private_state(state)
    mode, code, what, fix = PRIVATE[name]
    path = (state / name).absolute() if name != "." else state
    path.chmod(mode)

    with pytest.raises(InvalidRequest) as caught:
        places.check_private_state(state)

    assert (caught.value.code, caught.value.message) == (
        code,
        f"{path} must {what} you alone: run  chmod {fix} {path}",
    )
    path.chmod(int(str(fix), 8))
    places.check_private_state(state)


def test_a_state_directory_is_made_for_its_owner_and_a_file_that_is_not_there_is_no_fault(
    tmp_path: Path,
) -> None:
    places.check_private_state(tmp_path / "new")
    places.check_private_file(tmp_path / "new" / "ledger")

    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new" / "ledger").touch(0o644)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        places.check_private_file(tmp_path / "new" / "ledger")


# --- runtime files ---------------------------------------------------------------------------------


def _runtime(port: int = 8080, **changes: object) -> RuntimeFile:
    plain = RuntimeFile(
        url=f"http://127.0.0.1:{port}/",
        token="t",
        link_address="tcp://127.0.0.1:8790",
        link_public_key="p",
        enrol_public_key="e",
        enrol_secret_key="s",
        host=places.host_name(),
        boot_id=places.boot_id(),
        pid=os.getpid(),
        port=port,
        started_at=1000.0,
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_no_runtime_file(tmp_path: Path) -> None:
    assert places.find_runtime_file(tmp_path) is None


def test_runtime_file_is_found_by_its_port(tmp_path: Path) -> None:
    first, second = _runtime(8080), _runtime(8081, started_at=900.0)
    paths = [places.write_runtime_file(tmp_path, content) for content in (first, second)]

    assert paths == [tmp_path / "run" / "master-8080.json", tmp_path / "run" / "master-8081.json"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600, 0o600]
    assert [places.find_runtime_file(tmp_path, port) for port in (8080, 8081, 8082)] == [first, second, None]


@pytest.mark.parametrize("newest", [8080, 8081, 8082])
def test_without_a_port_the_newest_is_taken(newest: int, tmp_path: Path) -> None:
    for port in (8080, 8081, 8082):
        places.write_runtime_file(tmp_path, _runtime(port, started_at=time.time() if port == newest else 5.0))
    found = places.find_runtime_file(tmp_path)
    assert found is not None
    assert found.port == newest


def test_runtime_files_of_elsewhere_are_ignored(tmp_path: Path, dead_pid: int) -> None:
    elsewhere: list[dict[str, object]] = [
        {"host": "another-host"},
        {"boot_id": "another-boot"},
        {"pid": dead_pid},
    ]
    for port, changes in enumerate(elsewhere, start=9000):
        places.write_runtime_file(tmp_path, _runtime(port, **changes))
    assert places.find_runtime_file(tmp_path) is None


def test_runtime_files_that_cannot_be_trusted_are_ignored(tmp_path: Path) -> None:
    open_to_all = places.write_runtime_file(tmp_path, _runtime(9000))
    open_to_all.chmod(0o644)
    places.write_private_file(tmp_path / "run" / "master-9001.json", b"not json")
    places.write_private_file(tmp_path / "run" / "master-9002.json", b"{}")
    (tmp_path / "run" / "master-9003.json").symlink_to(tmp_path / "nowhere")
    assert places.find_runtime_file(tmp_path) is None


def test_a_master_of_another_user_counts_as_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    places.write_runtime_file(tmp_path, _runtime(9000))
    monkeypatch.setattr("mgpu_agent.protocol.places.os.kill", refuse)
    assert places.find_runtime_file(tmp_path) == _runtime(9000)
