"""The sidebar in a real JupyterLab: GPUs that change, cancelling, adding a machine, a server that is lost,
hostile names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests import hostile
from tests.bench.page import Frames
from tests.bench.ui import told
from tests.browser.hostile import HOSTILE, HostileServer, assert_harmless
from tests.browser.lab import Lab, LabPage
from tests.processes import wait_until

SLEEP = ["sleep", "600"]


def show(lab: Lab, context: BrowserContext, workspace: str = "auto", theme: str = "light") -> LabPage:
    page = lab.open(context, theme=theme, workspace=workspace)
    # the launcher takes the focus when it comes
    expect(
        page.page.locator(".jp-Launcher:visible, .mgp-view:visible, .jp-NotebookPanel:visible").first
    ).to_be_visible()
    page.command("mgpu:show-panel")
    expect(page.page.locator("[data-live=live]")).to_be_visible()
    return page


def tiles(page: Page, state: str) -> Locator:
    return page.locator(f"#mgpu-cluster [role=gridcell][data-state={state}]")


def row(page: Page, job_id: str) -> Locator:
    return page.locator(f"#mgpu-panel [data-job='{job_id}']")


def drawn(page: Page) -> None:
    """Wait until the browser has drawn what changed: the second picture from now on has it."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_gpus_change_when_a_job_starts_and_is_cancelled(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context).page
    expect(tiles(page, "free")).to_have_count(8)
    expect(page.locator(".mgp-status-button")).to_contain_text("8 free · 0 running · 0 waiting")
    job = lab.client.submit(SLEEP, gpus=3, name="train-7b")
    expect(tiles(page, "mine")).to_have_count(3)
    expect(page.locator(".mgp-status-button")).to_contain_text("5 free · 1 running · 0 waiting")
    expect(page.locator(".mgp-headline")).to_contain_text("5 of 8")
    label = tiles(page, "mine").first.get_attribute("aria-label") or ""
    assert "train-7b" in label
    assert "simulated" in label
    waits = lab.client.submit(SLEEP, gpus=8, nodes=2, name="waits")
    expect(row(page, waits.id)).to_contain_text("1st in queue")
    expect(row(page, job.id)).to_contain_text("busy")
    row(page, waits.id).hover()
    row(page, waits.id).get_by_role("button", name="Hold").click()
    expect(row(page, waits.id)).to_contain_text("Held")
    row(page, waits.id).hover()
    row(page, waits.id).get_by_role("button", name="Cancel").click()
    row(page, job.id).hover()
    row(page, job.id).get_by_role("button", name="Cancel").click()
    expect(tiles(page, "free")).to_have_count(8)
    expect(page.locator("#mgpu-history")).to_contain_text("cancelled after")


def test_an_update_is_as_large_as_what_changed(lab: Lab, context: BrowserContext) -> None:
    opened: list[Frames] = []
    context.on("page", lambda page: opened.append(Frames(page)))
    page = show(lab, context).page
    lab.client.submit(SLEEP, gpus=3, name="moves")
    expect(tiles(page, "mine")).to_have_count(3)
    frames = opened[0]

    def several() -> bool:
        page.wait_for_timeout(100)
        return len(frames.of("samples")) >= 6

    wait_until(several, "readings came several times")
    assert frames.sockets == 1  # for all views
    before: dict[tuple[str, str], list[int]] = {}
    for frame in frames.of("samples"):
        now = {
            (node, index): reading
            for node, told_of in json.loads(frame)["nodes"].items()
            for index, reading in told_of.get("gpus", {}).items()
        }
        unchanged = {gpu for gpu, reading in now.items() if before.get(gpu) == reading}
        assert unchanged == set(), frame
        before |= now
        assert len(frame) <= 40 * told(frame) + 80 * len(json.loads(frame)["nodes"]) + 60, frame


def test_the_wall_by_keyboard(lab: Lab, context: BrowserContext) -> None:
    job = lab.client.submit(SLEEP, gpus=1, name="keys")
    page = show(lab, context).page
    expect(tiles(page, "mine")).to_have_count(1)
    stops = page.locator("#mgpu-cluster [role=gridcell][tabindex='0']")
    expect(stops).to_have_count(1)
    stops.focus()
    expect(page.locator(".mgp-card")).to_be_visible()
    page.keyboard.press("ArrowRight")
    focused = page.locator("#mgpu-cluster [role=gridcell]:focus")
    expect(focused).to_have_attribute("data-place", "1")
    page.keyboard.press("ArrowDown")
    expect(focused).to_have_attribute("data-node", "node-2")
    page.keyboard.press("End")
    expect(focused).to_have_attribute("data-place", "3")
    page.keyboard.press("Escape")
    expect(page.locator(".mgp-card")).to_have_count(0)
    row(page, job.id).focus()
    page.keyboard.press("Delete")
    expect(tiles(page, "mine")).to_have_count(0)


def test_priority_by_keys_menu_and_drag(lab: Lab, context: BrowserContext) -> None:
    lab.client.submit(SLEEP, nodes=2, gpus_per_node=4, name="holds-all")
    first, second = (lab.client.submit(SLEEP, gpus=8, nodes=2, name=name).id for name in ("first", "second"))
    page = show(lab, context).page
    expect(row(page, second)).to_contain_text("2nd in queue")
    row(page, second).focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(row(page, second)).to_contain_text("1st in queue")
    row(page, second).click(button="right")
    page.get_by_role("menuitem", name="Lower Priority").click()
    expect(row(page, second)).to_contain_text("2nd in queue")
    page.locator("#mgpu-panel .mgp-head").hover()  # out of the list: what moved is shown again
    page.evaluate("() => document.activeElement.blur()")
    row(page, second).drag_to(row(page, first), target_position={"x": 40, "y": 4})
    expect(row(page, second)).to_contain_text("1st in queue")


def test_a_machine_is_added_by_its_line(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    page.page.evaluate("() => { window.jupyterapp.commands.execute('mgpu:add-machine'); }")
    dialog = page.page.locator(".jp-Dialog")
    dialog.get_by_role("button", name="Make join line").click()
    expect(dialog.locator(".mgp-join-line")).to_contain_text("mgpu_node --join mgpu1")
    expect(dialog).to_contain_text("Good for one machine, until")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_the_layout_is_found_again_after_a_reload(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context, workspace="layout")
    page.page.locator("#mgpu-panel .jp-AccordionPanel-title").nth(2).click(position={"x": 12, "y": 14})
    expect(page.page.locator("#mgpu-history")).to_be_hidden()
    saved = "async () => JSON.stringify(await window.jupyterapp.serviceManager.workspaces.fetch('layout'))"
    wait_until(lambda: "true,true,false" in page.page.evaluate(saved).replace(" ", ""), "the layout is saved")
    page.page.reload()
    expect(page.page.locator("#mgpu-cluster .mgp-headline")).to_be_visible()
    expect(page.page.locator("#mgpu-history")).to_be_hidden()


def test_hostile_names_are_text(lab: Lab, context: BrowserContext) -> None:
    names = hostile.named(120, HOSTILE)
    page = show(lab, context).page
    for name in names:
        lab.client.submit(["true"], gpus=0, name=name, hold=True)
    expect(page.locator("#mgpu-queue [role=grid]")).to_have_attribute("aria-rowcount", "120")
    grid = page.locator("#mgpu-queue")
    seen = ""
    for _ in range(30):
        seen += grid.inner_text()
        grid.evaluate("node => { node.scrollTop += node.clientHeight * 0.8; }")
        drawn(page)
        assert grid.locator("[role=row]").count() < 60  # of 120
    assert "<img src" in seen
    assert_harmless(page)


def test_whatever_a_hostile_server_sends_is_text(lab: Lab, context: BrowserContext) -> None:
    """Users, nodes, reasons, logs, notices and titles of 500 kinds, from a server that sends what ours
    refuses.
    """
    runs = lab.client.submit(SLEEP, gpus=2, name="runs")
    lab.client.submit(SLEEP, gpus=8, nodes=2, name="waits")
    lab.wait_until(lambda: lab.job_states()[runs.id] == "running", "it runs")
    server = HostileServer(context, 500)
    opened = show(lab, context)
    page = opened.page
    page.locator("#mgpu-queue").get_by_role("radio", name="All").click()
    seen = ""
    for section in ("cluster", "queue", "history"):
        part = page.locator(f"#mgpu-{section}")
        for _ in range(12):
            seen += part.inner_text()
            part.evaluate("node => { node.scrollTop += node.scrollHeight / 12; }")
            drawn(page)
            assert_harmless(page)
    assert "<iframe srcdoc=" in seen
    page.locator("#mgpu-cluster [role=gridcell]:visible").first.hover()
    expect(page.locator(".mgp-card")).to_be_visible()
    assert_harmless(page)
    page.mouse.move(640, 5)  # the card would lie over the view
    expect(page.locator(".mgp-card")).to_have_count(0)
    user = lab.client.cluster().user
    mine = [one for one in server.jobs if one["state"] == "running" and one["user"] == user]
    for number, job in enumerate(mine[:20]):
        server.end(
            job,
            state="failed" if number % 2 else "completed",
            ended_at=job["started_at"] + 5,
            exit_code=number % 2,
        )
    expect(page.locator(".jp-toast-message").first).to_be_visible()
    assert_harmless(page)
    for kind, subject in (("job", runs.id), ("node", server.nodes[11]["id"]), ("cluster", "")):
        opened.command("mgpu:open-view", kind=kind, subject=subject)
        expect(page.locator(".mgp-view:visible").first).not_to_be_empty()
        for tab in page.locator(".mgp-view:visible [role=tab]").all():
            tab.click()
            page.wait_for_timeout(200)
            assert_harmless(page)
        if kind == "job":
            page.get_by_role("tab", name="Log").click()
            expect(page.locator("[role=log]:visible")).to_contain_text("__mgpu_hacked")
            assert "\x1b" not in page.locator("[role=log]:visible").inner_text()
        assert_harmless(page)
    opened.command("mgpu:open-terminal", id=server.nodes[11]["id"])
    expect(page.locator(".jp-toast-message", has_text="not the name of a node")).to_be_visible()
    assert page.locator(".jp-Terminal").count() == 0


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    """A JupyterLab that may be ended."""
    with Lab(tmp_path / "cluster", simulate="1x2") as lab:
        lab.start_lab()
        yield lab


def test_the_server_is_lost_and_comes_back(own_lab: Lab, context: BrowserContext) -> None:
    page = show(own_lab, context).page
    job = own_lab.client.submit(SLEEP, gpus=1, name="goes-on")
    expect(tiles(page, "mine")).to_have_count(1)
    own_lab.kill("lab")
    expect(page.locator("[data-live=stale]")).to_be_visible()
    expect(page.locator(".mgp-banner")).to_contain_text("Running jobs go on.")
    expect(page.locator(".mgp-status-button")).to_contain_text("GPUs: no connection")
    own_lab.start_lab()
    expect(page.locator("[data-live=live]")).to_be_visible()
    expect(tiles(page, "mine")).to_have_count(1)
    assert own_lab.client.job(job.id).state == "running"
