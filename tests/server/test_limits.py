"""What one user may have the master keep, tried over HTTP as somebody who means harm."""

from __future__ import annotations

import base64

import pytest

from mgpu_agent.protocol.folders import PIECE_BYTES, Entry, Folder, digest_of, encode_folder
from tests.builders import a_spec


@pytest.fixture
def mgpu_config():
    return {"local_agent": False, "limits": {"folder_bytes": 8 * PIECE_BYTES}}


@pytest.fixture
def send(ask):
    async def send(token, *pieces):
        body = {"pieces": [base64.b64encode(piece).decode() for piece in pieces]}
        return await ask("folders/pieces", token, "POST", body)

    return send


async def test_one_piece_that_is_named_many_times_is_not_admitted(app, ask, add, send):
    token = await add("mallory")
    piece = b"x" * PIECE_BYTES
    digest = digest_of(piece)
    bomb = encode_folder(Folder(tuple(Entry(f"f{n}", size=120 * PIECE_BYTES, pieces=(digest,) * 120) for n in range(1000))))
    small = encode_folder(Folder((Entry("a", size=8 * PIECE_BYTES, pieces=(digest,) * 8),)))
    status, answer = await send(token, piece, bomb, small)
    assert status == 201, answer
    status, answer = await ask("jobs", token, "POST", a_spec(gpus=0, sync=digest_of(bomb)))
    assert (status, answer["code"], answer["message"]) == (
        400,
        "folder-too-large",
        (
            "The folder has 125829120000 bytes when it is laid out, and 8388608 are allowed: leave files out with .mgpuignore, "
            "or ask an administrator (limits.folder_bytes)."
        ),
    )
    status, answer = await ask("jobs", token, "POST", a_spec(gpus=0, sync=digest_of(small)))
    assert status == 201, answer


async def test_a_list_that_says_less_than_its_pieces_have_is_not_admitted(app, ask, add, send):
    token = await add("mallory")
    piece = b"x" * PIECE_BYTES
    lies = encode_folder(Folder((Entry("a", size=1, pieces=(digest_of(piece),)), Entry("b", size=2, pieces=(digest_of(piece),)))))
    below = encode_folder(Folder((Entry("a", size=PIECE_BYTES, pieces=(digest_of(piece),)), Entry("b", size=-PIECE_BYTES + 1))))
    await send(token, piece, lies, below)
    for name, file in ((lies, "a"), (below, "b")):
        status, answer = await ask("jobs", token, "POST", a_spec(gpus=0, sync=digest_of(name)))
        assert (status, answer["message"]) == (400, f"'{file}' has other content than its size says: send the folder again.")
