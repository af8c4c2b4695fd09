"""Variables as a file: what goes in comes out, arrays are the mapped memory, and what cannot travel is
named.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mgpu_agent.process.cells import RUNNER
from mgpu_agent.protocol import variable_file as values
from mgpu_agent.protocol import wording


def there_and_back(path: Path, **variables: object) -> values.Unpacked:
    values.pack(variables).write(str(path))
    return values.unpack(str(path))


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    sent = {
        "array": np.arange(100_000.0).reshape(100, 1000),
        "column": np.asfortranarray(np.arange(12).reshape(3, 4)),
        "strided": np.arange(100)[::7],
        "empty": np.zeros((0, 3)),
        "nested": {"a": [1, "zwei", None, np.float32(3)], "b": b"x" * 1000},
        "stream": io.BytesIO(b"abc"),
    }
    came = there_and_back(tmp_path / "v", **sent)
    for name in ("array", "column", "strided", "empty"):
        value = came.value(name)
        assert np.array_equal(value, sent[name])  # type: ignore[arg-type]
        assert value.flags.writeable  # type: ignore[attr-defined]
    assert came.value("nested") == sent["nested"]
    assert came.value("stream").getvalue() == b"abc"  # type: ignore[attr-defined]
    assert (came.python, came.problems) == (values.PYTHON, {})
    assert list(came.sizes) == list(sent)


def test_an_array_is_the_mapped_memory_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    came = there_and_back(tmp_path / "v", a=np.zeros(1000))
    array = came.value("a")
    array[0] = 7  # type: ignore[index]
    assert array.base is not None  # type: ignore[attr-defined]
    assert values.unpack(str(tmp_path / "v")).value("a")[0] == 0  # type: ignore[index]
    assert (tmp_path / "v").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("size", [1, 63, 64, 1000, 4096, 10**6])
def test_pieces_are_the_file(tmp_path: Path, size: int) -> None:
    packed = values.pack({"a": np.arange(3000), "b": b"x" * 5000, "c": np.zeros(7, "u1")})
    digest = packed.write(str(tmp_path / "v"))
    pieces = list(packed.pieces(size))
    whole = (tmp_path / "v").read_bytes()
    assert b"".join(pieces) == whole
    assert len(whole) == packed.size
    assert {len(piece) for piece in pieces[:-1]} <= {size}
    import hashlib

    assert digest == hashlib.sha256(whole).hexdigest()


def _generator():  # type: ignore[no-untyped-def]
    yield 1


class Circle:
    def __reduce__(self) -> object:
        raise ValueError("not me")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            io.TextIOWrapper(io.FileIO(os.devnull)),
            "`v` is or holds an open file (/dev/null): send its path or its content instead.",
        ),
        ([{"x": threading.Lock()}], "`v` is or holds a lock, which belongs to this process"),
        (_generator(), "`v` is or holds a generator, which is a computation under way"),
        (sys, "`v` is or holds the module sys: import it in the cell instead."),
        (Circle(), "cannot be pickled: not me. Send the plain data"),
        (bytes(2000), "`v` has 2 KiB, and 1 KiB may travel in all"),
    ],
)
def test_what_cannot_travel_is_named(value: object, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)  # it knows how to send modules
    with pytest.raises(values.Refused) as refused:
        values.pack({"v": value}, limit=1024)
    assert sentence in str(refused.value)
    problems: dict[str, str] = {}
    packed = values.pack({"v": value, "w": 1}, problems, limit=1024)
    assert (list(packed.sizes), list(packed.problems)) == (["w"], ["v"])


@pytest.mark.parametrize("has_cloudpickle", [True, False])
def test_what_refers_to_itself_for_ever_is_refused(
    monkeypatch: pytest.MonkeyPatch, *, has_cloudpickle: bool
) -> None:
    if not has_cloudpickle:
        monkeypatch.setitem(sys.modules, "cloudpickle", None)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(values.Refused, match="too deeply"):
        values.pack({"v": deep})


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(b"something else that is long enough")
    with pytest.raises(values.Refused, match="no file of variables"):
        values.unpack(str(tmp_path / "v"))


def run(
    directory: Path, source: str, *out: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    cell = directory / "cell.py"
    cell.write_text(source)
    words = [sys.executable, RUNNER, "--values", str(directory), *out, str(cell)]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(env or {})}
    )


def test_a_cell_finds_its_variables_and_leaves_others(tmp_path: Path) -> None:
    values.pack({"a": np.arange(5.0)}).write(str(tmp_path / "in"))
    done = run(
        tmp_path,
        "b = a + 1\ndef f(): return b\nimport sys; sys.exit(0)",
        "--out",
        "b,f,c",
        "--limit",
        "0",
        env={"MGPU_RANK": "3"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    about = json.loads((tmp_path / "out.3.json").read_text())
    assert about["size"] == (tmp_path / "out.3").stat().st_size
    left = values.unpack(str(tmp_path / "out.3"))
    assert np.array_equal(left.value("b"), np.arange(5.0) + 1)  # type: ignore[arg-type]
    assert left.problems["c"] == "`c` was never set by the cell."
    if importlib.util.find_spec("cloudpickle") is None:
        assert left.problems["f"].startswith(
            "`f` needs the function f, which only this cell knows: install cloudpickle"
        )


@pytest.mark.parametrize(
    "source", ["b = 1\n1 / 0", "b = 1\nimport sys; sys.exit(2)", "b = 1\nimport os; os._exit(0)"]
)
def test_a_cell_that_fails_leaves_nothing(tmp_path: Path, source: str) -> None:
    run(tmp_path, source, "--out", "b")
    assert not list(tmp_path.glob("out.*"))


def test_a_child_that_a_cell_forked_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    done = run(
        tmp_path, "import os\nb = 1\nif os.fork() == 0:\n    b = 2\nelse:\n    os.wait()", "--out", "b"
    )
    assert done.returncode == 0
    assert values.unpack(str(tmp_path / "out.0")).value("b") == 1


def test_variables_of_another_python_or_of_unknown_classes_end_the_cell_with_a_sentence(
    tmp_path: Path,
) -> None:
    values.pack({"a": 1}).write(str(tmp_path / "in"))
    (tmp_path / "in").write_bytes(
        (tmp_path / "in").read_bytes().replace(values.PYTHON.encode(), b"2.77"[: len(values.PYTHON)])
    )
    done = run(tmp_path, "print(a)")
    assert done.returncode == 1
    assert done.stderr.startswith("mgpu: the variables come from Python 2.77, and this is")
    (tmp_path / "lonely.py").write_text("class Lonely: pass")
    maker = (
        "import sys; sys.path[:0] = sys.argv[1:3]\nimport lonely\nfrom mgpu_agent.protocol.variable_file "
        "import pack\n"
        "pack({'a': lonely.Lonely()}).write(sys.argv[3])"
    )
    root = str(Path(RUNNER).parents[2])
    subprocess.run([sys.executable, "-c", maker, root, str(tmp_path), str(tmp_path / "in")], check=True)
    (tmp_path / "lonely.py").unlink()
    done = run(tmp_path, "print(a)")
    assert done.returncode == 1
    assert "mgpu: `a` cannot be made here (ModuleNotFoundError: No module named 'lonely')" in done.stderr


class Tensor:
    """As much of torch's as is looked at."""

    def __init__(self, device: str = "cpu", *, array: object = None, grad: bool = False) -> None:
        self.device, self.layout, self.requires_grad = types.SimpleNamespace(type=device), "strided", grad
        self._array = array

    def __reduce__(self) -> tuple[object, ...]:
        return str, ("as pickle does it",)

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def numpy(self) -> object:
        if self._array is None:
            raise TypeError("a kind that numpy does not know")
        return self._array


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for torch, which this environment does not have; with the real one: test_kinds_of_values.py."""
    monkeypatch.setitem(
        sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor, strided="strided", from_numpy=list)
    )


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("tensor", "came"),
    [
        (Tensor(array=[1, 2]), [1, 2]),
        (Tensor(array=[1, 2], grad=True), "as pickle does it"),
        (Tensor(), "as pickle does it"),
    ],
    ids=["plain", "with a gradient", "of a kind that numpy does not know"],
)
def test_a_plain_tensor_travels_as_an_array(tensor: Tensor, came: object, tmp_path: Path) -> None:
    assert there_and_back(tmp_path / "v", v=tensor).value("v") == came


@pytest.mark.usefixtures("torch")
def test_a_tensor_on_a_gpu_is_refused() -> None:
    with pytest.raises(values.Refused, match=r"`v` is or holds a tensor on .*: send x.cpu\(\) instead\."):
        values.pack({"v": [Tensor("cuda")]})


def test_without_cloudpickle_what_only_the_notebook_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.setattr(Tensor, "__module__", "__main__")
    with pytest.raises(values.Refused) as error:
        values.pack({"v": Tensor})
    assert str(error.value) == (
        "`v` needs the class Tensor, which only this notebook knows: install cloudpickle here and on the "
        "other side, or send plain data."
    )


def test_in_a_cell_sizes_are_worded_by_what_lies_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell has no mgpu to import: its runner loads the file."""
    asked: list[tuple[str, str]] = []

    def load(name: str, place: str) -> object:
        asked.append((name, place))
        return wording

    runner = SimpleNamespace(load=load, SHARED="there")
    monkeypatch.setitem(sys.modules, "_mgpu_cell_runner", runner)  # type: ignore[arg-type]
    with pytest.raises(values.Refused, match="`v` has 2 KiB, and 1 KiB may travel"):
        values.pack({"v": bytes(2000)}, limit=1024)
    assert asked == [("wording", "there")] * 2
