"""The header of a cell in a real JupyterLab: what is seen in light, dark and high contrast, at 480 px, and
what its buttons do.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import BrowserContext, FloatRect, Locator

from tests.browser.lab import Lab, LabPage
from tests.processes import wait_until

RUNS = """%%mgpu_srun --nodes 2 --gpus-per-node 2 --name train-7b -t 03:00:00
import os, signal, time
def save(*_):
    while not os.path.exists("MARK"):
        time.sleep(0.05)
    os._exit(1)
signal.signal(signal.SIGTERM, save)
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
WAITS = "%%mgpu_srun --gpus 2 --name finetune-13b -t 02:00:00\nprint('never')"
FAILS = """%%mgpu_srun --nodes 2 --gpus-per-node 1 --name finetune-13b
import os, time
print("batch of 64", flush=True)
if os.environ["MGPU_NODE_RANK"] == "1":
    time.sleep(0.5)
    print("step 1/4000")
    raise SystemExit("MemoryError: Tried to allocate 9.50 GiB.")
time.sleep(60)
"""
RAISES = """%%mgpu_srun --gpus 1 --name train-loss
def train(loss, epochs):
    if loss < 1:
        raise ValueError(f'<b>loss</b> \\x1b[2Jis {loss}')
    return loss + "<img src=x onerror='window.__mgpu_hacked=1'>"

print('epoch 1, loss 0.42')
train(0.42, epochs=3)
"""
DONE = (
    "%%mgpu_srun --gpus 1 --name eval-mmlu --out scores\nimport time\nscores = [0.612] * "
    "1000\nprint('accuracy 0.612')\ntime.sleep(2)"
)
NARROW = """node => [node, ...node.querySelectorAll('.mgpu-head, .mgpu-row, .mgpu-line, .mgpu-done, .mgpu-again')]
  .filter(one => one.scrollWidth > one.clientWidth + 1 && !['hidden', 'clip'].includes(getComputedStyle(one).overflowX))
  .map(one => `${one.className}: ${one.scrollWidth} in ${one.clientWidth}`)"""  # noqa: E501


def notebook(lab: Lab, context: BrowserContext, name: str, *cells: str) -> LabPage:
    lab.write_notebook(f"{name}.ipynb", ["%load_ext mgpu_jupyter", *cells])
    page = lab.open(context, f"{name}.ipynb", workspace=name)
    page.command("application:toggle-left-area")
    page.wait_for_kernel()
    page.run(0)
    return page


def pressed(cell: Locator, name: str) -> None:
    """Press a button of a header that JupyterLab carries out."""
    cell.locator(".mgpu-act:visible", has_text=name).click()


def both(page: LabPage, pictures: Path, name: str, locator: Locator) -> None:
    """Take a picture in the dark and in the light."""
    for theme in ("dark", "light"):
        page.theme(theme)
        page.screenshot(pictures / f"{name}-{theme}.png", locator)


def back(page: LabPage, name: str) -> None:
    """Go back from the job's view to the notebook."""
    page.page.locator(f".lm-TabBar-tabLabel:text-is('{name}.ipynb')").click()


def box_of(shown: Locator) -> FloatRect:
    """Return where it is; a header that lives is drawn anew each second, and what was just replaced has no
    place.
    """
    return wait_until(shown.bounding_box, "what is looked for is on the screen")


def narrow(page: LabPage, shown: Locator) -> None:
    """Make the window narrow, and wait until JupyterLab has laid out its parts anew."""
    page.page.set_viewport_size({"width": 598, "height": 900})
    wait_until(lambda: 430 < box_of(shown)["width"] < 500, "it is laid out in less than 500 px")


def test_a_header_that_lives(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    saved = lab.directory / "saved"
    page = notebook(lab, context, "cell", RUNS.replace("MARK", str(saved)), DONE, FAILS)
    page.run(1, wait=False)
    output = page.output(1)
    output.locator(".mgpu-running").wait_for()
    output.locator("img").wait_for()
    output.get_by_text("step 980/4000").wait_for()
    output.locator(".mgpu-chart-busy polyline").wait_for()
    assert 55 < box_of(output.locator(".mgpu-head"))["height"] < 80
    assert output.locator(".mgpu-chip").count() == 2
    page.theme("contrast")
    page.screenshot(pictures / "cell-running-contrast.png", page.cell(1))
    both(page, pictures, "cell-running", page.cell(1))
    narrow(page, output.locator(".mgpu-wide"))
    assert (output.locator(".mgpu-wide").evaluate(NARROW), output.evaluate(NARROW)) == ([], [])
    page.screenshot(pictures / "cell-running-narrow.png", page.cell(1))
    page.page.set_viewport_size({"width": 1280, "height": 900})
    job = next(lab.client.jobs(name="train-7b", state="active"))
    pressed(output, "Open")
    page.page.locator(f"[data-job-view='{job.id}']").wait_for()
    back(page, "cell")
    pressed(output, "Cancel")
    output.locator(".mgpu-stopping", has_text="if it does not end").wait_for()
    both(page, pictures, "cell-stopping", output)
    saved.touch()
    page.wait_for_cell(1)
    assert "JobCancelled" in page.text(1)
    assert "Cancelled" in output.locator(".mgpu-head").inner_text()
    page.run(2)
    page.run(3)
    assert output.locator(".mgpu-running").count() == 0
    done = page.output(2).locator(".mgpu-done")
    assert [
        word for word in ("Done in", "exit 0", "scores", "eval-mmlu") if word not in done.inner_text()
    ] == []
    both(page, pictures, "cell-done", page.cell(2))
    head = page.output(3).locator(".mgpu-head")
    words = ("Failed", "finetune-13b", "rank 1 on node-", "exit 1")
    assert [word for word in words if word not in head.inner_text()] == []
    assert box_of(head)["height"] < 50
    assert page.text(3).count("Tried to allocate") == 1
    assert "Rank 0: stopped because rank 1 failed." in page.text(3)
    both(page, pictures, "cell-failed", page.cell(3))
    narrow(page, page.output(3))
    assert (page.output(2).evaluate(NARROW), page.output(3).evaluate(NARROW)) == ([], [])
    page.screenshot(pictures / "cell-failed-narrow.png", page.cell(3))
    page.page.set_viewport_size({"width": 1280, "height": 900})
    pressed(head, "Full log")
    failed = next(lab.client.jobs(name="finetune-13b"))
    page.page.locator(
        f"[data-job-view='{failed.id}'] [role=tab][aria-selected=true]", has_text="Log"
    ).wait_for()
    back(page, "cell")
    done.locator(".mgpu-link").click()
    page.page.locator("[data-job-view]", has_text="eval-mmlu").wait_for()
    back(page, "cell")
    before = page.prompt(3)
    pressed(page.output(3), "Run again")
    lab.wait_until(lambda: page.prompt(3) not in (before, "[*]:", "[ ]:"), "the cell has run again", 60)
    assert len(list(lab.client.jobs(name="finetune-13b"))) == 2


def test_a_failed_cell_looks_like_a_local_error(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    page = notebook(lab, context, "fails", RAISES)
    page.run(1)
    error = page.output(1).locator("[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText").last
    assert [line.rstrip() for line in error.inner_text().rstrip().splitlines()] == [
        "-" * 75,
        "ValueError                                Traceback (most recent call last)",
        "Cell In[2], line 7",
        "      4     return loss + \"<img src=x onerror='window.__mgpu_hacked=1'>\"",
        "      6 print('epoch 1, loss 0.42')",
        "----> 7 train(0.42, epochs=3)",
        "",
        "Cell In[2], line 3, in train(loss, epochs)",
        "      1 def train(loss, epochs):",
        "      2     if loss < 1:",
        "----> 3         raise ValueError(f'<b>loss</b> \\x1b[2Jis {loss}')",
        "      4     return loss + \"<img src=x onerror='window.__mgpu_hacked=1'>\"",
        "",
        "ValueError: <b>loss</b> �[2Jis 0.42",
    ]
    assert error.locator(".ansi-red-fg, .ansi-green-fg, .ansi-cyan-fg").count() > 5
    assert page.page.evaluate("() => window.__mgpu_hacked") is None
    head = page.output(1).locator(".mgpu-head")
    assert box_of(head)["height"] < 50
    assert page.text(1).count("is 0.42") == 1
    both(page, pictures, "cell-raised", page.cell(1))


def test_a_header_that_waits(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    lab.client.submit(["sleep", "600"], nodes=2, gpus_per_node=4, name="before", time_limit=3600.0)
    page = notebook(lab, context, "waits", WAITS)
    page.run(1, wait=False)
    header = page.output(1).locator(".mgpu-waiting")
    header.wait_for()
    page.page.wait_for_function(
        "() => document.querySelector('.mgpu-waiting').innerText.includes('1st of 1 in the queue')"
    )
    page.output(1).scroll_into_view_if_needed()
    both(page, pictures, "cell-waiting", page.cell(1))
    narrow(page, page.output(1))
    assert page.output(1).evaluate(NARROW) == []
    page.screenshot(pictures / "cell-waiting-narrow.png", page.cell(1))
    page.page.set_viewport_size({"width": 1280, "height": 900})
    job = next(lab.client.jobs(name="finetune-13b", state="active"))
    pressed(page.output(1), "Why")
    page.page.locator(
        f"[data-job-view='{job.id}'] [role=tab][aria-selected=true]", has_text="Explain"
    ).wait_for()
    back(page, "waits")
    page.page.evaluate(
        "() => delete document.body.dataset.mgpuLab"
    )  # as in a page without the extension: the kernel's own buttons
    widgets = page.output(1).locator(".mgpu-widgets")
    widgets.get_by_role("button", name="Why").click()
    header.get_by_text("node-1, node-2: has 0 of the 2 GPUs free").or_(
        header.locator(".mgpu-told").first
    ).first.wait_for()
    page.screenshot(pictures / "cell-why.png", page.cell(1))
    widgets.get_by_role("button", name="Cancel").click()
    page.wait_for_cell(1)
    assert "JobCancelled" in page.text(1)
