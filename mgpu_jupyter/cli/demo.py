"""`mgpu demo`: a cluster to try on this machine, in JupyterLab or without a browser. Reads only the flags."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_jupyter.cli.command import Command, MakeClient
from mgpu_jupyter.cli.show import show_help
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.demo.notebooks import DEFAULT, names

NEEDED = ("jupyterlab", "jupyter_server", "nbclient", "ipykernel")


def main(argv: Sequence[str], make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    """Open the demo, or run its notebook; words after `--` are passed to JupyterLab."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    values = parser("mgpu demo").read(words[:cut])
    if isinstance(values, Help):
        return show_help(values.text)
    if values.headless and (values.state_dir or words[cut + 1 :]):
        raise InvalidRequest(
            "contradiction",
            "--headless opens no JupyterLab and keeps nothing: leave out --state-dir and what follows --.",
        )
    if [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise Unavailable("no-jupyterlab", 'mgpu demo needs JupyterLab: run  pip install "mgpu-jupyter[lab]"')
    if values.headless:
        from mgpu_jupyter.demo.run_notebook import run_notebook

        return run_notebook(values.notebook)
    from mgpu_jupyter.demo.open_lab import open_lab

    return open_lab(values.notebook, Path(values.state_dir) if values.state_dir else None, words[cut + 1 :])


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(
        prog,
        f"{prog} [NOTEBOOK] [--headless] [--state-dir DIR] [-- LAB-FLAGS…]",
        "Open JupyterLab with a master, this machine's GPUs and a notebook that shows what mgpu does, until "
        "Ctrl-C. Where there is no "
        "NVIDIA GPU, two agents simulate four each, and all of it ends with JupyterLab.",
        examples=[prog, f"{prog} scheduling -- --no-browser --port 9999", f"{prog} --headless"],
    )
    add = result.add_argument
    add(
        "notebook",
        nargs="?",
        default=DEFAULT,
        metavar="NOTEBOOK",
        help=f"one of {', '.join(names())} (default {DEFAULT})",
    )
    add(
        "--headless",
        action="store_true",
        help="run the notebook on simulated GPUs without a browser and print what each cell did",
    )
    add("--state-dir", metavar="DIR", help="where the queue is kept (default ~/.local/state/mgpu-demo)")
    return result


COMMANDS = {"demo": Command(parser, main=main)}
