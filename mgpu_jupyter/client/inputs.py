"""Sends variables of this process for a cell: packs them, refuses by name those that cannot travel, and sends
the pieces that the master does not have.

Several pieces are hashed and sent at once. Nothing is copied on this side.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol import variable_file
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import VALUES_PIECE_BYTES, Entry, Folder, digest_of, encode_folder
from mgpu_jupyter.api import files as api
from mgpu_jupyter.api.files import PythonAnswers, PythonQuestion
from mgpu_jupyter.client import nearby
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.folder import missing_of
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.client.values import variable_names
from mgpu_jupyter.model.job import JobSpec

MAX_BYTES = 2 * 1024**3
LIMIT_VARIABLE = "MGPU_VALUES_LIMIT"
SENDERS = 3
AT_ONCE = 4  # pieces that are put into the tray before the server is asked to take them
NAME = "values"
_MIB = 1024 * 1024


class SentVariables(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending variables."""

    digest: str
    sizes: dict[str, int]
    sent_bytes: int


def looked_up(names: Sequence[str], namespace: Mapping[str, object]) -> dict[str, object]:
    """Return variables of a notebook by their names."""
    for name in names:
        if name not in namespace:
            raise InvalidRequest(
                "no-such-variable",
                f"--in {name}: there is no variable {name} in this notebook; run the cell that sets it.",
            )
    return {name: namespace[name] for name in names}


def limit_bytes() -> int:
    """Return how many bytes may travel in all, each way."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return MAX_BYTES
    if not text.isdecimal():
        raise InvalidRequest("bad-limit", f"{LIMIT_VARIABLE}={text} is no number of MiB.")
    return int(text) * _MIB


def packed(variables: Mapping[str, object]) -> variable_file.Packed:
    """Return variables ready to be sent, or refuse the one that cannot travel."""
    variable_names(list(variables), "inputs")
    try:
        return variable_file.pack(variables, limit=limit_bytes())
    except variable_file.Refused as error:
        raise InvalidRequest("cannot-travel", str(error)) from error


def with_inputs(
    caller: Caller, spec: JobSpec, variables: Mapping[str, object]
) -> tuple[JobSpec, SentVariables | None, str]:
    """Return the request with its variables, what was sent, and a sentence about unsuitable nodes."""
    if not variables and not spec.outputs:
        return spec, None, ""
    ready = packed(variables) if variables else None
    spec, note = with_same_python(caller, replace(spec, outputs_limit_bytes=limit_bytes()))
    if ready is None:
        return spec, None, note
    sent = send_values(caller, ready)
    return replace(spec, inputs=sent.digest), sent, note


def send_values(caller: Caller, ready: variable_file.Packed) -> SentVariables:
    """Send the pieces of these variables that the master does not have."""
    pieces = list(ready.pieces(VALUES_PIECE_BYTES))
    with ThreadPoolExecutor(SENDERS, thread_name_prefix="mgpu-send") as senders:
        digests = tuple(senders.map(digest_of, pieces))
        content = encode_folder(Folder((Entry(NAME, "values", 0o600, 0, ready.size, digests),)))
        name = digest_of(content)
        by_digest = dict(zip(digests, pieces, strict=True))
        by_digest[name] = memoryview(content)
        missing, near = missing_of(caller, list(by_digest))
        tray = nearby.tray_of(near)
        batch = AT_ONCE if tray is not None else 1
        batches = [missing[start : start + batch] for start in range(0, len(missing), batch)]
        list(
            senders.map(
                lambda batch: _send_batch(caller, tray, {digest: by_digest[digest] for digest in batch}),
                batches,
            )
        )
    return SentVariables(
        digest=name,
        sizes=ready.sizes,
        sent_bytes=sum(len(by_digest[digest]) for digest in missing if digest != name),
    )


def _send_batch(caller: Caller, tray: str | None, pieces: Mapping[str, memoryview]) -> None:
    """Send pieces: put them where a server of this machine looks, and send the rest over HTTP."""
    left: Sequence[str] = tuple(pieces)
    if tray is not None:
        try:
            if all(nearby.lay(tray, digest, piece) for digest, piece in pieces.items()):
                left, _ = missing_of(caller, left)
        finally:
            for digest in pieces:
                nearby.take_back(tray, digest)
    for digest in left:
        body = pieces[digest]
        caller.call(
            Request(method="POST", path="folders/pieces", headers={"Content-Type": api.RAW}, body=body),
            api.Digests,
        )


# --- the same Python -----------------------------------------------------------------------------------


def with_same_python(caller: Caller, spec: JobSpec) -> tuple[JobSpec, str]:
    """Exclude nodes whose Python has another minor version; refuse the request when none is left."""
    here = spec.kernel_python_version
    question = PythonQuestion(
        python=spec.python, kernel_python=spec.kernel_python, kernel_python_version=here
    )
    told = caller.call(
        Request(method="POST", path="pythons", body=msgspec.json.encode(question)), PythonAnswers
    ).nodes
    named = {*spec.nodelist, *spec.node_gpu_ids}
    told = tuple(one for one in told if one.node not in spec.exclude and (not named or one.node in named))
    others = [one for one in told if one.version != here]
    if not others:
        return spec, ""
    which = ", ".join(f"{one.node} (Python {one.version}, {one.path})" for one in others[:5]) + (
        " and others" if len(others) > 5 else ""
    )
    why = f"This notebook has Python {here}, and what one version pickles another need not be able to read"
    if named or len(others) == len(told):
        raise InvalidRequest(
            "other-python",
            f"{why}: --in and --out do not reach {which}. Name a Python {here} that is there with --python, "
            f"or leave out --in and --out.",
        )
    excluded = tuple(dict.fromkeys((*spec.exclude, *(one.node for one in others))))
    return replace(spec, exclude=excluded), f"{why}: the job keeps off {which}."
