"""JupyterLab with a master and simulated nodes, and a notebook in it as a person sees it. Waits for
conditions, never for time alone.

The notebook's idle indicator is no sign of readiness: cells that are run right after it may be lost. What
counts is the session of the kernel, asked through JupyterLab's own object in the page.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Locator, Page

from mgpu_agent.protocol.places import find_runtime_file
from tests.e2e.cluster import BIN, Cluster
from tests.processes import WaitedTooLong, wait_until

TOKEN = "a-token-for-tests"
LIMIT_MS = 60_000.0
LAB_LIMIT_S = 120.0
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}
EXPOSE = {"lab": "LabApp.expose_app_in_browser", "notebook": "JupyterNotebookApp.expose_app_in_browser"}
SETTINGS: dict[str, dict[str, object]] = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": False,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}

_RESTORED = """
() => Promise.race([window.jupyterapp.restored.then(() => true), new Promise(done => setTimeout(() => done(false), 500))])
"""  # noqa: E501
_READY = """
async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  const context = panel && panel.sessionContext;
  if (!context) return false;
  await panel.context.ready;
  await context.ready;
  const kernel = context.session && context.session.kernel;
  if (!kernel) return false;
  await kernel.info;
  return true;
}
"""


class Lab(Cluster):
    """A cluster whose master is in a JupyterLab."""

    def __init__(self, directory: Path, simulate: str = "2x4", folder: Path = BIN, app: str = "lab") -> None:
        super().__init__(directory)
        self.simulate = simulate
        self.settings: dict[str, dict[str, object]] = dict(SETTINGS)
        self._folder = folder
        self.app = app

    @property
    def root(self) -> Path:
        """The folder that JupyterLab shows."""
        return self.directory / "files"

    @property
    def url(self) -> str:
        """Where the server is, without its token."""
        return f"http://127.0.0.1:{self.port}"

    def start_lab(self, *arguments: str) -> None:
        """Start JupyterLab, wait until it answers and its simulated nodes are there."""
        self.root.mkdir(exist_ok=True)
        self._write_settings()
        command = [
            str(self._folder / "jupyter"),
            self.app,
            "--no-browser",
            f"--port={self.port}",
            "--ServerApp.port_retries=0",
            "--allow-root",
        ]
        command += [
            f"--MgpuApp.link_port={self._link_port}",
            f"--IdentityProvider.token={TOKEN}",
            f"--{EXPOSE[self.app]}=True",
            f"--ServerApp.root_dir={self.root}",
        ]
        if self.simulate:
            command.append(f"--MgpuApp.simulate={self.simulate}")
        program = self.start("lab", [*command, *arguments])
        self.wait_for_master(program)
        nodes = int(self.simulate.split("x")[0]) if self.simulate else 0
        self.wait_until(
            lambda: list(self.node_states().values()).count("online") >= nodes,
            "the nodes are online",
            LAB_LIMIT_S,
        )

    def start_demo(self) -> None:
        """Start `mgpu demo` in a terminal, as people do, with the programs of mgpu not in their PATH."""
        self._write_settings()
        flags = [
            "--no-browser",
            f"--port={self.port}",
            "--ServerApp.port_retries=0",
            "--allow-root",
            f"--IdentityProvider.token={TOKEN}",
            f"--{EXPOSE['lab']}=True",
        ]
        command = [str(self._folder / "mgpu"), "demo", "--state-dir", str(self.state), "--", *flags]
        path = os.pathsep.join(one for one in os.get_exec_path() if not (Path(one) / "mgpu_queue").exists())
        self.start("lab", ["script", "-qefc", shlex.join(command), "/dev/null"], env={"PATH": path})
        self.wait_until(lambda: find_runtime_file(self.state, self.port), "the demo is up", LAB_LIMIT_S)
        self.wait_until(
            lambda: list(self.node_states().values()).count("online") == 2,
            "its nodes are online",
            LAB_LIMIT_S,
        )

    def _write_settings(self) -> None:
        for plugin, values in self.settings.items():
            package, name = plugin.split(":")
            path = (
                self.directory
                / "jupyter-config"
                / "lab"
                / "user-settings"
                / package
                / f"{name}.jupyterlab-settings"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))

    def write_notebook(self, name: str, cells: Sequence[str]) -> Path:
        """Put a notebook with these code cells into the folder."""
        made = [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for number, source in enumerate(cells)
        ]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        path = self.root / name
        path.write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
        return path

    def open(
        self, context: BrowserContext, path: str = "", *, theme: str = "light", workspace: str = "auto"
    ) -> LabPage:
        """Open JupyterLab in a new tab, with a document if `path` names one; each workspace keeps a layout of
        its own.
        """
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        tree = f"/tree/{path}" if path else ""
        page.goto(f"{self.url}/lab/workspaces/{workspace}{tree}?token={TOKEN}")
        return LabPage(page, theme)


class LabPage:
    """A tab with JupyterLab."""

    def __init__(self, page: Page, theme: str) -> None:
        self.page = page
        try:
            self._wait_until_restored()
        except WaitedTooLong:
            # On a busy machine JupyterLab now and then waits for ever for its own layout; a person reloads
            # the page, too.
            page.reload()
            self._wait_until_restored()
        self.theme(theme)

    def _wait_until_restored(self) -> None:
        self.page.wait_for_function(
            "() => window.jupyterapp && document.querySelector('#jp-main-dock-panel')"
        )
        # Asked again and again: the browser drops a promise that nothing can keep any more, and who waits for
        # it alone is told just that.
        wait_until(lambda: self.page.evaluate(_RESTORED), "JupyterLab has its layout", LAB_LIMIT_S)

    def command(self, name: str, **arguments: object) -> Any:
        """Carry out a command of JupyterLab; what it returns must be plain data."""
        return self.page.evaluate(
            "async ([name, args]) => { const r = await window.jupyterapp.commands.execute(name, args); "
            "return r === null || ['string', 'number', 'boolean'].includes(typeof r) ? r : null; }",
            [name, arguments],
        )

    def theme(self, name: str) -> None:
        """Change to the light, dark or high-contrast theme."""
        self.command("apputils:change-theme", theme=THEMES[name])
        self.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=THEMES[name])

    def wait_for_kernel(self) -> None:
        """Wait until the kernel of the notebook in front takes cells."""
        wait_until(lambda: self.page.evaluate(_READY), "the kernel is ready", LAB_LIMIT_S)

    # --- cells of the notebook in front --------------------------------------------------------------

    def cell(self, number: int) -> Locator:
        """Return a cell of the notebook in front."""
        return self.page.locator(f".jp-Notebook:visible .jp-Cell[data-windowed-list-index='{number}']").first

    def output(self, number: int) -> Locator:
        """Return the output area of a cell."""
        return self.cell(number).locator(".jp-Cell-outputArea")

    def run(self, number: int, *, wait: bool = True) -> None:
        """Run a cell; wait for its end unless told otherwise."""
        self.page.evaluate(
            "async number => { const panel = window.jupyterapp.shell.currentWidget; "
            "panel.content.activeCellIndex = number; "
            "window.mgpuTestRuns = true; "
            "window.jupyterapp.commands.execute('notebook:run-cell').finally(() => { window.mgpuTestRuns = "
            "false; }); }",
            number,
        )
        if wait:
            # A cell that ran before has its old number until the kernel takes it up again.
            wait_until(lambda: not self.page.evaluate("() => window.mgpuTestRuns"), f"cell {number} was run")
            self.wait_for_cell(number)

    def wait_for_cell(self, number: int, limit_s: float = 60.0) -> None:
        """Wait until a cell has run to its end, well or not."""
        wait_until(lambda: self.prompt(number) not in ("[ ]:", "[*]:"), f"cell {number} has run", limit_s)

    def prompt(self, number: int) -> str:
        """Return what stands before a cell: `[*]:` while it runs, then its number."""
        return (self.cell(number).locator(".jp-InputPrompt").first.text_content() or "").strip()

    def text(self, number: int) -> str:
        """Return the output of a cell as it is read."""
        return self.output(number).inner_text()

    def save(self) -> None:
        """Save the document in front."""
        self.command("docmanager:save")

    def screenshot(self, path: Path, locator: Locator | None = None) -> Path:
        """Take a picture of the page, or of a part of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        (locator or self.page).screenshot(path=str(path), animations="disabled")
        return path

    def close(self) -> None:
        """Close the tab as a person does, without being asked."""
        self.page.close(run_before_unload=False)
