"""The panel in a real JupyterLab: each tab is used as a person does, and what happens is seen in the cluster
and on the screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from mgpu_jupyter.client.job import Job
from tests.browser.conftest import SIZE
from tests.browser.lab import LIMIT_MS, Lab, LabPage
from tests.processes import wait_until

CELLS = ["%load_ext mgpu_jupyter", "%mgpu_panel", "%mgpu_panel gpus", "%mgpu_panel submit", "%mgpu_panel job"]
QUEUE, GPUS, SUBMIT, JOB = 1, 2, 3, 4


@pytest.fixture(scope="module")
def page(chromium: Browser, shared_lab: Lab) -> Iterator[LabPage]:
    """One notebook for all tests of this module; each runs the cell that it needs."""
    shared_lab.write_notebook("panel.ipynb", CELLS)
    with chromium.new_context(viewport={**SIZE, "height": 1100}, locale="en-GB") as context:
        page = shared_lab.open(context, "panel.ipynb", workspace="panel")
        page.wait_for_kernel()
        page.run(0)
        yield page


def shown(page: LabPage, number: int) -> Locator:
    """Run the cell of a panel and return the panel."""
    page.run(number)
    panel = page.output(number).locator(".mgpu-panel")
    panel.wait_for()
    panel.scroll_into_view_if_needed()
    return panel


def submit(lab: Lab, name: str, gpus: int = 1, seconds: float = 3600.0, **keywords: object) -> Job:
    return lab.client.submit(["sleep", str(seconds)], gpus=gpus, name=name, **keywords)  # type: ignore[arg-type]


def row(panel: Locator, job: Job) -> Locator:
    # While rows move, two of them may be of one job for a moment.
    return panel.locator(f".mgpu-row:has([data-job='{job.id}'])").first


def _pressed(panel: Locator, name: str) -> bool:
    if (button := panel.get_by_role("button", name=name)).count():
        button.click()
    return True


def test_the_queue_is_live_and_takes_orders(lab: Lab, page: LabPage, pictures: Path) -> None:
    panel = shown(page, QUEUE)
    expect(panel).to_contain_text("8 of 8 GPUs free", timeout=LIMIT_MS)
    runs = [submit(lab, f"train-{number}", gpus=4 - number) for number in range(2)]
    waits = submit(lab, "<b onmouseover=alert(1)>waits & sees</b>", gpus=2)
    also = submit(lab, "after-it", gpus=2)
    for job in (*runs, waits, also):
        expect(row(panel, job)).to_be_visible(timeout=LIMIT_MS)
    expect(panel).to_contain_text("1 of 8 GPUs free", timeout=LIMIT_MS)
    assert "<b onmouseover=alert(1)>" in (row(panel, waits).locator(".name").get_attribute("title") or "")
    assert panel.locator("[onmouseover]").count() == 0
    page.screenshot(pictures / "panel-queue-light.png", panel)

    panel.get_by_role("button", name="Why does it wait: after-it").click()
    expect(panel.get_by_role("region", name="Why after-it waits")).to_contain_text(
        "Node by node", timeout=LIMIT_MS
    )
    panel.get_by_role("button", name="Close").click()

    # By keys: arrows move between rows, Alt with them changes the priority, and the focus goes with the job.
    names = panel.locator(".mgpu-row .name")
    panel.get_by_placeholder("job, user, state").focus()
    panel.locator(".mgpu-row").first.focus()
    for _ in range(3):
        page.page.keyboard.press("ArrowDown")
    expect(row(panel, also)).to_be_focused()
    page.page.keyboard.press("Alt+ArrowUp")
    lab.wait_until(lambda: also.refresh().priority == 1, "the priority is one higher")
    lab.wait_until(lambda: also.refresh().place == 1, "it is the first")
    expect(names.nth(2)).to_have_text("after-it", timeout=LIMIT_MS)
    expect(row(panel, also)).to_be_focused(timeout=LIMIT_MS)
    # By a drag: behind the other one.
    row(panel, also).drag_to(
        row(panel, waits), source_position={"x": 60, "y": 8}, target_position={"x": 60, "y": 22}
    )
    lab.wait_until(lambda: also.refresh().priority == -1, "the priority is lower than that of the other one")
    expect(names.nth(3)).to_have_text("after-it", timeout=LIMIT_MS)

    def is_held() -> bool:
        """Press as long as the panel says that rows have just moved."""
        if (
            also.refresh().reason_code != "held"
            and (button := panel.get_by_role("button", name="Hold after-it")).count()
        ):
            button.click()
        return also.refresh().reason_code == "held"

    wait_until(is_held, "it is held", every_s=0.6)
    assert waits.refresh().reason_code != "held"
    expect(row(panel, also)).to_contain_text("held; starts only when released", timeout=LIMIT_MS)
    lab.wait_until(lambda: "Release after-it" in panel.inner_html(), "its button says so")
    wait_until(
        lambda: _pressed(panel, "Release after-it") and also.refresh().reason_code != "held",
        "it is released",
        every_s=0.6,
    )

    # A counter-offer is taken by its button: one GPU is free.
    wait_until(
        lambda: _pressed(panel, "Why does it wait: after-it") and "1 GPU instead of 2" in panel.inner_text(),
        "an offer",
        every_s=0.6,
    )
    page.screenshot(pictures / "panel-explain-light.png", panel)
    panel.get_by_role("button", name="Start now").first.click()
    lab.wait_until(lambda: also.refresh().state == "cancelled", "the job gives way")
    taken = lab.wait_until(
        lambda: next(iter(lab.client.jobs(state="active", name="after-it")), None), "the changed one is there"
    )
    lab.wait_until(
        lambda: taken.refresh().state == "running" and taken.refresh().gpus == 1, "the changed one runs"
    )
    expect(panel).to_contain_text(f"after-it starts as {taken.id}", timeout=LIMIT_MS)

    wait_until(
        lambda: _pressed(panel, "Cancel train-0") and "Cancel “train-0” of me" in panel.inner_text(),
        "it is asked for",
        every_s=0.6,
    )
    expect(panel.locator(".mgpu-card")).to_contain_text("Cancel “train-0” of me")
    panel.get_by_role("button", name="Cancel the job").click()
    lab.wait_until(lambda: runs[0].refresh().state == "cancelled", "the job is cancelled")
    expect(row(panel, runs[0])).to_be_hidden(timeout=LIMIT_MS)

    # In a narrow column the reason stands below the job, and nothing is cut off.
    page.page.set_viewport_size({**SIZE, "width": 596})
    line = panel.locator(".mgpu-row:not(.mgpu-hide)").first
    wait_until(
        lambda: (
            (line.locator(".why").bounding_box() or {"y": 0})["y"]
            > (line.locator(".name").bounding_box() or {"y": 0})["y"] + 8
        ),
        "two lines",
    )
    assert panel.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.page.set_viewport_size({**SIZE, "height": 1100})

    panel.get_by_placeholder("job, user, state").fill("train-1")
    expect(panel.locator(".mgpu-cells:not(.head):visible")).to_have_count(1, timeout=LIMIT_MS)
    panel.get_by_placeholder("job, user, state").fill("user9")
    expect(panel).to_contain_text("No job matches “user9”.", timeout=LIMIT_MS)
    panel.get_by_placeholder("job, user, state").fill("")


def test_a_gpu_changes_when_a_job_starts(lab: Lab, page: LabPage, pictures: Path) -> None:
    panel = shown(page, GPUS)
    expect(panel.locator("tr[data-state='free']")).to_have_count(4, timeout=LIMIT_MS)
    job = submit(lab, "<i>fills</i>", gpus=4)
    other = submit(lab, "half", gpus=2)
    lab.wait_until(
        lambda: job.refresh().state == "running" and other.refresh().state == "running", "both run"
    )
    node = job.refresh().nodes[0]
    panel.get_by_role("radio", name=node).check(force=True)
    expect(panel.locator("tr[data-state='mine']")).to_have_count(4, timeout=LIMIT_MS)
    expect(panel.locator("tr[data-gpu='0']")).to_contain_text("me, <i>fills</i>")
    expect(panel.locator("tr[data-gpu='0'] .mgpu-plot path.n")).to_have_count(1, timeout=LIMIT_MS)
    expect(panel.locator(f".mgpu-wall[aria-label='{node}: 4 mine']")).to_have_count(1, timeout=LIMIT_MS)
    page.screenshot(pictures / "panel-gpus-light.png", panel)
    tile = panel.locator(
        f".mgpu-wall[aria-label='{other.refresh().nodes[0]}: 2 free, 2 mine'] .mgpu-t.free"
    ).first
    panel.get_by_role("checkbox", name="mine").check(force=True)
    expect(tile).to_have_css("opacity", "0.15", timeout=LIMIT_MS)
    panel.get_by_role("checkbox", name="mine").uncheck(force=True)
    expect(tile).to_have_css("opacity", "1", timeout=LIMIT_MS)
    job.cancel()
    expect(panel.locator("tr[data-state='free']")).to_have_count(4, timeout=LIMIT_MS)


def test_the_form_is_answered_while_it_is_filled_in(lab: Lab, page: LabPage, pictures: Path) -> None:
    panel = shown(page, SUBMIT)
    expect(panel).to_contain_text("Starts now", timeout=LIMIT_MS)
    panel.get_by_label("Time limit").fill("soon")
    expect(panel).to_contain_text("Time limit is not a time", timeout=LIMIT_MS)
    panel.get_by_label("Time limit").fill("00:10:00")
    panel.get_by_label("Name").fill("from the form")
    panel.get_by_label("Command").fill("sleep 3600")
    expect(panel.locator(".mgpu-line")).to_have_text(
        "%mgpu_srun --gpus 1 -t 00:10:00 --name 'from the form' -- sleep 3600", timeout=LIMIT_MS
    )
    expect(panel).to_contain_text("Starts now", timeout=LIMIT_MS)
    node = sorted(lab.node_states())[0]
    panel.get_by_role("button", name=f"Ask for GPU 2 of {node}").click()
    expect(panel.locator(".mgpu-line")).to_contain_text(f"--node-gpu-ids {node}:2", timeout=LIMIT_MS)
    page.screenshot(pictures / "panel-submit-light.png", panel)
    panel.get_by_role("button", name="Submit").click()
    expect(panel).to_contain_text("Submitted from the form as", timeout=LIMIT_MS)
    job = next(iter(lab.client.jobs(state="active", name="from the form")))
    lab.wait_until(lambda: job.refresh().state == "running", "it runs")
    assert [(place.node, place.gpu_indices) for place in job.refresh().placements] == [(node, (2,))]

    # Folded fields, and a Python cell that is written below with its variables.
    panel.get_by_role("button", name="Let mgpu choose").click()
    panel.get_by_role("button", name="More").click()
    panel.get_by_label("Never on").fill(node)
    panel.get_by_label("If it fails").select_option("retry once")
    panel.get_by_role("button", name="Python cell").click()
    panel.get_by_label("Variables out").fill("answer")
    panel.get_by_label("Python").fill("answer = 6 * 7")
    line = (
        f"%%mgpu_srun --gpus 1 --exclude {node} -t 00:10:00 --name 'from the form' --retries 1 --out answer"
    )
    expect(panel.locator(".mgpu-line")).to_have_text(f"{line}\nanswer = 6 * 7", timeout=LIMIT_MS)
    expect(panel).to_contain_text("would start now", timeout=LIMIT_MS)
    page.screenshot(pictures / "panel-more-light.png", panel)
    # Where no output can make a cell, there is no such button but a hint to copy.
    told = page.page.evaluate(
        "() => { const now = document.body.dataset.jpThemeName; delete document.body.dataset.jpThemeName; "
        "return now; }"
    )
    expect(panel.get_by_role("button", name="Write a cell")).to_be_hidden()
    expect(panel.locator(".mgpu-copy")).to_be_visible()
    page.page.evaluate("now => { document.body.dataset.jpThemeName = now; }", told)
    expect(panel.locator(".mgpu-copy")).to_be_hidden()
    panel.get_by_role("button", name="Write a cell").click()
    # The notebook was written by a program, so that JupyterLab does not trust it and asks.
    page.page.locator(".jp-Dialog").get_by_role("button", name="Run Once").click()
    written = page.cell(SUBMIT + 1).locator(".cm-content .cm-line")
    expect(written).to_have_text([line, "answer = 6 * 7"], timeout=LIMIT_MS)
    page.command("notebook:delete-cell")


def test_a_job_is_followed(lab: Lab, page: LabPage, pictures: Path) -> None:
    script = (
        "import time\nfor n in range(4000):\n print('step', n, '<script>alert(1)</script>', "
        "flush=True); time.sleep(0.3)"
    )
    job = lab.client.submit(["python3", "-c", script], gpus=2, name="followed", time_limit=3600)
    lab.wait_until(lambda: job.refresh().state == "running", "it runs")
    panel = shown(page, JOB)
    panel.get_by_role("combobox").select_option(f"followed · {job.id}")
    expect(panel.locator(".mgpu-lines")).to_contain_text("step 3 <script>alert(1)</script>", timeout=LIMIT_MS)
    expect(panel).to_contain_text("asked 2, used", timeout=LIMIT_MS)
    expect(panel.locator(".mgpu-gp")).to_have_count(2, timeout=LIMIT_MS)
    expect(panel.locator(".mgpu-way")).to_be_visible()
    page.screenshot(pictures / "panel-job-light.png", panel)
    panel.get_by_role("button", name="Cancel", exact=True).click()
    panel.get_by_role("button", name="Cancel it now").click()
    lab.wait_until(lambda: job.refresh().state == "cancelled", "it is cancelled")
    expect(panel.get_by_role("button", name="Run again")).to_be_visible(timeout=LIMIT_MS)
    page.theme("dark")
    page.screenshot(pictures / "panel-job-dark.png", panel)
    page.theme("light")
