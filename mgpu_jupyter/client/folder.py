"""Sends a folder of this machine for a job: lists it, and sends the pieces that the master lacks.

Memory is bounded: a file is read piece by piece, once for its digests and once more to send missing pieces.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from mgpu_agent.protocol import wording
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import (
    MAX_ENTRIES,
    MAX_LIST_BYTES,
    PIECE_BYTES,
    Entry,
    Folder,
    digest_of,
    encode_folder,
    leaves,
)
from mgpu_jupyter.api import files as api
from mgpu_jupyter.api.files import Nearby
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.transport import Request

MAX_BYTES = 1024**3
LIMIT_VARIABLE = "MGPU_SYNC_LIMIT"
_NAMED = 3
_MIB = 1024 * 1024


class SentFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending a folder."""

    digest: str
    files: int
    bytes: int
    sent_bytes: int
    sent_pieces: int


def read_folder(root: Path, limit_bytes: int | None = None) -> tuple[Folder, dict[str, tuple[str, int]]]:
    """Return the list of a folder, and where each piece of it is: file and offset."""
    if not root.is_dir():
        raise InvalidRequest("no-folder", f"--sync {root}: there is no such folder; look at its path.")
    limit = _limit() if limit_bytes is None else limit_bytes
    found = list(_walk(root, "", _ignore(root)))
    if len(found) > MAX_ENTRIES:
        raise InvalidRequest(
            "folder-too-large",
            f"{root} has {len(found)} entries, and {MAX_ENTRIES} may travel: leave some out with "
            f"{FILE_NAME}.",
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
            "folder-too-large",
            f"The list of {root} is over {MAX_LIST_BYTES} bytes: leave some files out with {FILE_NAME}.",
        )
    return folder, places


def send_folder(caller: Caller, root: Path, limit_bytes: int | None = None) -> SentFolder:
    """Send the pieces of a folder that the master lacks, and return its digest."""
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
            raise InvalidRequest(
                "folder-changed",
                f"{root / path} changed while it was read: try again when nothing writes to it.",
            )
        batch.append(data)
        sent_bytes, sent_pieces = sent_bytes + len(data), sent_pieces + 1
        if sum(map(len, batch)) + PIECE_BYTES > api.MAX_SENT_BYTES or len(batch) >= api.MAX_PIECES:
            send_pieces(caller, batch)
            batch = []
    if name in missing:
        batch.append(content)
    if batch:
        send_pieces(caller, batch)
    return SentFolder(
        digest=name, files=files, bytes=folder.size, sent_bytes=sent_bytes, sent_pieces=sent_pieces
    )


def missing_of(caller: Caller, digests: Sequence[str]) -> tuple[list[str], Nearby | None]:
    """Return which of these pieces the master lacks, and where to put them on its own machine."""
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
            raise InvalidRequest(
                "bad-name", f"{path!r} in {root} has a name that is not UTF-8: rename it."
            ) from error
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
                f"{root / path} is a link to {target}, out of the folder: copy what it means, or name it in "
                f"{FILE_NAME}.",
            )
        return Entry(path, "link", 0o777, 0, target=target)
    if not stat.S_ISREG(info.st_mode):
        raise InvalidRequest(
            "no-file", f"{root / path} is neither a file nor a directory: name it in {FILE_NAME}."
        )
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
        raise InvalidRequest(
            "unreadable", f"{root / path} cannot be read: {error.strerror}; is it for {FILE_NAME}?"
        ) from error


def _vanished(path: Path) -> InvalidRequest:
    return InvalidRequest(
        "folder-changed",
        f"{path} vanished or shrank while it was read: try again when nothing changes the folder.",
    )


def _too_large(root: Path, total: int, limit: int, found: list[tuple[str, os.stat_result]]) -> str:
    sizes = sorted(
        ((info.st_size, path) for path, info in found if stat.S_ISREG(info.st_mode)), reverse=True
    )[:_NAMED]
    biggest = ", ".join(f"{path} ({wording.size(size)})" for size, path in sizes)
    return (
        f"{root} has {wording.size(total)}, over the limit of {wording.exact(limit)}; the biggest are "
        f"{biggest}. "
        f"Name what is not needed in {FILE_NAME}, or set {LIMIT_VARIABLE} to more MiB."
    )


def _limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return MAX_BYTES
    if not text.isdigit():
        raise InvalidRequest("bad-limit", f"{LIMIT_VARIABLE}={text} is no number of MiB.")
    return int(text) * _MIB


FILE_NAME = ".mgpuignore"
ALWAYS = (".git/", "__pycache__/", ".ipynb_checkpoints/", FILE_NAME)
_CLASS = re.compile(r"\[(!?)([^]]+)\]")


class Ignore:
    """Which files of a folder are not sent: patterns as in `.gitignore`, in a file `.mgpuignore` at its top.

    A later pattern wins; `!` reverses; a slash at the end means directories only, one elsewhere anchors a
    pattern at the top; `*` and `?` stop at slashes and `**` does not. The content of a directory that is left
    out is left out, too.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._rules = [rule for line in (*ALWAYS, *lines) if (rule := _rule(line)) is not None]

    def leaves_out(self, path: str, *, is_directory: bool) -> bool:
        """Tell whether this path itself is left out."""
        is_out = False
        for pattern, is_taken_back, directories_alone in self._rules:
            if (is_directory or not directories_alone) and pattern.fullmatch(path):
                is_out = not is_taken_back
        return is_out


def _rule(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    is_taken_back = text.startswith("!")
    text = text.removeprefix("!").removeprefix("\\")
    directories_alone = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    is_tied = "/" in text
    return (
        re.compile(("" if is_tied else "(?:.*/)?") + _expression(text.lstrip("/")), re.DOTALL),
        is_taken_back,
        directories_alone,
    )


def _expression(text: str) -> str:
    parts = []
    position = 0
    while position < len(text):
        rest = text[position:]
        if rest.startswith("**/"):
            parts.append("(?:.*/)?")
            position += 3
        elif rest.startswith("**"):
            parts.append(".*")
            position += 2
        elif rest[0] in "*?":
            parts.append("[^/]*" if rest[0] == "*" else "[^/]")
            position += 1
        elif found := _CLASS.match(rest):
            inside = found[2].replace("\\", "\\\\")
            parts.append(f"[{'^' if found[1] else ''}{inside}]")
            position += found.end()
        else:
            parts.append(re.escape(rest[0]))
            position += 1
    return "".join(parts)
