"""What one user may have the master keep, tried over HTTP as somebody who means harm."""

from __future__ import annotations

import base64

import pytest

from mgpu_agent.protocol.folders import PIECE_BYTES, Entry, Folder, digest_of, encode_folder
from mgpu_agent.protocol.model import STDERR
from mgpu_jupyter.master.keeping import Index
from mgpu_jupyter.master.ports import LogKey
from mgpu_jupyter.store.logs import LogWriter
from tests.builders import a_spec


@pytest.fixture
def mgpu_config():
    return {
        "local_agent": False,
        "folders_cap": 24 * PIECE_BYTES,
        "limits": {"folder_bytes": 8 * PIECE_BYTES, "user_queued_bytes": 20_000},
    }


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
    bomb = encode_folder(
        Folder(tuple(Entry(f"f{n}", size=120 * PIECE_BYTES, pieces=(digest,) * 120) for n in range(1000)))
    )
    small = encode_folder(Folder((Entry("a", size=8 * PIECE_BYTES, pieces=(digest,) * 8),)))
    status, answer = await send(token, piece, bomb, small)
    assert status == 201, answer
    status, answer = await ask("jobs", token, "POST", a_spec(gpus=0, sync=digest_of(bomb)))
    assert (status, answer["code"], answer["message"]) == (
        400,
        "folder-too-large",
        (
            "The folder has 125829120000 bytes when it is laid out, and 8388608 are allowed: leave files "
            "out with .mgpuignore, "
            "or ask an administrator (limits.folder_bytes)."
        ),
    )
    status, answer = await ask("jobs", token, "POST", a_spec(gpus=0, sync=digest_of(small)))
    assert status == 201, answer


async def test_a_list_that_says_less_than_its_pieces_have_is_not_admitted(app, ask, add, send):
    token = await add("mallory")
    piece = b"x" * PIECE_BYTES
    lies = encode_folder(
        Folder(
            (Entry("a", size=1, pieces=(digest_of(piece),)), Entry("b", size=2, pieces=(digest_of(piece),)))
        )
    )
    below = encode_folder(
        Folder((Entry("a", size=PIECE_BYTES, pieces=(digest_of(piece),)), Entry("b", size=-PIECE_BYTES + 1)))
    )
    await send(token, piece, lies, below)
    for name, file in ((lies, "a"), (below, "b")):
        status, answer = await ask("jobs", token, "POST", a_spec(gpus=0, sync=digest_of(name)))
        assert (status, answer["message"]) == (
            400,
            f"'{file}' has other content than its size says: send the folder again.",
        )


async def test_one_user_cannot_fill_the_cap_of_folders_for_all(app, ask, add, send):
    mallory, ann = await add("mallory"), await add("ann")
    answers = [await send(mallory, bytes([number]) * PIECE_BYTES) for number in range(13)]
    assert [status for status, _ in answers] == [201] * 12 + [429]
    assert (answers[-1][1]["code"], answers[-1][1]["message"].partition(":")[0]) == (
        "share-used",
        "You have 12582912 bytes of folders here, and 12582912 are your share",
    )
    assert (await send(ann, b"mine"))[0] == 201


async def test_requests_that_wait_have_a_bound_for_each_user(app, ask, add):
    mallory, ann = await add("mallory"), await add("ann")
    long = a_spec(gpus=0, env={"A": "x" * 9_000}, hold=True)
    answers = [await ask("jobs", mallory, "POST", long) for _ in range(3)]
    assert [status for status, _ in answers] == [201, 201, 429]
    assert answers[-1][1]["message"].startswith(
        "Your requests that wait may have 20000 bytes together and have 18"
    )
    bulk = {"jobs": [{"spec": long, "key": None}] * 3}
    status, answer = await ask("jobs/bulk", ann, "POST", bulk)
    assert (status, answer["details"]["index"]) == (429, 2)
    assert (await ask("jobs", ann, "POST", long))[0] == 201
    await ask(f"jobs/{answers[0][1]['job_id']}/cancel", mallory, "POST", {})
    assert (await ask("jobs", mallory, "POST", long))[0] == 201


async def test_what_is_purged_is_given_back(app, ask, add):
    ann = await add("ann")
    _, made = await ask("jobs", ann, "POST", a_spec(gpus=0))
    job_id = made["job_id"]
    await ask(f"jobs/{job_id}/cancel", ann, "POST", {})
    service = app.service
    writer = LogWriter(service.log_root, shares=service.output_shares, owner=lambda _: "ann")
    writer.append(LogKey(job_id, 1, 0), STDERR, 0, b"x" * 500)
    writer.close()
    place = service.results.make_directory(job_id, 1, "n1")
    (place / "0").write_bytes(b"y" * 300)
    service.results.finish(job_id, 1, Index(node_id="n1"))
    service.results_shares.add("ann", 300)
    assert (service.output_shares.used("ann"), service.results_shares.used("ann")) == (524, 300)

    status, answer = await ask("jobs/purge", ann, "POST", {"older_than_s": 0})
    assert (status, answer["jobs"]) == (200, 1)
    assert (service.output_shares.used("ann"), service.results_shares.used("ann")) == (0, 0)
