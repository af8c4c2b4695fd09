"""Displays of a cell: written to its output as text that every reader sees, inside a sequence that a
notebook can show richly.

    ESC _ mgpu;KEY;JSON ESC \\  text/plain  ESC _ mgpu;KEY; ESC \\

Terminals leave such sequences out. JSON has the kind (`display`, `update`, `clear` or `error`), the bundle by
MIME type, and the display id; an `error`, which goes to stderr, is what ended the cell (`uncaught.py`). KEY
is the attempt's own, so that text which a job only passes on is never taken for a display; it begins with the
number of the notebook's cell (`8-…`). Without a key there is only the text. Runs with the interpreter of the
job: standard library only, IPython and Matplotlib where the cell brings them itself.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

MAX_BYTES = 8 * 1024 * 1024
"""The largest size of one display; notebooks and browsers choke on more."""
BACKEND = "module://mgpu_figures"
METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
    ("application/pdf", "_repr_pdf_"),
)
KEY = os.environ.pop("MGPU_DISPLAY_KEY", "")
CELL = KEY.partition("-")[0] if "-" in KEY else ""
_formatter: Any = None


# --- output ---------------------------------------------------------------------------------------------


def publish(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    *,
    kind: str = "display",
    display_id: str = "",
    descriptor: int = 1,
) -> None:
    """Write one bundle to the output: its text, wrapped in what a notebook needs."""
    text = str(data.get("text/plain", ""))
    line = text if not text or text.endswith("\n") else text + "\n"
    if not KEY or (kind == "display" and not display_id and set(data) <= {"text/plain"}):
        _write(line, descriptor)
        return
    message = {"kind": kind, "data": _as_json(data), "metadata": metadata or {}, "id": display_id}
    try:
        body = json.dumps(
            message
        )  # ASCII: control characters are escaped, so nothing in it ends the sequence
    except (TypeError, ValueError):
        _write(line, descriptor)
        return
    if len(body) > MAX_BYTES:
        _write(
            f"{line}[mgpu: {_size(len(body))} are too much to show, the limit is {_size(MAX_BYTES)}: save it "
            f"to a file]\n",
            descriptor,
        )
        return
    _write(f"\x1b_mgpu;{KEY};{body}\x1b\\{line}\x1b_mgpu;{KEY};\x1b\\", descriptor)


def publish_error(data: dict[str, Any]) -> None:
    """Write what ended the cell to where errors are written."""
    publish(data, kind="error", descriptor=2)


def _write(text: str, descriptor: int) -> None:
    # In one piece and straight to the descriptor: what other threads and children print stays out of it.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue
    left = memoryview(text.encode("utf-8", "replace"))
    while left:
        left = left[os.write(descriptor, left) :]


def _size(number: int) -> str:
    runner: Any = sys.modules["_mgpu_cell_runner"]
    return str(runner.load("wording", runner.SHARED).size(number))


def _as_json(data: dict[str, Any]) -> dict[str, Any]:
    from base64 import b64encode

    return {
        kind: b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else value
        for kind, value in data.items()
    }


# --- how a value is shown -----------------------------------------------------------------------------


def bundle_of(value: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return all representations of a value; None when it has displayed itself."""
    if "IPython.core.display_functions" in sys.modules:
        made = _ipython_formatter().format(value)
        return (dict(made[0]), dict(made[1])) if made[0] else None
    own = _method(value, "_ipython_display_")
    if own is not None:
        own()
        return None
    data: dict[str, Any] = {"text/plain": _plain(value)}
    metadata: dict[str, Any] = {}
    figure = _figure_png(value)
    if figure is not None:
        data["image/png"] = figure
    for kind, name in METHODS:
        _add(data, metadata, kind, _called(value, name))
    several = _called(value, "_repr_mimebundle_")
    if isinstance(several, tuple) and len(several) == 2:
        several, more = several
        metadata.update(more)
    if isinstance(several, dict):
        data.update(several)
    return data, metadata


def _add(data: dict[str, Any], metadata: dict[str, Any], kind: str, told: Any) -> None:
    if isinstance(told, tuple) and len(told) == 2:
        told, metadata[kind] = told
    if told is not None:
        data[kind] = told


def _method(value: Any, name: str) -> Any:
    # Methods of a class are meant for its instances; an object that has every attribute means nothing by it.
    if (
        isinstance(value, type)
        or getattr(value, "_ipython_canary_method_should_not_exist_", None) is not None
    ):
        return None
    return getattr(value, name, None)


def _called(value: Any, name: str) -> Any:
    method = _method(value, name)
    if method is None:
        return None
    try:
        return method()
    except NotImplementedError:
        return None
    except Exception:  # noqa: BLE001 - one way less to show it
        import traceback

        traceback.print_exc()
        return None


def _plain(value: Any) -> str:
    text = repr(value)
    if len(text) > 79 and isinstance(value, (dict, list, tuple, set, frozenset)):
        from pprint import pformat

        return pformat(value, sort_dicts=False)
    return text


def _ipython_formatter() -> Any:
    global _formatter  # noqa: PLW0603 - one for the process, made when it is needed
    if _formatter is None:
        _formatter = import_module("IPython.core.formatters").DisplayFormatter()
        _formatter.formatters["image/png"].for_type_by_name("matplotlib.figure", "Figure", _figure_png)
    return _formatter


def show_value(value: Any) -> None:
    """Show the value of the cell's last expression."""
    if value is None:
        return
    made = bundle_of(value)
    if made is not None:
        publish(*made)


# --- IPython --------------------------------------------------------------------------------------------


def patch_display(module: Any) -> None:
    """Replace IPython's display functions, which only print without a kernel, by ones for notebooks."""
    in_kernel = {name: getattr(module, name) for name in ("display", "publish_display_data", "clear_output")}

    def has_shell() -> bool:
        shell = sys.modules.get("IPython.core.interactiveshell")
        return shell is not None and bool(shell.InteractiveShell.initialized())

    def publish_display_data(
        data: Any, metadata: Any = None, *, transient: Any = None, **kwargs: Any
    ) -> None:
        if has_shell():
            in_kernel["publish_display_data"](data, metadata, transient=transient, **kwargs)
            return
        shown_as = str((transient or {}).get("display_id") or "")
        publish(
            dict(data),
            dict(metadata or {}),
            kind="update" if kwargs.get("update") else "display",
            display_id=shown_as,
        )

    def display(
        *objs: Any,
        include: Any = None,
        exclude: Any = None,
        metadata: Any = None,
        transient: Any = None,
        display_id: Any = None,
        raw: bool = False,
        clear: bool = False,
        **kwargs: Any,
    ) -> Any:
        if has_shell():
            chosen = {
                "include": include,
                "exclude": exclude,
                "metadata": metadata,
                "transient": transient,
                "display_id": display_id,
            }
            return in_kernel["display"](*objs, raw=raw, clear=clear, **chosen, **kwargs)
        transient = dict(transient or {})
        if display_id:
            transient["display_id"] = os.urandom(16).hex() if display_id is True else display_id
        if kwargs.get("update") and "display_id" not in transient:
            raise TypeError("display_id required for update_display")
        if clear:
            clear_output(wait=True)
        for one in objs:
            if raw:
                publish_display_data(one, metadata, transient=transient, **kwargs)
                continue
            data, told = _ipython_formatter().format(one, include=include, exclude=exclude)
            if data:
                if metadata:
                    told = {**told, **metadata}
                publish_display_data(data, told, transient=transient, **kwargs)
        return module.DisplayHandle(transient["display_id"]) if display_id else None

    def clear_output(wait: bool = False) -> None:
        if has_shell():
            in_kernel["clear_output"](wait)
        elif KEY:
            publish({}, {"wait": bool(wait)}, kind="clear")
        else:
            in_kernel["clear_output"](wait)

    module.display = display
    module.publish_display_data = publish_display_data
    module.clear_output = clear_output


# --- Matplotlib -----------------------------------------------------------------------------------------


def patch_matplotlib(module: Any) -> None:
    """Use our backend, which needs no screen, unless the environment of the cell names another."""
    if KEY and not os.environ.get("MPLBACKEND"):
        module.rcParams["backend"] = BACKEND


def fill_backend(module: Any) -> None:
    """Make `module` a backend that draws in memory, and whose `show` sends figures to the notebook."""
    base: Any = import_module("matplotlib.backend_bases").FigureManagerBase
    canvas: Any = import_module("matplotlib.backends.backend_agg").FigureCanvasAgg

    class FigureManager(base):  # type: ignore[misc]
        @classmethod
        def pyplot_show(cls, *, block: bool | None = None) -> None:  # noqa: ARG003 - nothing blocks
            show_figures()

        def show(self) -> None:
            _show_figure(self.canvas.figure)

    class FigureCanvas(canvas):  # type: ignore[misc]
        manager_class = FigureManager

    module.FigureCanvas = FigureCanvas
    module.FigureManager = FigureManager
    module.show = lambda *_args, **_kwargs: show_figures()


def show_figures() -> None:
    """Show and close every open figure that has changed since it was shown, at `show()` and at the end of a
    cell.
    """
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in _numbers(pyplot):
        figure = pyplot.figure(number)
        if figure.stale:
            _show_figure(figure)
        pyplot.close(figure)


def _numbers(pyplot: ModuleType) -> Iterable[int]:
    numbers: list[int] = list(pyplot.get_fignums())
    return numbers


def _show_figure(figure: Any) -> None:
    made = _figure_png(figure)
    if made is not None:
        publish({"text/plain": repr(figure), "image/png": made})


def _figure_png(value: Any) -> str | None:
    """Return a figure as PNG; None if it is empty."""
    figures = sys.modules.get("matplotlib.figure")
    if (
        figures is None
        or not isinstance(value, figures.Figure)
        or not (value.axes or value.lines or value.texts or value.images)
    ):
        return None
    from base64 import b64encode
    from io import BytesIO

    page = BytesIO()
    value.savefig(page, format="png", bbox_inches="tight", dpi=value.dpi)
    value.stale = False  # until something is drawn on it again
    return b64encode(page.getvalue()).decode()


def finish() -> None:
    """Show the figures that are still open at the end of a cell, if our backend drew them."""
    matplotlib = sys.modules.get("matplotlib")
    if (
        KEY
        and matplotlib is not None
        and "matplotlib.pyplot" in sys.modules
        and matplotlib.get_backend().lower() == BACKEND
    ):
        show_figures()
