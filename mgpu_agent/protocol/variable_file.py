"""Variables of a notebook as one file, and back: exchanged by kernel and cell, and read by nobody between
them.

One pickle for each name, with the memory of arrays beside it unchanged.

The file: eight bytes of magic, eight with the length of the heading, the heading (JSON: for each name where
its pickle and its buffers are), and then those, aligned. A reader maps the file copy-on-write, so that
an array is the mapped memory itself. Used by the kernel, and inside jobs, where `cell/runner.py` loads this
file by its path: the standard library alone, of Python 3.8 and later, nothing of mgpu, and nothing of numpy
or torch unless the values themselves use it. Reading a file runs what it contains: only its owner may do so,
and only with files of the owner.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import pickle
import struct
import sys
import threading
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

MAGIC = b"mgpuval1"
PROTOCOL = 5
ALIGN = 64
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
MIB = 1024 * 1024
_HEAD = struct.Struct("<8sQ")
_OPEN_FILES = (io.IOBase,)
_RUNNING = (
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.FrameType,
    types.TracebackType,
)


class Refused(Exception):
    """A value that cannot travel; the text says which and what to do."""


class Packed:
    """Packed values: `parts` are offsets with their data, `sizes` the bytes of each name."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, memoryview]] = []
        self.size = 0
        self.sizes: dict[str, int] = {}
        self.problems: dict[str, str] = {}

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield all of it in pieces of this size, without a copy where a piece lies within one part."""
        waiting = bytearray()
        for part in self._whole():
            start = 0
            if waiting:
                start = min(size - len(waiting), len(part))
                waiting += part[:start]
                if len(waiting) < size:
                    continue
                yield memoryview(bytes(waiting))
                waiting = bytearray()
            while len(part) - start >= size:
                yield part[start : start + size]
                start += size
            waiting += part[start:]
        if waiting:
            yield memoryview(bytes(waiting))

    def write(self, path: str) -> str:
        """Write it to a new file of its owner alone and return its SHA-256, computed while writing."""
        digest = hashlib.sha256()
        hashing = threading.Thread(target=self._hash, args=(digest,))
        hashing.start()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            for part in self._whole():
                left = part
                while left:
                    left = left[file.write(left) :]
        hashing.join()
        return digest.hexdigest()

    def _hash(self, digest: Any) -> None:
        for part in self._whole():
            digest.update(part)

    def _whole(self) -> Iterator[memoryview]:
        at = 0
        for place, data in self.parts:
            if place > at:
                yield memoryview(bytes(place - at))
            yield data
            at = place + len(data)


def pack(
    values: Mapping[str, object],
    problems: dict[str, str] | None = None,
    where: str = "notebook",
    limit: int = 0,
) -> Packed:
    """Return these values as a file would hold them; `Refused` names one that cannot travel from this
    `where`, or is too large.

    With `problems`, the reason is put there instead, and the others travel.
    """
    packed = Packed()
    pickled = []
    total = 0
    for name, value in values.items():
        try:
            data, buffers = _pickle(name, value, where)
            total += (size := sum(map(len, (data, *buffers))))
            if limit and total > limit:
                total -= size
                raise Refused(_too_much(name, size, limit))  # noqa: TRY301 - one place for all that is refused
        except Refused as error:
            if problems is None:
                raise
            problems[name] = str(error)
        else:
            pickled.append((name, data, buffers))
    entries: list[dict[str, Any]] = []
    at = 0
    body: list[tuple[int, memoryview]] = []
    for name, data, buffers in pickled:
        places = []
        for part in (data, *buffers):
            at = -(-at // ALIGN) * ALIGN
            places.append((at, len(part)))
            if len(part):
                body.append((at, part))
            at += len(part)
        packed.sizes[name] = sum(size for _, size in places)
        entries.append({"name": name, "parts": places})
    packed.problems = dict(problems or {})
    heading = json.dumps({"python": PYTHON, "values": entries, "problems": packed.problems}).encode()
    start = -(-(_HEAD.size + len(heading)) // ALIGN) * ALIGN
    packed.parts = [
        (0, memoryview(_HEAD.pack(MAGIC, len(heading)) + heading)),
        *((start + place, part) for place, part in body),
    ]
    packed.size = packed.parts[-1][0] + len(packed.parts[-1][1])
    return packed


def _too_much(name: str, size: int, limit: int) -> str:
    return (
        f"`{name}` has {_words(size)}, and {_words(limit)} may travel in all: "
        "use a file (--sync there, --results back), or set MGPU_VALUES_LIMIT to more MiB."
    )


class Unpacked:
    """An opened file of values. Values are made when asked for, and keep the mapped memory alive."""

    def __init__(self, memory: memoryview) -> None:
        magic, length = _HEAD.unpack(memory[: _HEAD.size])
        if magic != MAGIC:
            raise Refused(
                "This is no file of variables: it was damaged, or written by another version of mgpu."
            )
        heading = json.loads(bytes(memory[_HEAD.size : _HEAD.size + length]))
        self._memory = memory
        self._start = -(-(_HEAD.size + length) // ALIGN) * ALIGN
        self._places = {entry["name"]: entry["parts"] for entry in heading["values"]}
        self.python: str = heading["python"]
        self.problems: dict[str, str] = heading["problems"]
        self.sizes = {name: sum(size for _, size in places) for name, places in self._places.items()}

    def value(self, name: str) -> object:
        """Return a value, made anew; errors are those of the value itself."""
        data, *buffers = (
            self._memory[self._start + place : self._start + place + size]
            for place, size in self._places[name]
        )
        return pickle.loads(data, buffers=buffers)  # noqa: S301 - the user's own, see above


def unpack(path: str) -> Unpacked:
    """Return the values of a file, mapped: it is read when they are, and changes in memory do not reach
    it.
    """
    with open(path, "rb") as file:
        return Unpacked(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))


def _words(size: int) -> str:
    # In a cell, which has no mgpu to import, the runner loads what lies beside this file.
    runner: Any = sys.modules.get("_mgpu_cell_runner")
    if runner is not None:
        return str(runner.load("wording", runner.SHARED).size(size))
    from mgpu_agent.protocol import wording

    return wording.size(size)


# --- pickling ------------------------------------------------------------------------------------------


def _pickle(name: str, value: object, where: str) -> tuple[memoryview, list[memoryview]]:
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        buffers.append(buffer.raw())
        return False

    out = io.BytesIO()
    try:
        _pickler(out, keep, where).dump(value)
    except Refused as error:
        raise Refused(f"`{name}` {error}") from None
    except Exception as error:
        if isinstance(error, RecursionError) or isinstance(
            error.__cause__, RecursionError
        ):  # cloudpickle words it differently
            raise Refused(
                f"`{name}` refers to itself too deeply to be pickled: send its data in a flatter form."
            ) from None
        raise Refused(
            f"`{name}` ({_kind(value)}) cannot be pickled: {_first_line(error)}. {_ADVICE}"
        ) from error
    return out.getbuffer(), buffers


_ADVICE = "Send the plain data of which it can be made again, and make it in the cell."


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _pickler(out: io.BytesIO, keep: Any, where: str) -> pickle.Pickler:
    by_value = _cloudpickle()
    base: Any = pickle.Pickler if by_value is None else by_value.CloudPickler

    class Pickler(base):  # type: ignore[misc]  # whichever is there
        def reducer_override(self, value: Any) -> Any:
            reason = _reason_against(value, has_cloudpickle=by_value is not None, where=where)
            if reason:
                raise Refused(reason)
            tensor = _tensor(value)
            if tensor is not None:
                return tensor
            return NotImplemented if by_value is None else super().reducer_override(value)

    return Pickler(out, protocol=PROTOCOL, buffer_callback=keep)


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]  # the user's, if at all
    except ImportError:
        return None
    return cloudpickle


def _reason_against(value: Any, *, has_cloudpickle: bool, where: str) -> str:
    """Return why a value, or something in it, cannot travel; the sentence follows the name of the
    variable.
    """
    if isinstance(value, _OPEN_FILES) and not isinstance(value, (io.BytesIO, io.StringIO)):
        return "is or holds an open file ({}): send its path or its content instead.".format(
            getattr(value, "name", "without a name")
        )
    if isinstance(value, _RUNNING):
        return (
            f"is or holds a {type(value).__name__}, which is a computation under way: send what it "
            f"yields, for example as a list."
        )
    if isinstance(value, types.ModuleType) and not has_cloudpickle:
        return f"is or holds the module {value.__name__}: import it in the cell instead."
    if type(value).__module__ == "_thread" or (
        type(value).__module__ == "socket" and type(value).__name__ == "socket"
    ):
        return (
            f"is or holds a {type(value).__name__}, which belongs to this process: make it anew in the cell."
        )
    if (
        not has_cloudpickle
        and isinstance(value, (types.FunctionType, type))
        and value.__module__ == "__main__"
    ):
        what = "class" if isinstance(value, type) else "function"
        knows = f"needs the {what} {value.__qualname__}, which only this {where} knows"
        return f"{knows}: install cloudpickle here and on the other side, or send plain data."
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return (
            f"is or holds a tensor on {value.device}, whose memory is not this process's to send: send "
            f"x.cpu() instead."
        )
    return ""


def _tensor(value: Any) -> Any:
    """Return how a plain tensor is made from an array, whose memory travels unchanged; else None."""
    torch: Any = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return None
    if value.requires_grad or value.layout is not torch.strided or value.is_conj() or value.is_neg():
        return None
    try:
        return torch.from_numpy, (value.numpy(),)
    except (TypeError, RuntimeError):  # a kind that numpy does not know, or no numpy
        return None
