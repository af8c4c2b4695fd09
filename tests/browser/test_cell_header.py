"""The header of a cell in a real JupyterLab: what is seen in light, dark and high contrast, at 480 px, and that Cancel cancels."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from tests.browser.lab import Lab

RUNS = """%%mgpu_srun --nodes 2 --gpus-per-node 2 --name train-7b -t 03:00:00
import os, time
rank = os.environ["MGPU_NODE_RANK"]
print("2 ranks on 2 nodes, ring over eth1")
if rank == "0":
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(4, 1.6))
    axes.plot([2.9, 2.6, 2.45, 2.36, 2.31, 2.30])
    axes.set_title("loss by step")
    plt.show()
    for step in range(940, 1000, 20):
        print(f"step {step}/4000  loss {2.9 - step / 1500:.3f}")
        time.sleep(0.5)
time.sleep(300)
"""
WAITS = "%%mgpu_srun --gpus 2 --name patient -t 02:00:00\nprint('never')"
FAILS = """%%mgpu_srun --nodes 2 --gpus-per-node 1 --name finetune-13b
import os, time
if os.environ["MGPU_NODE_RANK"] == "1":
    raise MemoryError("Tried to allocate 9.50 GiB.")
time.sleep(60)
"""
DONE = "%%mgpu_srun --gpus 1 --name eval-mmlu\nimport time\nprint('accuracy 0.612')\ntime.sleep(2)"


@pytest.mark.timeout(240)
def test_a_header_that_lives(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    lab.write_notebook("cell.ipynb", ["%load_ext mgpu_jupyter", RUNS, DONE, FAILS])
    page = lab.open(context, "cell.ipynb")
    page.command("application:toggle-left-area")
    page.wait_for_kernel()
    page.run(0)
    page.run(1, wait=False)
    output = page.output(1)
    output.locator(".mgpu-running").wait_for()
    output.locator("img").wait_for()
    output.get_by_text("step 980/4000").wait_for()
    output.locator(".mgpu-chart-busy polyline").wait_for()
    heights = output.locator(".mgpu-head").bounding_box()
    assert heights is not None
    assert 55 < heights["height"] < 80
    assert output.locator(".mgpu-chip").count() == 2
    for theme in ("light", "dark", "contrast"):
        page.theme(theme)
        page.screenshot(pictures / f"cell-running-{theme}.png", page.cell(1))
    page.theme("light")
    page.page.set_viewport_size({"width": 700, "height": 900})
    page.screenshot(pictures / "cell-running-narrow.png", page.cell(1))
    page.page.set_viewport_size({"width": 1280, "height": 900})
    button = page.page.locator(".mgpu-actions button:visible")
    button.click()
    page.wait_for_cell(1)
    assert "JobCancelled" in page.text(1)
    assert "Cancelled" in output.locator(".mgpu-head").inner_text()
    page.run(2)
    page.run(3)
    assert output.locator(".mgpu-running").count() == 0
    assert "Done in" in page.output(2).locator(".mgpu-done").inner_text()
    failed = page.output(3).locator(".mgpu-head").inner_text()
    assert [word for word in ("Failed", "finetune-13b", "rank 1 on node-", "exit 1", "Tried to allocate") if word not in failed] == []
    page.screenshot(pictures / "cell-done.png", page.cell(2))
    page.screenshot(pictures / "cell-failed.png", page.cell(3))


@pytest.mark.timeout(240)
def test_a_header_that_waits(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    lab.client.submit(["sleep", "600"], nodes=2, gpus_per_node=4, name="before", time_limit=3600.0)
    lab.write_notebook("waits.ipynb", ["%load_ext mgpu_jupyter", WAITS])
    page = lab.open(context, "waits.ipynb", workspace="waits")
    page.command("application:toggle-left-area")
    page.wait_for_kernel()
    page.run(0)
    page.run(1, wait=False)
    header = page.output(1).locator(".mgpu-waiting")
    header.wait_for()
    page.page.wait_for_function("() => document.querySelector('.mgpu-waiting').innerText.includes('1st of 1 in the queue')")
    page.output(1).scroll_into_view_if_needed()
    page.screenshot(pictures / "cell-waiting.png", page.cell(1))
    page.page.locator(".mgpu-actions button:visible").click()
    page.wait_for_cell(1)
    assert "JobCancelled" in page.text(1)
