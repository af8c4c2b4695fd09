"""Kinds of values that travel: data frames, tensors, functions and classes of a notebook, arrays deep inside
of other things.

Each is packed by one process and made anew by another, which knows nothing of the first. What is not
installed is skipped, and said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu_agent.process.cells import RUNNER

ROOT = Path(__file__).parents[2]
VALUES = Path(RUNNER).parents[1] / "protocol" / "variable_file.py"
LIMIT_S = 100
SEND = """
import importlib.util, sys
if "without" in sys.argv: sys.modules["cloudpickle"] = None
spec = importlib.util.spec_from_file_location("values", {values!r})
values = importlib.util.module_from_spec(spec); spec.loader.exec_module(values)
{source}
try:
    packed = values.pack({{"v": v}})
except values.Refused as error:
    print(error)
else:
    packed.write(sys.argv[1])
    print(sum(len(part) >= 4000 for _, part in packed.parts), "apart")
"""


def needs(*modules: str) -> str:
    """Return the interpreter of the tests, if these are installed there."""
    for module in modules:
        pytest.importorskip(module, reason=f"{module} is not installed in .venv: pip install {module}")
    return sys.executable


def needs_torch() -> str:
    """Return the interpreter with which tests train, if torch is there."""
    python = ROOT / ".venv-torch" / "bin" / "python"
    if (
        not python.exists()
        or subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode
    ):
        pytest.skip("torch is not in .venv-torch: make setup-torch")
    return str(python)


def run(*words: str | os.PathLike[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def send(python: str, place: Path, source: str, *words: str) -> str:
    """Pack `v` of this source into the file that a cell finds; return what was said."""
    return run(python, "-c", SEND.format(values=str(VALUES), source=source), place / "in", *words).strip()


def cell(python: str, place: Path, source: str) -> str:
    """Run a cell that is given `v`; return what it prints."""
    (place / "cell.py").write_text(source)
    return run(python, RUNNER, "--values", place, place / "cell.py").strip()


def test_a_data_frame_travels_with_its_columns_apart(tmp_path: Path) -> None:
    python = needs("pandas", "numpy")
    frame = (
        "import pandas as pd, numpy as np\n"
        "v = pd.DataFrame({'a': np.arange(5000.0), 'b': [f's{n}' for n in range(5000)], 'c': "
        "pd.Categorical(['x', 'y'] * 2500),"
        " 'd': pd.date_range('2026-01-01', periods=5000, freq='h', tz='UTC')}, index=pd.Index(range(5000), "
        "name='row'))\n"
    )
    assert int(send(python, tmp_path, frame).split()[0]) >= 2
    check = (
        frame.replace("v = ", "w = ")
        + "pd.testing.assert_frame_equal(v, w)\nv.loc[0, 'a'] = 7.0\nprint(v.a[0], v.c.dtype, v.index.name)"
    )
    assert cell(python, tmp_path, check) == "7.0 category row"


def test_a_tensor_travels_as_its_memory(tmp_path: Path) -> None:
    python = needs_torch()
    made = (
        "import torch\nv = {'t': torch.arange(4000.0).reshape(40, 100), 'half': torch.ones(9, "
        "dtype=torch.bfloat16)}\n"
    )
    made += "v['grad'] = torch.ones(3, requires_grad=True)\n"
    assert send(python, tmp_path, made) == "1 apart"
    check = (
        made.replace("v[", "w[").replace("v = ", "w = ")
        + "print(all(torch.equal(v[k], w[k]) for k in w), v['grad'].requires_grad)"
    )
    assert cell(python, tmp_path, check) == "True True"


CODE = """
import numpy as np
scale = 3
class Net:
    def __init__(self, weights): self.weights = weights
    def __call__(self, x): return (self.weights * x).sum() * scale
def make(n): return Net(np.ones(n))
v = [make, make(2000), lambda x: x + scale]
"""


def test_functions_and_objects_of_classes_of_the_notebook_travel_by_value(tmp_path: Path) -> None:
    python = needs("cloudpickle", "numpy")
    assert send(python, tmp_path, CODE) == "1 apart"
    assert (
        cell(python, tmp_path, "make, net, add = v\nprint(make(4)(2), net(1), add(1), type(net).__name__)")
        == "24.0 6000.0 4 Net"
    )


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (CODE + "v = make", "function make"),
        (CODE + "v = {'deep': [make(1)]}", "class Net"),
        ("v = lambda: 1", "function <lambda>"),
    ],
)
def test_without_cloudpickle_they_are_refused_by_name(tmp_path: Path, source: str, what: str) -> None:
    python = needs("numpy")
    told = send(python, tmp_path, source, "without")
    assert (
        told == f"`v` needs the {what}, which only this notebook knows: install cloudpickle here and on the "
        f"other side, or send plain data."
    )


def test_arrays_deep_inside_are_apart_and_shared_ones_stay_one(tmp_path: Path) -> None:
    python = needs("numpy")
    made = (
        "import numpy as np, decimal, datetime, pathlib\n"
        "a = np.arange(2000.0)\n"
        "v = {'list': [a, {'tuple': (np.ones((30, 40)), a)}], 'set': {1, 2}, 'when': datetime.date(2026, "
        "11, 17),"
        " 'exact': decimal.Decimal('0.1'), 'path': pathlib.PurePosixPath('/x'), 'big': 2**200, 'objects': "
        "np.array([{'k': 1}, None])}\n"
    )
    assert send(python, tmp_path, made) == "2 apart"
    check = made.replace("v = ", "w = ") + (
        "print(np.array_equal(v['list'][1]['tuple'][0], w['list'][1]['tuple'][0]), v['list'][0] is "
        "v['list'][1]['tuple'][1],"
        " all(v[k] == w[k] for k in ('set', 'when', 'exact', 'path', 'big')), v['objects'][0])"
    )
    assert cell(python, tmp_path, check) == "True True True {'k': 1}"
