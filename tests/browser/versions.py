"""`make ui-versions`: the sidebar in JupyterLab 4.2, in the newest JupyterLab and in the newest Notebook 7,
each opened in Chromium.

Makes an environment for each below `.mgpu/versions` with `pip install` of this tree and no Node, and goes one
way in each: see the GPUs, submit by form, watch the log, run a cell by its button, cancel. Whatever the page
says as an error counts, unless it says the same with the extension switched off. Not a part of `make test`:
the environments take minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM, SIZE
from tests.browser.lab import _READY, LAB_LIMIT_S, TOKEN, Lab
from tests.e2e.cluster import ROOT
from tests.processes import wait_until
from tests.ui import assets

LIMIT_MS = 60_000
FORM = "echo hello from $((40 + 2)); sleep 600"
LOADED = "() => window.jupyterapp !== undefined"
SLOW = re.compile(r"took [\d.]+ ?ms to activate")
OFF = json.dumps({"disabledExtensions": {"@mgpu/labextension": True}})


@dataclass(frozen=True)
class Environment:
    """What is installed beside this tree, and which programs are tried in it."""

    name: str
    wanted: tuple[str, ...]
    apps: tuple[str, ...]


ENVIRONMENTS = (
    Environment("lab-4.2", ("jupyterlab==4.2.*",), ("lab",)),
    Environment("newest", ("jupyterlab", "notebook>=7,<8"), ("lab", "notebook")),
)


def install(environment: Environment, place: Path) -> Path:
    """Make an environment with this tree, by pip alone; return where its programs are."""
    programs = place / environment.name / "bin"
    if not (programs / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place / environment.name)], check=True)
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    without_node = os.environ | {"PATH": f"{programs}:/nowhere"}
    subprocess.run(
        [*pip, "--upgrade", *environment.wanted, f"{ROOT}[lab]"], check=True, env=without_node, cwd=place
    )
    # the same version number may be another tree
    subprocess.run(
        [*pip, "--force-reinstall", "--no-deps", str(ROOT)], check=True, env=without_node, cwd=place
    )
    return programs


def version(programs: Path, package: str) -> str:
    """Return the installed version of a package."""
    script = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [str(programs / "python"), "-c", script], check=True, capture_output=True, text=True
    ).stdout.strip()


@dataclass
class Said:
    """What pages say that is not well."""

    errors: set[str] = field(default_factory=set)
    ours: set[str] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        """Hear a page."""
        page.on("pageerror", lambda error: self.errors.add(f"{error.message}"))
        page.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.add(message.text)
        if SLOW.search(message.text):
            return  # how busy the machine is
        if (
            message.type in ("error", "warning")
            and "@mgpu/labextension" in f"{message.location.get('url')} {message.text}"
        ):
            self.ours.add(message.text)


@contextmanager
def opened(browser: Browser, lab: Lab, path: str, said: Said) -> Iterator[Page]:
    """Open a page of the server."""
    with browser.new_context(viewport=SIZE, locale="en-GB") as context:
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        said.watch(page)
        page.goto(f"{lab.url}/{path}?token={TOKEN}")
        page.wait_for_function(LOADED)
        page.evaluate("async () => { await window.jupyterapp.restored; }")
        yield page


def do(page: Page, command: str, **arguments: object) -> None:
    """Carry out a command as the palette does."""
    page.evaluate(
        "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args); }",
        [command, arguments],
    )


def tiles(page: Page, state: str) -> Locator:
    """Return the GPUs in a state."""
    return page.locator(f"#mgpu-cluster [role=gridcell][data-state={state}]")


def see_submit_watch_cancel(page: Page) -> None:
    """The sidebar is there and live; a job is submitted by the form, its log watched, and it is cancelled."""
    do(page, "mgpu:show-panel")
    expect(page.locator("[data-live=live]")).to_be_visible()
    expect(tiles(page, "free")).to_have_count(8)
    page.locator(".mgp-head").get_by_role("button", name="New job").click()
    form = page.locator(".mgp-submit:visible")
    form.get_by_label("What to run").fill(FORM)
    form.get_by_label("GPUs on each").fill("3")
    form.get_by_label("Name", exact=True).fill("by-form")
    expect(form.locator("[data-verdict=now]")).to_contain_text("Starts now")
    form.get_by_role("button", name="Submit").click()
    view = page.locator("[data-job-view]:visible")
    expect(view.locator("[role=log]")).to_contain_text("hello from 42")
    expect(tiles(page, "mine")).to_have_count(3)
    do(page, "mgpu:open-dashboard")
    expect(page.locator(".mgp-dashboard:visible")).to_contain_text("of 2 online")
    row = page.locator("#mgpu-panel [data-job]").first
    row.get_by_role("button", name="by-form", exact=True).click()
    expect(view).to_be_visible()
    view.get_by_role("button", name="Cancel").click()
    expect(tiles(page, "free")).to_have_count(8)
    expect(page.locator("#mgpu-history")).to_contain_text("by-form")


def run_a_cell_by_its_button(page: Page) -> None:
    """The button on a cell puts the magic there, and the cell runs on a GPU."""
    wait_until(lambda: page.evaluate(_READY), "the kernel is ready", LAB_LIMIT_S)
    cells = page.locator(".jp-Notebook:visible .jp-CodeCell")
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    cells.nth(1).locator(".jp-cell-toolbar [data-command='mgpu:run-cell']").click()
    expect(cells.nth(1)).to_contain_text("%%mgpu_srun --gpus 1")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    expect(cells.nth(1).locator(".jp-Cell-outputArea")).to_contain_text("GPUs 1")


def in_lab(browser: Browser, lab: Lab, said: Said) -> None:
    """JupyterLab: everything in one page."""
    with opened(browser, lab, "lab/tree/one.ipynb", said) as page:
        expect(page.locator(".mgp-status-button")).to_contain_text("8 free")
        run_a_cell_by_its_button(page)
        see_submit_watch_cancel(page)


def in_notebook(browser: Browser, lab: Lab, said: Said) -> None:
    """Notebook 7: views are tabs beside the files, or below a notebook; there is no status bar."""
    with opened(browser, lab, "tree", said) as page:
        see_submit_watch_cancel(page)
        expect(page.locator(".jp-TreePanel .lm-TabBar-tabLabel", has_text="by-form")).to_be_visible()
        files = page.locator(".jp-TreePanel .lm-TabBar-tab", has_text="Files")
        files.click()
        page.locator(".jp-DirListing-item", has_text="one.ipynb").click(button="right")
        page.locator(".lm-Menu-item", has_text="Run on GPUs").click()
        expect(page.locator(".mgp-submit:visible").get_by_label("What to run")).to_have_value(
            re.compile("jupyter execute --inplace one.ipynb")
        )
    with opened(browser, lab, "notebooks/one.ipynb", said) as page:
        run_a_cell_by_its_button(page)
        see_submit_watch_cancel(page)
        expect(page.locator("#jp-down-stack .lm-TabBar-tabLabel", has_text="by-form")).to_be_visible()
        assert page.locator(".mgp-status-button").count() == 0


def errors_without(browser: Browser, lab: Lab, paths: tuple[str, ...]) -> set[str]:
    """Return what the pages say when the extension is switched off: that is not ours."""
    switch = lab.directory / "jupyter-config" / "labconfig" / "page_config.json"
    switch.parent.mkdir(parents=True, exist_ok=True)
    switch.write_text(OFF)
    said = Said()
    for path in paths:
        with opened(browser, lab, path, said) as page:
            assert page.evaluate("() => window.jupyterapp.commands.hasCommand('mgpu:show-panel')") is False
            page.wait_for_load_state("networkidle")
    switch.unlink()
    return said.errors


def journey(programs: Path, app: str) -> dict[str, object]:
    """Go the way in one program; return which versions it was and how long it took."""
    begun = time.monotonic()
    said = Said()
    with (
        tempfile.TemporaryDirectory(prefix="mgpu-versions-") as directory,
        Lab(Path(directory) / "cluster", folder=programs, app=app) as lab,
        sync_playwright() as playwright,
    ):
        lab.start_lab()
        lab.write_notebook(
            "one.ipynb",
            ["%load_ext mgpu_jupyter", "import os\nprint('GPUs', len(os.environ['MGPU_GPUS'].split(',')))"],
        )
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            paths = ("lab/tree/one.ipynb",) if app == "lab" else ("tree", "notebooks/one.ipynb")
            known = errors_without(browser, lab, paths)
            (in_lab if app == "lab" else in_notebook)(browser, lab, said)
        finally:
            browser.close()
    assert said.errors <= known, f"errors in the page: {said.errors - known}"
    assert not said.ours, f"said about the extension: {said.ours}"
    packages = ("jupyterlab", "jupyter_server", "ipykernel", *(("notebook",) if app == "notebook" else ()))
    return {package: version(programs, package) for package in packages} | {
        "seconds": round(time.monotonic() - begun, 1)
    }


def main() -> int:
    """Return 0 when the way was gone to its end in every program."""
    parser = argparse.ArgumentParser(prog="make ui-versions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--place",
        type=Path,
        default=ROOT / ".mgpu" / "versions",
        help="where the environments are made and kept",
    )
    parser.add_argument("--only", choices=[one.name for one in ENVIRONMENTS])
    options = parser.parse_args()
    if CHROMIUM is None:
        print("There is no Chromium: install your system's chromium package.", file=sys.stderr)
        return 1
    if not assets.is_current(assets.SHIPPED):
        print(
            "pip would install an extension that was built from earlier sources: make ui-release.",
            file=sys.stderr,
        )
        return 1
    expect.set_options(timeout=LIMIT_MS)
    options.place.mkdir(parents=True, exist_ok=True)
    for environment in ENVIRONMENTS:
        if options.only not in (None, environment.name):
            continue
        begun = time.monotonic()
        programs = install(environment, options.place)
        print(f"{environment.name}: installed in {time.monotonic() - begun:.0f} s", flush=True)
        for app in environment.apps:
            print(f"{environment.name}, {app}: {json.dumps(journey(programs, app))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
