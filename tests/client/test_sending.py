"""Folders and variables on their way to the master: only what it lacks is sent, in requests of its size."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import PIECE_BYTES, digest_of, encode_folder
from mgpu_jupyter.api import files as api
from mgpu_jupyter.api.files import Nearby, NodePython, PythonAnswers
from mgpu_jupyter.client import Client, folder, inputs
from mgpu_jupyter.client.folder import SentFolder, missing_of, read_folder, send_folder
from mgpu_jupyter.client.inputs import SentVariables, packed, send_values, with_inputs
from mgpu_jupyter.client.transport import Answer, Request
from mgpu_jupyter.model.job import JobSpec


class Master:
    """Keeps pieces; takes those that lie in its tray when it is asked for them."""

    def __init__(self, tray: Path | None = None, *, takes: bool = True) -> None:
        self.pieces: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.sizes: list[list[int]] = []
        """Bytes of the pieces of each request."""
        self.types: list[str] = []
        self._tray = tray
        self._takes = takes
        self.caller = Client(transport=self).caller  # type: ignore[arg-type]

    def send(self, request: Request) -> Answer:
        self.asked.append(request.path)
        body = bytes(request.body or b"")
        if request.path == "pythons":
            return _json(PythonAnswers(nodes=(NodePython(node="n", path="/p", version="3.11"),)))  # type: ignore[arg-type]
        if request.path == "folders/missing":
            return self._missing(msgspec.json.decode(body, type=api.Digests).digests)
        is_raw = request.headers.get("Content-Type") == api.RAW
        pieces = (body,) if is_raw else msgspec.json.decode(body, type=api.Pieces).pieces
        self.sizes.append([len(piece) for piece in pieces])
        self.pieces |= {digest_of(piece): piece for piece in pieces}
        return _json(api.Digests(digests=tuple(map(digest_of, pieces))))

    def _missing(self, digests: tuple[str, ...]) -> Answer:
        near = None
        if self._tray is not None:
            info = self._tray.stat()
            near = Nearby(path=str(self._tray), device=info.st_dev, inode=info.st_ino)
            for path in list(self._tray.iterdir()) if self._takes else ():
                self.pieces[path.name] = path.read_bytes()
        return _json(api.Missing(missing=tuple(one for one in digests if one not in self.pieces), tray=near))


def _json(body: object) -> Answer:
    return Answer(status=200, body=msgspec.json.encode(body))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "folder"
    (place / "src").mkdir(parents=True)
    (place / "src/a").write_bytes(b"a" * PIECE_BYTES + b"b")
    (place / "copy").write_bytes(b"b")
    (place / "c").write_bytes(b"c")
    return place


def test_a_folder_is_sent_once_and_then_only_what_changed(root: Path) -> None:
    master = Master()
    content = encode_folder(read_folder(root)[0])
    name = digest_of(content)
    size = PIECE_BYTES + 3

    sent = send_folder(master.caller, root)

    assert sent == SentFolder(digest=name, files=3, bytes=size, sent_bytes=PIECE_BYTES + 2, sent_pieces=3)
    assert master.pieces == {digest_of(data): data for data in (b"a" * PIECE_BYTES, b"b", b"c", content)}
    assert sum(len(sizes) for sizes in master.sizes) == 4

    master.sizes.clear()
    assert send_folder(master.caller, root) == SentFolder(
        digest=name, files=3, bytes=size, sent_bytes=0, sent_pieces=0
    )
    assert master.sizes == []

    (root / "c").write_bytes(b"new")
    again = send_folder(master.caller, root)
    assert (again.sent_bytes, again.sent_pieces, again.bytes) == (3, 1, size + 2)
    assert master.pieces[digest_of(b"new")] == b"new"
    assert again.digest in master.pieces


@pytest.mark.parametrize(
    ("most_bytes", "most_pieces", "requests"),
    [
        (PIECE_BYTES + 2, 1000, [[1, 1, 1], [1, "list"]]),
        (100 * PIECE_BYTES, 2, [[1, 1], [1, 1], ["list"]]),
        (100 * PIECE_BYTES, 1000, [[1, 1, 1, 1, "list"]]),
    ],
)
def test_requests_are_no_larger_than_the_master_takes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_bytes: int,
    most_pieces: int,
    requests: list[list[Any]],
) -> None:
    monkeypatch.setattr(api, "MAX_SENT_BYTES", most_bytes)
    monkeypatch.setattr(api, "MAX_PIECES", most_pieces)
    for name in "abcd":
        (tmp_path / name).write_bytes(name.encode())
    master = Master()

    send_folder(master.caller, tmp_path)

    size = len(encode_folder(read_folder(tmp_path)[0]))
    assert master.sizes == [[size if one == "list" else one for one in sizes] for sizes in requests]


def test_digests_are_asked_about_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_DIGESTS", 2)
    master = Master()
    names = [hashlib.sha256(bytes([number])).hexdigest() for number in range(5)]
    master.pieces[names[1]] = b""

    assert missing_of(master.caller, names) == ([names[0], *names[2:]], None)
    assert master.asked == ["folders/missing"] * 3


def test_a_file_that_changes_while_it_is_sent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    asked = folder.missing_of

    def change(*words: Any) -> Any:
        (tmp_path / "a").write_bytes(b"x")
        return asked(*words)

    monkeypatch.setattr(folder, "missing_of", change)
    with pytest.raises(InvalidRequest) as caught:
        send_folder(Master().caller, tmp_path)
    told = f"{tmp_path / 'a'} changed while it was read: try again when nothing writes to it."
    assert caught.value.message == told


def test_too_many_entries_and_too_long_a_list_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(folder, "MAX_ENTRIES", 3)
    size = len(encode_folder(read_folder(tmp_path)[0]))
    monkeypatch.setattr(folder, "MAX_LIST_BYTES", size)
    read_folder(tmp_path)
    monkeypatch.setattr(folder, "MAX_LIST_BYTES", size - 1)
    with pytest.raises(InvalidRequest) as caught:
        read_folder(tmp_path)
    told = f"The list of {tmp_path} is over {size - 1} bytes: leave some files out with .mgpuignore."
    assert caught.value.message == told
    monkeypatch.setattr(folder, "MAX_ENTRIES", 2)
    with pytest.raises(InvalidRequest) as caught:
        read_folder(tmp_path)
    told = f"{tmp_path} has 3 entries, and 2 may travel: leave some out with .mgpuignore."
    assert caught.value.message == told


def test_a_limit_may_be_reached(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_folder(tmp_path, 5)[0].size == 5
    with pytest.raises(InvalidRequest, match="over the limit"):
        read_folder(tmp_path, 4)


def test_the_three_biggest_files_are_named_and_nothing_but_files(tmp_path: Path) -> None:
    for number in range(1, 5):
        (tmp_path / f"f{number}").write_bytes(b"x" * number * 1024 * 1024)
    (tmp_path / "sub").mkdir()
    with pytest.raises(InvalidRequest) as caught:
        read_folder(tmp_path, 2 * 1024 * 1024)
    assert caught.value.message == (
        f"{tmp_path} has 10 MiB, over the limit of 2 MiB; the biggest are f4 (4 MiB), f3 (3 MiB), f2 (2 MiB)."
        " Name what is not needed in .mgpuignore, or set MGPU_SYNC_LIMIT to more MiB."
    )


def test_names_and_patterns_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / ".mgpuignore").write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match=r"\.mgpuignore cannot be read \("):
        read_folder(tmp_path)
    (tmp_path / ".mgpuignore").unlink()
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(InvalidRequest, match="has a name that is not UTF-8: rename it"):
        read_folder(tmp_path)


# --- variables ----------------------------------------------------------------------------------------


def test_variables_are_sent_once() -> None:
    master = Master()
    ready = packed({"a": 1, "b": b"x" * 1000})

    sent = send_values(master.caller, ready)

    assert sent == SentVariables(digest=sent.digest, sizes=ready.sizes, sent_bytes=ready.size)
    assert sorted(map(len, master.sizes)) == [1, 1]
    assert sent.digest in master.pieces

    master.asked.clear()
    assert send_values(master.caller, ready) == SentVariables(
        digest=sent.digest, sizes=ready.sizes, sent_bytes=0
    )
    assert master.asked == ["folders/missing"]


@pytest.mark.parametrize("takes", [True, False])
def test_a_master_of_this_machine_takes_them_from_its_tray(tmp_path: Path, takes: bool) -> None:
    tray = tmp_path / "tray"
    tray.mkdir()
    master = Master(tray, takes=takes)
    ready = packed({"a": b"x" * 1000})

    sent = send_values(master.caller, ready)

    assert sent.sent_bytes == ready.size
    assert sent.digest in master.pieces
    assert len(master.pieces) == 2
    assert master.asked == ["folders/missing"] * 2 + ([] if takes else ["folders/pieces"] * 2)
    assert list(tray.iterdir()) == []


def test_what_cannot_be_laid_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tray = tmp_path / "tray"
    tray.mkdir()
    master = Master(tray)
    monkeypatch.setattr(inputs.nearby, "lay", lambda *_: False)

    sent = send_values(master.caller, packed({"a": 1}))

    assert master.asked == ["folders/missing", "folders/pieces", "folders/pieces"]
    assert sent.digest in master.pieces


def test_a_request_with_variables_names_them_by_their_digest() -> None:
    spec = JobSpec(script="c = a", kernel_python_version="3.11")
    master = Master()

    asked, sent, note = with_inputs(master.caller, spec, {"a": 1})

    assert sent is not None
    fields = {"inputs": sent.digest, "outputs_limit_bytes": 2 * 1024**3}
    assert (asked, note) == (msgspec.structs.replace(spec, **fields), "")
    assert master.asked[:2] == ["pythons", "folders/missing"]

    master.asked.clear()
    given = msgspec.structs.replace(spec, outputs=("c",))
    asked, sent, note = with_inputs(master.caller, given, {})
    assert (asked.inputs, asked.outputs_limit_bytes, sent, note) == (spec.inputs, 2 * 1024**3, None, "")
    assert master.asked == ["pythons"]


@pytest.mark.parametrize(("count", "end"), [(5, ""), (6, " and others")])
def test_five_nodes_with_another_python_are_named(count: int, end: str) -> None:
    nodes = tuple(
        NodePython(node=f"n{number}", path="/p", version="3.12" if number else "3.11")  # type: ignore[arg-type]
        for number in range(count + 1)
    )

    class Told(Master):
        def send(self, request: Request) -> Answer:
            return _json(PythonAnswers(nodes=nodes))

    spec = JobSpec(script="x", kernel_python_version="3.11", exclude=("n9",))
    asked, note = inputs.with_same_python(Told().caller, spec)
    which = ", ".join(f"n{number} (Python 3.12, /p)" for number in range(1, 6)) + end
    assert note == (
        "This notebook has Python 3.11, and what one version pickles another need not be able to read: "
        f"the job keeps off {which}."
    )
    assert asked.exclude == ("n9", *(f"n{number}" for number in range(1, count + 1)))
