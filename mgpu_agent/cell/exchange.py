"""Variables that a cell is given before it runs, and those that it returns when it has succeeded. Loaded by
`runner.py`.

The directory holds `in`, if anything was sent; each rank leaves `out.RANK` there and, once that is whole,
`out.RANK.json` about it.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Exchange:
    """The variables of one process of a job. `values` is the module `variable_file`, `names` the cell's
    globals.
    """

    def __init__(self, wish: dict[str, str], names: dict[str, object], values: Any) -> None:
        self._directory = wish["--values"]
        self._wanted = [name for name in wish.get("--out", "").split(",") if name]
        self._version = wish.get("--version", "")
        self._limit = int(wish.get("--limit", 0))
        self._names = names
        self._values = values
        self._pid = os.getpid()

    def bring(self) -> None:
        """Define the variables that were sent; one Python may be unable to read what another pickled."""
        if self._version not in ("", self._values.PYTHON):
            sys.exit(
                f"mgpu: The variables come from Python {self._version}, and {sys.executable} on this node "
                f"is {self._values.PYTHON}."
            )
        path = os.path.join(self._directory, "in")
        if not os.path.exists(path):
            return
        sent = self._values.unpack(path)
        if sent.python != self._values.PYTHON:
            sys.exit(
                f"mgpu: the variables come from Python {sent.python}, and this is {self._values.PYTHON} "
                f"({sys.executable}): "
                f"name a Python {sent.python} of this node with --python."
            )
        for name in sent.sizes:
            try:
                self._names[name] = sent.value(name)
            except Exception as error:  # noqa: BLE001 - whatever a class of the user's says
                text = (str(error).strip().splitlines() or [""])[0]
                sys.exit(
                    f"mgpu: `{name}` cannot be made here ({type(error).__name__}: {text}): "
                    f"install what it needs for {sys.executable} on this node, or send plain data."
                )

    def leave(self) -> None:
        """Write the variables that are asked for; a child that the cell forked writes none."""
        if not self._wanted or os.getpid() != self._pid:
            return
        packed = self._pack()
        rank = os.environ.get("MGPU_RANK", "0")
        path = os.path.join(self._directory, "out." + rank)
        sha256 = packed.write(path)
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump({"size": packed.size, "sha256": sha256}, file)
        os.replace(path + ".part", path + ".json")

    def _pack(self) -> Any:
        """Return the variables, and in place of each that cannot travel the reason."""
        problems = {
            name: f"`{name}` was never set by the cell." for name in self._wanted if name not in self._names
        }
        values = {name: self._names[name] for name in self._wanted if name not in problems}
        return self._values.pack(values, problems, "cell", self._limit)
