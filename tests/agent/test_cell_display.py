"""What cells display, run as a node runs them: by the runner, with an interpreter that knows nothing of
mgpu.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu_agent.process.cells import RUNNER
from mgpu_jupyter.client.displays import Display, Splitter, without_displays

KEY = "key"


def run(directory: Path, source: str, *, key: str = KEY, code: int = 0) -> tuple[list[str | Display], str]:
    """Return what the cell showed, and its stderr."""
    path = directory / "cell.py"
    path.write_text(source)
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MPLBACKEND", "DISPLAY", "MGPU_DISPLAY_KEY")
    }
    env |= {"MPLCONFIGDIR": str(directory), **({"MGPU_DISPLAY_KEY": key} if key else {})}
    done = subprocess.run(
        [sys.executable, "-u", RUNNER, str(path)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return Splitter().feed(done.stdout, KEY), done.stderr


def kinds(shown: list[str | Display]) -> list[object]:
    return [(one.kind, sorted(one.data)) if isinstance(one, Display) else one for one in shown]


def test_the_last_value_is_shown(tmp_path: Path) -> None:
    assert run(tmp_path, "x = 1\n{'a': x}  # so") == (["{'a': 1}\n"], "")
    assert run(tmp_path, "1 + 1;")[0] == []
    assert run(tmp_path, "print('é'); None\n")[0] == ["é\n"]
    source = (
        "class A:\n    def _repr_html_(self):\n        return '<b>\\x1b</b>'\n    __repr__ = lambda "
        "self: 'A'\nA()"
    )
    assert run(tmp_path, source)[0] == [Display("display", {"text/plain": "A", "text/html": "<b>\x1b</b>"})]
    assert run(tmp_path, "list(range(60))", key="")[0] == ["[" + ",\n ".join(map(str, range(60))) + "]\n"]


def test_values_may_say_how_they_are_shown(tmp_path: Path) -> None:
    source = """
class A:
    def _repr_html_(self):
        return "<b>", {"isolated": True}
    def _repr_mimebundle_(self, **_):
        return {"text/x-own": "own"}, {"text/x-own": {"a": 1}}
    __repr__ = lambda self: "A"
A()"""
    assert run(tmp_path, source)[0] == [
        Display(
            "display",
            {"text/plain": "A", "text/html": "<b>", "text/x-own": "own"},
            {"text/html": {"isolated": True}, "text/x-own": {"a": 1}},
        )
    ]


def test_a_cell_knows_its_file_and_is_the_main_module(tmp_path: Path) -> None:
    assert run(tmp_path, "print(__file__, __name__)")[0] == [f"{tmp_path / 'cell.py'} __main__\n"]


def test_ipythons_display_in_its_place(tmp_path: Path) -> None:
    source = """
from IPython.display import HTML, clear_output, display
print("a", end="")
display(HTML("<b>x</b>"), metadata={"m": 1})
handle = display("one", display_id="here")
handle.update(HTML("<i>two</i>"))
clear_output(wait=True)
display({"text/plain": "raw", "application/json": {"n": [1]}}, raw=True)
print("b")
"""
    assert run(tmp_path, source)[0] == [
        "a",
        Display(
            "display", {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>x</b>"}, {"m": 1}
        ),
        Display("display", {"text/plain": "'one'"}, {}, "here"),
        Display(
            "update",
            {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<i>two</i>"},
            {},
            "here",
        ),
        Display("clear", {}, {"wait": True}),
        Display("display", {"text/plain": "raw", "application/json": {"n": [1]}}),
        "b\n",
    ]


def test_without_a_key_there_is_only_text(tmp_path: Path) -> None:
    shown, _ = run(tmp_path, "from IPython.display import HTML, display\ndisplay(HTML('<b>'))\n5", key="")
    assert "".join(map(str, shown)) == "<IPython.core.display.HTML object>\n5\n"


@pytest.mark.slow
def test_figures(tmp_path: Path) -> None:
    """By show(), at the end of the cell, as a value: each once, without a screen and without IPython."""
    source = """
import sys
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
print("between")
figure, axes = plt.subplots()
axes.plot([2, 1])
print("IPython" in sys.modules, plt.get_fignums())
"""
    run(tmp_path, "import matplotlib.font_manager")  # the first import on a slow machine speaks of its cache
    shown, err = run(tmp_path, source)
    figure = ("display", ["image/png", "text/plain"])
    assert (kinds(shown), err) == ([figure, "between\nFalse [1]\n", figure], "")
    assert isinstance(shown[0], Display)
    assert shown[0].data["image/png"].startswith("iVBORw0KGgo")
    shown, _ = run(tmp_path, "import matplotlib.pyplot as plt\nfigure = plt.figure(); figure.gca(); figure")
    assert kinds(shown) == [figure]
    shown, _ = run(
        tmp_path, "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\nplt.plot([1]);"
    )
    assert shown == []


def test_what_is_too_large_is_said(tmp_path: Path) -> None:
    shown, _ = run(
        tmp_path,
        "class A:\n    __repr__ = lambda self: 'A'\n    def _repr_html_(self):\n        return 'x' * "
        "9_000_000\nA()",
    )
    assert shown == ["A\n[mgpu: 8.6 MiB are too much to show, the limit is 8 MiB: save it to a file]\n"]


def test_a_traceback_shows_the_cell_alone_and_figures_come_first(tmp_path: Path) -> None:
    shown, err = run(
        tmp_path, "import matplotlib.pyplot as plt\nplt.plot([1])\ndef f():\n    1 / 0\nf()", code=1
    )
    assert kinds(shown) == [("display", ["image/png", "text/plain"])]
    assert without_displays(err).splitlines() == [
        "Traceback (most recent call last):",
        "  Cell, line 5, in <module>",
        "    f()",
        "  Cell, line 4, in f",
        "    1 / 0",
        "    ~~^~~",
        "ZeroDivisionError: division by zero",
    ]


def test_what_is_defined_in_a_cell_reaches_other_processes(tmp_path: Path) -> None:
    source = """
import multiprocessing, pickle
def square(x):
    return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, [2, 3]), pickle.loads(pickle.dumps(square))(4))
"""
    assert run(tmp_path, source)[0] == ["[4, 9] 16\n"]


@pytest.mark.parametrize("key", ["", KEY])
def test_a_plain_cell_loads_nothing_of_it(tmp_path: Path, key: str) -> None:
    shown, _ = run(
        tmp_path, "import sys\nprint('json' in sys.modules, '_mgpu_cell_display' in sys.modules)", key=key
    )
    assert shown == ["False False\n"]


def test_terminals_see_the_text(tmp_path: Path) -> None:
    path = tmp_path / "cell.py"
    path.write_text("import matplotlib.pyplot as plt\nprint('a')\nplt.plot([1]);")
    done = subprocess.run(
        [sys.executable, RUNNER, str(path)],
        env={**os.environ, "MGPU_DISPLAY_KEY": "k"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert without_displays(done.stdout) == "a\n<Figure size 640x480 with 1 Axes>\n"
