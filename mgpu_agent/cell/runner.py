"""Runs the source of a Python cell as `python SOURCE` would: `python runner.py [--values DIRECTORY [--out NAMES] [--limit BYTES]] SOURCE`.

The source is `__main__`, so what it defines can be pickled and found by child processes, whichever way those start. A traceback
shows frames of the cell and of what it called, never of this file. What cells get beyond that is loaded from beside this file,
only where it is wanted: the start of a cell must cost no more than that of a script.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def load(name: str) -> ModuleType:
    """Return the module of this name that lies beside this file; it is no module that a cell could import by accident."""
    full_name = "_mgpu_cell_" + name
    if full_name not in sys.modules:
        path = os.path.join(HERE, name + ".py")
        module: Any = type(sys)(full_name)
        module.__file__ = path
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - this is what it is for
        sys.modules[full_name] = module
    return sys.modules[full_name]


def main() -> None:
    """Give the cell what it gets, run it, bring back what is asked for."""
    *words, path = sys.argv[1:]
    wish = dict(zip(words[::2], words[1::2]))  # noqa: B905 - `strict` is newer than 3.8
    sys.argv[:] = [path]
    if sys.path and os.path.abspath(sys.path[0]) == HERE:
        sys.path[0] = os.path.dirname(path)
    module = make_main(path)
    if any(name.startswith("SWEEP_") for name in os.environ):
        load("sweep").give(module)
    exchange = load("exchange").Exchange(wish, module.__dict__, load("values")) if wish else None
    if exchange is not None:
        exchange.bring()
    run(path, module)
    if exchange is not None:
        exchange.leave()


def make_main(path: str) -> Any:
    """Put a fresh `__main__` in the place of this file, which stays alive under another name."""
    sys.modules["_mgpu_cell_runner"] = sys.modules["__main__"]
    module: Any = type(sys)("__main__")
    module.__file__ = path
    module.__builtins__ = __builtins__
    module.__annotations__ = {}
    module.__cached__ = None
    sys.modules["__main__"] = module
    return module


def run(path: str, module: ModuleType) -> None:
    """Run the source; an error leaves by the interpreter's own way, which knows what each means for the exit code."""
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - this is what it is for
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    except BaseException:
        show = sys.excepthook
        sys.excepthook = lambda kind, error, trace: show(kind, error, own_frames(error, trace))
        raise


def own_frames(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this file at its start."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace  # from 3.11 on what is shown is taken from here
    return trace


if __name__ == "__main__":
    main()
