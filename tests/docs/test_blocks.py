"""Every code block of the documents shows what the programs take."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from tests.docs.blocks import ROOT, Block, blocks, check, commands, documents

PAGES = documents()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_is_what_the_programs_take(path: object) -> None:
    for block in blocks(path):  # type: ignore[arg-type]
        try:
            check(block)
        except (Exception, SystemExit) as error:
            pytest.fail(f"{block.place}: {type(error).__name__}: {error}\n{block.text}")


def test_there_are_blocks_of_all_kinds() -> None:
    kinds = {block.language for path in PAGES for block in blocks(path)}
    assert {"console", "python", "bash", "yaml", "json", "text"} <= kinds


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("console", "$ mgpu_srun --gpuss 1 -- true\n"),
        ("console", "$ mgpu qeue\n"),
        ("console", "$ mgpu trace --verfy R4T8W2ZB\n"),
        ("console", "$ mgpu_master -- --MgpuApp.leese=3\n"),
        ("console", "$ make tset\n"),
        ("console", "$ pip install mgpu-jupyter[lap]\n"),
        ("console", "$ mgpu_node --fake-gpu 2\n"),
        ("console", "$ rm -r /\n"),
        ("console", "nothing is typed\n"),
        ("python", "%%mgpu_srun --gpu 1\nprint(1)\n"),
        ("python", "%%mgpu_srun\nprint(1\n"),
        ("python", "%mgpu_quue\n"),
        ("python", "c.MgpuApp.leese = 3\n"),
        ("yaml", "clusters: {}\n"),
        ("bash", "#!/bin/bash\n#MGPU --gpuss 1\ntrue\n"),
        ("json", "{1}\n"),
        ("perl", "1;\n"),
    ],
)
def test_a_wrong_block_is_found(language: str, text: str) -> None:
    with pytest.raises((InvalidRequest, AssertionError, KeyError, SyntaxError, ValueError, SystemExit)):
        check(Block("here", language, text))


def test_only_what_is_typed_is_a_command() -> None:
    block = Block("here", "console", "$ mgpu nodes\nn1: online\ngpu1# mgpu_node --run-as-user\n")
    assert commands(block) == ["mgpu nodes", "mgpu_node --run-as-user"]
