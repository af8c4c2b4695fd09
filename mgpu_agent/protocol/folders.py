"""A folder that travels with a job: a list of entries, and pieces of content that are known by their SHA-256.
Reads and writes no file.

The list is itself such a piece, and its digest is the name of the folder: same name, same content. Every
receiver of a list checks it, so that nothing can be written outside the folder.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from typing import Literal

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest

PIECE_BYTES = 1024 * 1024
VALUES_PIECE_BYTES = 4 * 1024 * 1024
MAX_LIST_BYTES = 8 * 1024 * 1024
MAX_ENTRIES = 50_000
MAX_PATH = 4096
DIGEST_PATTERN = r"^[0-9a-f]{64}$(?!\n)"
_DIGEST_CHARS = frozenset("0123456789abcdef")
_MODES = 0o777


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file, directory or link of a folder."""

    path: str
    """Relative, with slashes."""
    kind: Literal["file", "directory", "link", "values"] = "file"
    """`values` is the file of a job's variables: it is never laid out in a folder, and has larger pieces."""
    mode: int = 0o644
    modified_ns: int = 0
    size: int = 0
    pieces: tuple[str, ...] = ()
    """Digests of the content, in order; each piece but the last has `piece_bytes`."""
    target: str = ""
    """Where a link leads."""

    @property
    def piece_bytes(self) -> int:
        """The size of its pieces."""
        return VALUES_PIECE_BYTES if self.kind == "values" else PIECE_BYTES


class Folder(msgspec.Struct, frozen=True, array_like=True):
    """All entries, parents before their content."""

    entries: tuple[Entry, ...]

    @property
    def pieces(self) -> dict[str, None]:
        """The digests of all content, each once, in order."""
        return dict.fromkeys(piece for entry in self.entries for piece in entry.pieces)

    @property
    def size(self) -> int:
        """The sum of the sizes of all files."""
        return sum(entry.size for entry in self.entries)


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Folder] = msgspec.msgpack.Decoder(Folder)


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of a piece."""
    return hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """Tell whether this text can be a digest."""
    return len(text) == 64 and _DIGEST_CHARS.issuperset(text)


def encode_folder(folder: Folder) -> bytes:
    """Return the list as a piece."""
    return _encoder.encode(folder)


def decode_folder(data: bytes | memoryview) -> Folder:
    """Return the list that a piece holds, or refuse it."""
    try:
        folder = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            "bad-folder", f"The list of the folder cannot be read ({error}): send the folder again."
        ) from error
    check_folder(folder)
    return folder


def values_of(folder: Folder) -> Entry:
    """Return the file of variables in a list, or refuse it."""
    if len(folder.entries) != 1 or folder.entries[0].kind != "values":
        raise InvalidRequest(
            "bad-inputs",
            "inputs names variables that were sent, by the SHA-256 of their list: the client does that.",
        )
    return folder.entries[0]


def check_folder(folder: Folder) -> None:
    """Refuse a list with an entry that would be outside the folder, or nowhere."""
    if len(folder.entries) > MAX_ENTRIES:
        raise InvalidRequest(
            "bad-folder", f"A folder may have {MAX_ENTRIES} entries, not {len(folder.entries)}."
        )
    kinds: dict[str, str] = {"": "directory"}
    for entry in folder.entries:
        parent = posixpath.dirname(entry.path)
        problem = _problem(entry)
        if not problem and kinds.get(parent) != "directory":
            problem = "is in no directory of the folder"
        if not problem and entry.path in kinds:
            problem = "is there twice"
        if problem:
            raise InvalidRequest("bad-folder", f"{entry.path!r} {problem}: send the folder again.")
        kinds[entry.path] = entry.kind


def check_room(folder: Folder, limit_bytes: int) -> None:
    """Refuse a folder that would be larger than this when laid out: one piece may occur in it many times; 0
    for no limit.
    """
    if limit_bytes and folder.size > limit_bytes:
        text = f"The folder has {folder.size} bytes when it is laid out, and {limit_bytes} are allowed"
        raise InvalidRequest(
            "folder-too-large",
            f"{text}: leave files out with .mgpuignore, or ask an administrator (limits.folder_bytes).",
        )


def check_sizes(folder: Folder, sizes: Mapping[str, int]) -> None:
    """Refuse a list whose sizes differ from those of its pieces."""
    for entry in folder.entries:
        *whole, last = entry.pieces or ("",)
        rest = entry.size - len(whole) * entry.piece_bytes
        if any(sizes[piece] != entry.piece_bytes for piece in whole) or (last and sizes[last] != rest):
            raise InvalidRequest(
                "bad-folder", f"{entry.path!r} has other content than its size says: send the folder again."
            )


def leaves(path: str, target: str) -> bool:
    """Tell whether a link at this path leads out of the folder."""
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target.startswith("/") or there == ".." or there.startswith("../")


def _problem(entry: Entry) -> str:
    path = entry.path
    is_plain = 0 < len(path) <= MAX_PATH and "\0" not in path and posixpath.normpath(path) == path
    if not is_plain or path.startswith(("/", "../")) or path in (".", ".."):
        return "is no path within a folder"
    if entry.mode & ~_MODES:
        return "has a mode that does not travel"
    if entry.kind == "link" and (not entry.target or "\0" in entry.target or leaves(path, entry.target)):
        return "is a link that leads out of the folder"
    if entry.kind not in ("file", "values") and (entry.pieces or entry.size):
        return "has content, and is no file"
    if (
        entry.size < 0
        or not all(map(is_digest, entry.pieces))
        or len(entry.pieces) != -(-entry.size // entry.piece_bytes)
    ):
        return "has other content than its size says"
    return ""
