"""Views of the extension in a real JupyterLab: submit by form, watch the log, explain and take an offer, drain a node, the dashboard."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, expect

from tests.browser.lab import Lab
from tests.browser.test_sidebar import SLEEP, row, show, tiles


def test_submit_by_form_watch_the_log_and_cancel(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    page.command("mgpu:new-job")
    form = page.page.locator(".mgp-submit")
    form.get_by_label("What to run").fill("echo '<b>hello</b>' from $((40 + 2)); sleep 600")
    form.get_by_label("GPUs on each").fill("2")
    form.get_by_label("Name", exact=True).fill("by-form")
    expect(form.locator("[data-verdict=now]")).to_contain_text("Starts now")
    form.get_by_label("Time limit").fill("soon")
    expect(form.locator("[data-verdict=error]")).to_contain_text("Time limit is not a time")
    form.get_by_label("Time limit").fill("01:00:00")
    expect(form.locator(".mgp-join-line")).to_have_text("%%mgpu_srun --gpus 2 -t 01:00:00 --name by-form")
    form.get_by_role("button", name="Submit").click()
    view = page.page.locator("[data-job-view]")
    expect(view.locator("[role=log]")).to_contain_text("<b>hello</b> from 42")
    expect(tiles(page.page, "mine")).to_have_count(2)
    view.get_by_role("button", name="Cancel").click()
    expect(view.locator(".mgp-badge")).to_have_text("cancelled")


def test_explain_and_take_an_offer(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    lab.client.submit(SLEEP, gpus=2, name="in-the-way")
    waits = lab.client.submit(SLEEP, gpus=8, nodes=2, name="too-large")
    expect(row(page.page, waits.id)).to_contain_text("1st in queue")
    row(page.page, waits.id).focus()
    page.page.keyboard.press("?")
    offers = page.page.get_by_role("button", name="Start now")
    expect(offers.first).to_be_visible()
    offers.first.click()
    expect(page.page.locator("[data-job-view]:visible .mgp-badge")).to_have_text("running")
    lab.wait_until(lambda: lab.job_states()[waits.id] == "cancelled", "the old one gave way")


def test_drain_a_node_and_resume_it(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    page.command("mgpu:open-node", id="node-2")
    view = page.page.locator("[data-node-view=node-2]")
    view.get_by_role("button", name="Drain…").click()
    page.page.locator(".jp-Dialog input").fill("replace GPU 7")
    page.page.locator(".jp-Dialog").get_by_role("button", name="Drain").click()
    expect(view.locator(".mgp-badge")).to_have_text("draining")
    expect(tiles(page.page, "closed")).to_have_count(4)
    expect(page.page.locator("#mgpu-cluster")).to_contain_text("“replace GPU 7”")
    view.get_by_role("button", name="Resume").click()
    expect(tiles(page.page, "free")).to_have_count(8)


def test_dashboard_and_the_button_on_a_cell(lab: Lab, context: BrowserContext) -> None:
    lab.write_notebook("cells.ipynb", ["print(1)"])
    page = lab.open(context, "cells.ipynb")
    page.wait_for_kernel()
    page.command("mgpu:run-cell")
    expect(page.cell(0)).to_contain_text("%%mgpu_srun --gpus 1")
    page.command("mgpu:open-dashboard")
    dashboard = page.page.locator(".mgp-dashboard")
    expect(dashboard).to_contain_text("of 2 online")
    expect(dashboard.locator(".mgp-column")).to_have_count(2)
