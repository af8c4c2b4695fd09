"""Output that is still there: the tab closed, the kernel restarted, the server killed in the middle of a job.
And the offer to attach.
"""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import BrowserContext

from mgpu_jupyter import Job
from tests.browser.lab import Lab, LabPage

LINES = 1_000
HALF = LINES // 2
COUNT = f"""%%mgpu_srun --gpus 1 --name NAME
import os, time
for number in range({LINES}):
    while number == {HALF} and not os.path.exists("MARK"):
        time.sleep(0.05)
    print("line", number, flush=True)
"""
FIND = "import mgpu_jupyter\njob_id = next(mgpu_jupyter.Client().jobs(name='NAME')).id"
CELLS = ["%load_ext mgpu_jupyter", COUNT, FIND, "%mgpu_attach $job_id"]
LOAD, RUN, LOOK, ATTACH = range(4)
EXPECTED = [f"line {number}" for number in range(LINES)]


def started(lab: Lab, context: BrowserContext, name: str) -> tuple[LabPage, Job, Path]:
    """Open a notebook, run its cell, and return when the job stands in the middle of its lines, with the file
    it waits for.
    """
    mark = lab.directory / f"{name}.go"
    lab.write_notebook(
        f"{name}.ipynb", [cell.replace("NAME", name).replace("MARK", str(mark)) for cell in CELLS]
    )
    page = lab.open(context, f"{name}.ipynb", workspace=name)
    page.wait_for_kernel()
    page.run(LOAD)
    page.run(RUN, wait=False)
    job = lab.wait_until(lambda: next(lab.client.jobs(name=name), None), "it is submitted", 60)
    lab.wait_until(lambda: f"line {HALF - 1}\n" in job.output(), "half of the lines are there", 60)
    lab.wait_until(lambda: "line 0\n" in page.text(RUN), "its first lines are seen", 60)
    return page, job, mark


def attach(page: LabPage, lab: Lab, mark: Path | None) -> list[str]:
    """Attach while it runs, let it go on, and return the numbered lines as they are read in the browser."""
    page.run(LOAD)
    page.run(LOOK)
    page.run(ATTACH, wait=mark is None)
    if mark is not None:
        lab.wait_until(lambda: f"line {HALF - 1}\n" in page.text(ATTACH), "the first half is there again", 60)
        mark.touch()
        page.wait_for_cell(ATTACH)
    return re.findall(r"^line \d+$", page.text(ATTACH), re.MULTILINE)


def test_the_tab_is_closed(lab: Lab, context: BrowserContext) -> None:
    """The kernel is still busy with the cell, and answers nobody until that has ended."""
    page, job, mark = started(lab, context, "tab")
    page.close()
    again = lab.open(context, "tab.ipynb", workspace="tab")
    assert job.state == "running"
    mark.touch()
    again.wait_for_kernel()
    assert attach(again, lab, None) == EXPECTED


def test_the_kernel_is_restarted(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    page, job, mark = started(lab, context, "kernel")
    page.page.evaluate(
        "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"
    )
    page.wait_for_kernel()
    assert job.state == "running"
    assert attach(page, lab, mark) == EXPECTED
    page.screenshot(pictures / "attached.png")


def test_the_server_is_killed(lab: Lab, context: BrowserContext) -> None:
    page, job, mark = started(lab, context, "server")
    page.close()
    lab.kill("lab")
    lab.start_lab()
    assert job.refresh().state == "running"
    again = lab.open(context, "server.ipynb", workspace="server")
    again.wait_for_kernel()
    assert attach(again, lab, mark) == EXPECTED


def test_the_same_cell_again(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    hold = (
        "%%mgpu_srun --background --gpus 4 --name train-7b --as job\nimport time\nprint('up', "
        "flush=True)\ntime.sleep(600)"
    )
    lab.write_notebook("again.ipynb", ["%load_ext mgpu_jupyter", hold])
    page = lab.open(context, "again.ipynb", workspace="again")
    page.wait_for_kernel()
    page.run(0)
    page.run(1)
    running = page.output(1).locator(".mgpu-running")
    running.locator(".mgpu-chart-busy polyline").wait_for()
    job = next(lab.client.jobs(name="train-7b", state="active"))
    assert [word for word in ("Running", "train-7b", job.id, "×4") if word not in running.inner_text()] == []
    assert [one.inner_text() for one in page.output(1).locator(".mgpu-act:visible").all()] == [
        "Open",
        "Cancel",
    ]
    page.screenshot(pictures / "background.png", page.cell(1))
    page.run(1)
    offer = page.output(1)
    offer.locator(".mgpu-asks", has_text="still runs").wait_for()
    assert " ".join(offer.locator(".mgpu-asks").inner_text().split()).startswith(
        "This cell’s job train-7b still runs ("
    )
    for theme in ("dark", "light"):
        page.theme(theme)
        page.screenshot(pictures / f"offer-{theme}.png", offer)
    offer.get_by_role("button", name="Run a second one").click()
    lab.wait_until(
        lambda: len(list(lab.client.jobs(name="train-7b", state="active"))) == 2, "a second one runs"
    )
    page.run(1)
    page.output(1).get_by_role("button", name="Attach to it").click()
    running.wait_for()
    assert len(list(lab.client.jobs(name="train-7b", state="active"))) == 2
    job.cancel()
