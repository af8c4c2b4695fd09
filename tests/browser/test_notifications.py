"""What JupyterLab tells of jobs: only what one would otherwise miss, and in one notification."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.lab import Lab, LabPage

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"
CODE_CELLS = """
() => window.jupyterapp.shell.currentWidget.content.widgets.flatMap(
  (cell, index) => cell.model.type === 'code' ? [index] : [])
"""
WAITS = "%%mgpu_srun --gpus 1\nimport os, time\nwhile not os.path.exists({path!r}):\n    time.sleep(0.1)\n"


def opened(lab: Lab, context: BrowserContext, path: str) -> LabPage:
    """Open a notebook beside the sidebar."""
    page = lab.open(context, path, workspace=path.partition(".")[0])
    page.wait_for_kernel()
    page.command("mgpu:show-panel")
    expect(page.page.locator("[data-live=live]")).to_be_visible()
    return page


def notifications(page: Page) -> Locator:
    """Open the notification centre, which keeps what toasts show for a moment; return what it holds."""
    page.evaluate("() => void window.jupyterapp.commands.execute('apputils:display-notifications')")
    expect(page.locator(".jp-Notification-Center")).to_be_visible()
    return page.locator(".jp-Notification-Center .jp-Notification-List-Item")


def test_the_quickstart_from_top_to_bottom_leaves_one_notification(
    lab: Lab, context: BrowserContext, pictures: Path
) -> None:
    shutil.copy(QUICKSTART, lab.root / "quickstart.ipynb")
    page = opened(lab, context, "quickstart.ipynb")
    for number in page.page.evaluate(CODE_CELLS):
        page.run(number)
        assert "Traceback" not in page.text(number)
    told = notifications(page.page)
    # What is told comes in its order: after this one there is nothing left to be told.
    lab.client.submit(["true"], gpus=1, name="the last one")
    expect(page.page.locator(".jp-Notification-Center")).to_contain_text("“the last one”")
    page.screenshot(pictures / "quickstart-told.png")
    expect(told).to_have_count(1)
    expect(told).to_contain_text("jobs ended: “the last one”, “sum”")


def test_a_cell_out_of_sight_is_told_by_the_name_that_it_has_everywhere(
    lab: Lab, context: BrowserContext, pictures: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    cells = ["%load_ext mgpu_jupyter", "%%mgpu_srun --gpus 1\nprint('in sight')", WAITS.format(path=str(go))]
    lab.write_notebook("away.ipynb", cells)
    page = opened(lab, context, "away.ipynb")
    page.run(0)
    page.run(1)
    page.run(2, wait=False)
    expect(page.page.locator("#mgpu-queue")).to_contain_text("away.ipynb [3]")
    page.command("mgpu:open-dashboard")
    told = notifications(page.page)
    go.touch()
    expect(told).to_contain_text("“away.ipynb [3]” is done: exit 0, after ")
    page.screenshot(pictures / "away-told.png")
    expect(page.page.locator("#mgpu-history")).to_contain_text("away.ipynb [2]")
    expect(page.page.locator("#mgpu-history")).to_contain_text("away.ipynb [3]")
    names = {job.snapshot.name for job in lab.client.jobs(limit=20) if job.snapshot is not None}
    assert {"away.ipynb [2]", "away.ipynb [3]"} <= names
    expect(told).to_have_count(1)
