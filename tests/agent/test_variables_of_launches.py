"""Variables of a launch: fetched piece by piece, put in place whole, refused when they are not as listed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.protocol.folders import VALUES_PIECE_BYTES, Entry, Folder, digest_of, encode_folder
from mgpu_agent.protocol.messages import FetchPieces, Piece
from tests.agent.test_files_of_launches import FilesOfNode, a_spec

SAME, LAST = b"s" * VALUES_PIECE_BYTES, b"last"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FilesOfNode]:
    node = FilesOfNode(tmp_path / "node", None, as_users=False)
    yield node
    node.close()


def listed(node: FilesOfNode, *content: bytes, size: int | None = None) -> str:
    """Have the master hold variables of this content, or of another size; return the digest of their list."""
    for data in content:
        node.pieces[digest_of(data)] = data
    whole = sum(map(len, content)) if size is None else size
    pieces = tuple(digest_of(data) for data in content)
    data = encode_folder(Folder((Entry("values", kind="values", size=whole, pieces=pieces),)))
    node.pieces[digest_of(data)] = data
    return digest_of(data)


def test_variables_are_asked_for_at_once_and_each_piece_comes_to_all_its_places(node: FilesOfNode) -> None:
    spec = a_spec(argv=(), script="c = a", inputs=listed(node, SAME, SAME, LAST))
    node.want(spec)
    assert node.sent == [FetchPieces(key=spec.key, digests=(spec.inputs,))], "the list comes first"
    node.until(lambda: node.ready or node.failed, "it is there")
    assert ([one.spec for one in node.ready], node.failed) == ([spec], [])
    (file,) = (path for path in node.spool.values_of(spec.key).iterdir() if path.is_file())
    assert file.read_bytes() == SAME + SAME + LAST


@pytest.mark.parametrize("size", [2 * VALUES_PIECE_BYTES - 1, VALUES_PIECE_BYTES + 1])
def test_a_piece_that_fits_only_one_of_its_places_is_refused(node: FilesOfNode, size: int) -> None:
    spec = a_spec(argv=(), script="c = a", inputs=listed(node, SAME, SAME, size=size))
    node.want(spec)
    node.until(lambda: node.ready or node.failed, "it is refused")
    assert (node.ready, [failed.message for failed in node.failed]) == (
        [],
        ["The job's variables could not be put in place: they have other content than their size says."],
    )


def test_what_the_master_does_not_have_is_said(node: FilesOfNode) -> None:
    spec = a_spec(argv=(), script="c = a", inputs=listed(node, LAST))
    del node.pieces[digest_of(LAST)]
    node.want(spec)
    node.until(lambda: node.failed, "it is refused")
    assert [failed.message for failed in node.failed] == [
        "The master does not have all of the job's variables (any more): run the cell again."
    ]


def test_a_piece_of_other_content_is_refused(node: FilesOfNode) -> None:
    spec = a_spec(argv=(), script="c = a", inputs=listed(node, LAST))
    node.pieces[digest_of(LAST)] = b"LAST"
    node.want(spec)
    node.until(lambda: node.failed, "it is refused")
    digest = digest_of(LAST)[:12]
    assert [failed.message for failed in node.failed] == [
        f"The job's variables could not be put in place: piece {digest} arrived with other content."
    ]


def test_a_launch_that_is_given_up_wants_nothing_more(node: FilesOfNode) -> None:
    spec = a_spec(argv=(), script="c = a", inputs=listed(node, LAST))
    node.want(spec)
    node.files.forget([spec.key])
    node.sent.clear()
    node.files.take(Piece(digest=spec.inputs, data=memoryview(node.pieces[spec.inputs])))
    node.turn()
    assert (node.sent, node.ready, node.failed) == ([], [], [])
