"""Runs the source of a Python cell as `python SOURCE` would: `python runner.py [--values DIRECTORY [--version
PYTHON] [--out NAMES] [--limit BYTES]] SOURCE`.

The source is `__main__`, so what it defines can be pickled and found by child processes, whichever way those
start. A traceback shows frames of the cell and of what it called, never of this file. What cells get beyond
that is loaded from beside this file or from `../protocol`, only where it is wanted: the start of a cell must
cost no more than that of a script.
"""

from __future__ import annotations

import _ast
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PID = os.getpid()
SHARED = os.path.join(os.path.dirname(HERE), "protocol")


def load(name: str, place: str = HERE) -> ModuleType:
    """Return the module of this name in this directory; no cell can import it by accident."""
    full_name = "_mgpu_cell_" + name
    if full_name not in sys.modules:
        path = os.path.join(place, name + ".py")
        module: Any = type(sys)(full_name)
        module.__file__ = path
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - this is what it is for
        sys.modules[full_name] = module
    return sys.modules[full_name]


def main() -> None:
    """Give the cell its variables, run it, save the variables that it returns."""
    *words, path = sys.argv[1:]
    wish = dict(zip(words[::2], words[1::2]))  # noqa: B905 - `strict` is newer than 3.8
    sys.argv[:] = [path]
    if sys.path and os.path.abspath(sys.path[0]) == HERE:
        sys.path[0] = os.path.dirname(path)
    module = make_main(path)
    if any(name.startswith("SWEEP_") for name in os.environ):
        load("sweep").give(module)
    exchange = (
        load("exchange").Exchange(wish, module.__dict__, load("variable_file", SHARED)) if wish else None
    )
    if exchange is not None:
        exchange.bring()
    if os.environ.get("MGPU_DISPLAY_KEY"):
        load("hook").prepare(lambda: load("display"))
    try:
        run(path, module)
    finally:
        if "_mgpu_cell_display" in sys.modules:
            load("display").finish()
    if exchange is not None:
        exchange.leave()


def make_main(path: str) -> Any:
    """Put a fresh `__main__` in place of this file's module, which stays alive under another name."""
    sys.modules["_mgpu_cell_runner"] = sys.modules["__main__"]
    module: Any = type(sys)("__main__")
    module.__file__ = path
    module.__builtins__ = __builtins__
    module.__annotations__ = {}
    module.__cached__ = None
    sys.modules["__main__"] = module
    return module


def run(path: str, module: ModuleType) -> None:
    """Run the source; an error leaves as the interpreter has it, which decides the exit code."""
    try:
        with open(path, "rb") as file:
            code, last = parts(file.read(), path)
        exec(code, module.__dict__)  # noqa: S102 - this is what it is for
        value = None if last is None else eval(last, module.__dict__)  # noqa: S307 - so is this
        if value is not None:
            load("display").show_value(value)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    except BaseException:
        show = sys.excepthook
        sys.excepthook = lambda _kind, error, trace: report(path, show, error, own_frames(error, trace))
        raise


def parts(source: bytes, path: str) -> tuple[Any, Any]:
    """Return the code of a cell and of its last expression, which is shown as in a notebook unless `;`
    follows it.
    """
    tree: Any = compile(source, path, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body[-1] if tree.body else None
    code = None
    if isinstance(last, _ast.Expr):
        lines = source.split(b"\n")
        rest = lines[min(last.end_lineno or 1, len(lines)) - 1][last.end_col_offset :].strip()
        if not rest.startswith(b";"):
            del tree.body[-1]
            code = compile(_ast.Expression(last.value), path, "eval", dont_inherit=True)
    return compile(tree, path, "exec", dont_inherit=True), code


def report(path: str, show: Any, error: BaseException, trace: TracebackType | None) -> None:
    """Tell a notebook what ends the cell, so that it can draw it; anybody else gets what the interpreter, or
    the cell's own hook, prints.
    """
    # A process that dies of an interrupt says so by its exit code only if nothing else is executed here.
    is_plain = show is not sys.__excepthook__ or os.getpid() != PID or isinstance(error, KeyboardInterrupt)
    if is_plain or not (os.environ.get("MGPU_DISPLAY_KEY") or "_mgpu_cell_display" in sys.modules):
        show(type(error), error, trace)
        return
    try:
        display = load("display")
        display.publish_error(load("uncaught").bundle_of(error, trace, path, display.CELL))
    except Exception:  # noqa: BLE001 - what cannot be told well is still told
        show(type(error), error, trace)


def own_frames(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this file at its start."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace  # from 3.11 on the traceback shown is this one
    return trace


if __name__ == "__main__":
    main()
