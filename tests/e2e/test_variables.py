"""Variables of a notebook go to a cell and come back: arrays, ranks, background, what is refused, and what crashes do not cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mgpu_agent.protocol.errors import Conflict, InvalidRequest, MgpuError, NotFound
from mgpu_jupyter.client.inputs import packed, send_values
from mgpu_jupyter.model.job import JobState
from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook

pytestmark = pytest.mark.timeout(180)

THERE_AND_BACK = """%%mgpu_srun --gpus 1 --in a,words --out b,told
assert a.flags.writeable
a[0] = 7
b = a * 2
told = {"words": words, "python": __import__("sys").version_info[:2]}
"""


def test_an_array_goes_there_and_comes_back_equal(notebook: Notebook) -> None:
    notebook.run("import numpy as np; a = np.arange(1_000_000.0); words = ['x', {'y': 1}]")
    ran = notebook.run(THERE_AND_BACK)
    assert ran.error is None, ran
    assert "in: a 8.0 MB, words" in ran.shown() + ran.text()
    assert "out: b 8.0 MB, told" in ran.shown() + ran.text()
    checked = notebook.run("print(a[0], b[0], bool((b[1:] == a[1:] * 2).all()), b.flags.writeable, told['words'] == words)")
    assert (checked.error, checked.text()) == (None, "0.0 14.0 True True True\n")
