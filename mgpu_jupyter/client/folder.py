"""A folder of this machine on its way to a job: read and listed, and of its content only that sent which the master does not have.

Memory is bounded: a file is read piece by piece, once to know its digests and once more to send what is missing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import MAX_ENTRIES, MAX_LIST_BYTES, PIECE_BYTES, Entry, Folder, digest_of, encode_folder, leaves
from mgpu_jupyter.api import folders as api
from mgpu_jupyter.api.folders import Nearby
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.ignore import FILE_NAME, Ignore
from mgpu_jupyter.client.transport import Request

MAX_BYTES = 1024**3
LIMIT_VARIABLE = "MGPU_SYNC_LIMIT"
_NAMED = 3
_MIB = 1024 * 1024


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a folder that was sent."""

    digest: str
    files: int
    bytes: int
    sent_bytes: int
    sent_pieces: int


def read_folder(root: Path, limit_bytes: int | None = None) -> tuple[Folder, dict[str, tuple[str, int]]]:
    """Return the list of a folder, and where each piece of it is: file and offset."""
    if not root.is_dir():
        raise InvalidRequest("no-folder", f"--sync {root}: there is no such folder.")
    limit = _limit() if limit_bytes is None else limit_bytes
    found = list(_walk(root, "", _ignore(root)))
    if len(found) > MAX_ENTRIES:
        raise InvalidRequest(
            "folder-too-large", f"{root} has {len(found)} entries, and {MAX_ENTRIES} may travel: leave some out with {FILE_NAME}."
        )
    total = sum(info.st_size for _, info in found if stat.S_ISREG(info.st_mode))
    if total > limit:
        raise InvalidRequest("folder-too-large", _too_large(root, total, limit, found))
    entries: list[Entry] = []
    places: dict[str, tuple[str, int]] = {}
    for path, info in found:
        entries.append(_entry(root, path, info, places))
    folder = Folder(tuple(entries))
    if len(encode_folder(folder)) > MAX_LIST_BYTES:
        raise InvalidRequest(
            "folder-too-large", f"The list of {root} is over {MAX_LIST_BYTES} bytes: leave some files out with {FILE_NAME}."
        )
    return folder, places


def send_folder(caller: Caller, root: Path, limit_bytes: int | None = None) -> Sent:
    """Send what the master does not have of a folder, and return its name."""
    folder, places = read_folder(root, limit_bytes)
    content = encode_folder(folder)
    name = digest_of(content)
    files = sum(entry.kind == "file" for entry in folder.entries)
    sent_bytes = sent_pieces = 0
    missing, _ = missing_of(caller, [name, *folder.pieces])
    batch: list[bytes] = []
    for digest in [digest for digest in missing if digest != name]:
        path, offset = places[digest]
        data = _read_piece(root, path, offset)
        if digest_of(data) != digest:
            raise InvalidRequest("folder-changed", f"{root / path} changed while it was read: try again when nothing writes to it.")
        batch.append(data)
        sent_bytes, sent_pieces = sent_bytes + len(data), sent_pieces + 1
        if sum(map(len, batch)) + PIECE_BYTES > api.MAX_SENT_BYTES or len(batch) >= api.MAX_PIECES:
            send_pieces(caller, batch)
            batch = []
    if name in missing:
        batch.append(content)
    if batch:
        send_pieces(caller, batch)
    return Sent(digest=name, files=files, bytes=folder.size, sent_bytes=sent_bytes, sent_pieces=sent_pieces)


def missing_of(caller: Caller, digests: Sequence[str]) -> tuple[list[str], Nearby | None]:
    """Return which of these pieces the master does not have of this user, and where they may be laid on its own machine."""
    missing: list[str] = []
    tray = None
    for start in range(0, len(digests), api.MAX_DIGESTS):
        body = msgspec.json.encode(api.Digests(digests=tuple(digests[start : start + api.MAX_DIGESTS])))
        told = caller.call(Request(method="POST", path="folders/missing", body=body), api.Missing)
        missing, tray = [*missing, *told.missing], told.tray
    return missing, tray


def send_pieces(caller: Caller, pieces: list[bytes]) -> None:
    """Send pieces, few enough for one request."""
    body = msgspec.json.encode(api.Pieces(pieces=tuple(pieces)))
    caller.call(Request(method="POST", path="folders/pieces", body=body), api.Digests)


def _ignore(root: Path) -> Ignore:
    try:
        return Ignore((root / FILE_NAME).read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return Ignore(())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("bad-ignore", f"{root / FILE_NAME} cannot be read ({error}).") from error


def _walk(root: Path, below: str, ignore: Ignore) -> Iterator[tuple[str, os.stat_result]]:
    try:
        names = sorted(os.listdir(root / below))
    except OSError as error:
        raise InvalidRequest("unreadable", f"{root / below} cannot be read: {error.strerror}.") from error
    for name in names:
        path = f"{below}/{name}" if below else name
        try:
            path.encode()
            info = os.lstat(root / path)
        except UnicodeEncodeError as error:
            raise InvalidRequest("bad-name", f"{path!r} in {root} has a name that is not UTF-8: rename it.") from error
        except OSError as error:
            raise _vanished(root / path) from error
        is_directory = stat.S_ISDIR(info.st_mode)
        if ignore.leaves_out(path, is_directory=is_directory):
            continue
        yield path, info
        if is_directory:
            yield from _walk(root, path, ignore)


def _entry(root: Path, path: str, info: os.stat_result, places: dict[str, tuple[str, int]]) -> Entry:
    mode = stat.S_IMODE(info.st_mode) & 0o777
    if stat.S_ISDIR(info.st_mode):
        return Entry(path, "directory", mode, info.st_mtime_ns)
    if stat.S_ISLNK(info.st_mode):
        try:
            target = os.readlink(root / path)
        except OSError as error:
            raise _vanished(root / path) from error
        if leaves(path, target):
            raise InvalidRequest(
                "link-leaves",
                f"{root / path} is a link to {target}, out of the folder: copy what it means, or name it in {FILE_NAME}.",
            )
        return Entry(path, "link", 0o777, 0, target=target)
    if not stat.S_ISREG(info.st_mode):
        raise InvalidRequest("no-file", f"{root / path} is neither a file nor a directory: name it in {FILE_NAME}.")
    pieces: list[str] = []
    size = 0
    while size < info.st_size:
        data = _read_piece(root, path, size)
        if not data:
            raise _vanished(root / path)
        digest = digest_of(data)
        places.setdefault(digest, (path, size))
        pieces.append(digest)
        size += len(data)
    return Entry(path, "file", mode, info.st_mtime_ns, size, tuple(pieces))


def _read_piece(root: Path, path: str, offset: int) -> bytes:
    try:
        with open(root / path, "rb", buffering=0) as file:
            file.seek(offset)
            parts = b""
            while len(parts) < PIECE_BYTES and (more := file.read(PIECE_BYTES - len(parts))):
                parts += more
            return parts
    except FileNotFoundError as error:
        raise _vanished(root / path) from error
    except OSError as error:
        raise InvalidRequest("unreadable", f"{root / path} cannot be read: {error.strerror}; is it for {FILE_NAME}?") from error


def _vanished(path: Path) -> InvalidRequest:
    return InvalidRequest("folder-changed", f"{path} vanished or shrank while it was read: try again when nothing changes the folder.")


def _too_large(root: Path, total: int, limit: int, found: list[tuple[str, os.stat_result]]) -> str:
    sizes = sorted(((info.st_size, path) for path, info in found if stat.S_ISREG(info.st_mode)), reverse=True)[:_NAMED]
    biggest = ", ".join(f"{path} ({size / _MIB:.0f} MiB)" for size, path in sizes)
    return (
        f"{root} has {total / _MIB:.0f} MiB, over the limit of {limit / _MIB:.0f} MiB; the biggest are {biggest}. "
        f"Name what is not needed in {FILE_NAME}, or set {LIMIT_VARIABLE} to more MiB."
    )


def _limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return MAX_BYTES
    if not text.isdigit():
        raise InvalidRequest("bad-limit", f"{LIMIT_VARIABLE}={text} is no number of MiB.")
    return int(text) * _MIB
