"""Views of the extension in a real JupyterLab: submit by form, watch the log, explain and take an offer,
drain a node, the dashboard.
"""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, expect

from mgpu_jupyter.client.job import Job
from tests.browser.lab import Lab
from tests.browser.test_sidebar import SLEEP, row, show, tiles
from tests.contract.request_lines import ROWS

TYPED = "echo '<b>hello</b>' from $((40 + 2)); sleep 600"


def test_submit_by_form_watch_the_log_and_cancel(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    page.command("mgpu:new-job")
    form = page.page.locator(".mgp-submit")
    form.get_by_label("What to run").fill(TYPED)
    form.get_by_label("GPUs on each").fill("2")
    form.get_by_label("Name", exact=True).fill("by-form")
    expect(form.locator("[data-verdict=now]")).to_contain_text("Starts now")
    form.get_by_label("Time limit").fill("soon")
    expect(form.locator("[data-verdict=error]")).to_contain_text("Time limit is not a time")
    form.get_by_label("Time limit").fill("01:00:00")
    expect(form.locator(".mgp-join-line")).to_have_text(
        f"%mgpu_srun --gpus 2 -t 01:00:00 --name by-form -- {TYPED}"
    )
    form.locator(".mgp-more summary").click()
    form.get_by_label("Never on").select_option("node-1")
    form.get_by_label("If it fails").select_option("2")
    expect(form.locator(".mgp-join-line")).to_contain_text(
        "--exclude node-1 -t 01:00:00 --name by-form --retries 2"
    )
    expect(form.locator("[data-verdict=now]")).to_contain_text("on node-2")
    expect(form.locator(".mgp-tile-tick")).to_have_count(3)  # two GPUs and the legend
    expect(form.locator(".mgp-sizes")).to_contain_text("now, node-2")
    form.get_by_role("button", name="Submit").click()
    view = page.page.locator("[data-job-view]")
    expect(view.locator("[role=log]")).to_contain_text("<b>hello</b> from 42")
    expect(tiles(page.page, "mine")).to_have_count(2)
    expect(view.locator(".mgp-timeline")).to_contain_text("Left until the time limit")
    expect(view.locator("aside")).to_contain_text("asked 2")
    expect(view.locator("aside")).to_contain_text(re.compile(r"Power \d+ W, [\d.]+ Wh so far"))
    view.get_by_label("Search the log").fill("HELLO")
    expect(view.locator("mark")).to_have_text("hello")
    expect(view.locator(".mgp-search")).to_contain_text("1 of 1")
    view.get_by_role("button", name="Cancel").click()
    expect(view.locator(".mgp-badge")).to_have_text("cancelled")


def test_what_the_form_shows_is_what_the_server_reads(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    page.command("mgpu:new-job")
    form = page.page.locator(".mgp-submit:visible")

    def asked(label: str, text: str, line: str) -> dict[str, object]:
        """Fill in a field; return what the server read, which must be the line that is shown then."""
        with page.page.expect_response(
            lambda told: "/jobs/parse" in told.url and told.request.post_data_json["line"] == line
        ) as told:
            form.get_by_label(label, exact=True).fill(text)
        expect(form.locator(".mgp-join-line")).to_have_text(line)
        return told.value.json()

    for line in (line for line in ROWS if line.command):
        found = asked("What to run", line.typed, f"%mgpu_srun --gpus 1 -- {line.typed}")
        assert found["spec"] == {"command": list(line.command), "gpus": 1}
    asked("What to run", "true", "%mgpu_srun --gpus 1 -- true")
    asked("Nodes", "2", "%mgpu_srun --nodes 2 --gpus-per-node 1 -- true")
    asked("Name", "-it's", "%mgpu_srun --nodes 2 --gpus-per-node 1 --name='-it'\\''s' -- true")
    found = asked(
        "Time limit",
        "02:00:01",
        "%mgpu_srun --nodes 2 --gpus-per-node 1 -t 02:00:01 --name='-it'\\''s' -- true",
    )
    assert found["spec"] == {
        "command": ["true"],
        "nodes": 2,
        "gpus_per_node": 1,
        "name": "-it's",
        "time_limit_s": 7201.0,
    }
    found = asked(
        "Time limit", "soon", "%mgpu_srun --nodes 2 --gpus-per-node 1 -t soon --name='-it'\\''s' -- true"
    )
    assert found["message"] == next(line.sentence for line in ROWS if "-t soon" in line.flags)


def test_explain_and_take_an_offer(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    lab.client.submit(SLEEP, gpus=2, name="in-the-way")
    waits = lab.client.submit(SLEEP, gpus=8, nodes=2, name="too-large")
    expect(row(page.page, waits.id)).to_contain_text("1st in queue")
    row(page.page, waits.id).focus()
    page.page.keyboard.press("?")
    view = page.page.locator("[data-job-view]:visible")
    expect(view).to_contain_text("How sure is")
    expect(view.locator(".mgp-plan")).to_have_attribute(
        "aria-label", re.compile("in-the-way.*too-large \\(this job\\)")
    )
    view.get_by_label("when it starts").set_checked(False)
    offers = page.page.get_by_role("button", name="Start now")
    expect(offers.first).to_be_visible()
    offers.first.click()
    expect(page.page.locator("[data-job-view]:visible .mgp-badge")).to_have_text("running")
    lab.wait_until(lambda: lab.job_states()[waits.id] == "cancelled", "the old one gave way")


def test_edit_a_job_that_waits(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    waits = lab.client.submit(SLEEP, gpus=1, name="later", hold=True, time_limit=3600)
    page.command("mgpu:open-job", id=waits.id)
    view = page.page.locator("[data-job-view]:visible")
    view.get_by_role("button", name="Edit").click()
    dialog = page.page.locator(".jp-Dialog")
    expect(dialog.get_by_label("Time limit")).to_have_value("01:00:00")
    dialog.get_by_label("Time limit").fill("soon")
    dialog.get_by_label("Priority").fill("5")
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.get_by_role("alert")).to_have_text(
        "Time limit is not a time. Write hours, minutes and seconds, like 02:00:00."
    )
    expect(dialog.get_by_label("Priority")).to_have_value("5")
    dialog.get_by_label("Time limit").fill("00:30:00")
    dialog.get_by_role("button", name="Change").click()
    expect(view).to_contain_text("30 min limit")
    info = lab.client.job(waits.id).info
    assert (info.time_limit_s, info.priority) == (1800.0, 5)
    waits.cancel()


def test_drain_a_node_and_resume_it(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    runs = lab.client.submit(SLEEP, gpus=4, nodelist="node-2", name="ablate", time_limit=3600)
    lab.wait_until(lambda: lab.job_states()[runs.id] == "running", "it runs")
    waits = lab.client.submit(SLEEP, gpus=4, exclude="node-1", name="export", time_limit=600)
    page.command("mgpu:open-node", id="node-2")
    view = page.page.locator("[data-node-view=node-2]")
    expect(view).to_contain_text("Jobs here 1 running, 1 expected")
    expect(view.locator(f"[data-job-here='{waits.id}']")).to_contain_text(
        re.compile(r"export.*starts ≈ \d\d:\d\d")
    )
    view.get_by_role("button", name="Drain…").click()
    dialog = page.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text(
        f"It takes no new jobs. ablate of {runs.info.user} goes on to its end. The job expected here moves "
        f"to another node."
    )
    dialog.locator("input").fill("replace GPU 7")
    dialog.get_by_role("button", name="Drain").click()
    expect(view.locator(".mgp-badge")).to_have_text("draining")
    expect(page.page.locator("#mgpu-cluster")).to_contain_text("“replace GPU 7”")
    waits.cancel()
    runs.cancel()
    expect(tiles(page.page, "closed")).to_have_count(4)
    view.get_by_role("button", name="Resume").click()
    expect(tiles(page.page, "free")).to_have_count(8)


def test_dashboard_and_the_button_on_a_cell(lab: Lab, context: BrowserContext) -> None:
    lab.write_notebook("cells.ipynb", ["print(1)"])
    page = lab.open(context, "cells.ipynb")
    page.wait_for_kernel()
    page.cell(0).locator(".jp-cell-toolbar [data-command='mgpu:run-cell']").click()
    expect(page.cell(0)).to_contain_text("%%mgpu_srun --gpus 1")
    page.command("mgpu:open-dashboard")
    dashboard = page.page.locator(".mgp-dashboard")
    expect(dashboard).to_contain_text("of 2 online")
    expect(dashboard.locator(".mgp-column")).to_have_count(2)
    dashboard.get_by_role("radio", name="7 d").click()
    expect(dashboard).to_contain_text("over 7 d")
    dashboard.locator("[data-column=node-2]").hover()
    expect(page.page.locator(".mgp-card")).to_contain_text("GPUs 0–3: free")


def test_run_a_file_from_its_menu_and_a_terminal_on_a_node(lab: Lab, context: BrowserContext) -> None:
    (lab.root / "train.py").write_text("print(1)")
    page = show(lab, context, workspace="files")
    page.command("filebrowser:activate")
    page.page.locator(".jp-DirListing-item[data-file-type=python]").click(button="right")
    page.page.get_by_role("menuitem", name="Run on GPUs…").click()
    expect(page.page.locator(".mgp-submit").get_by_label("What to run")).to_have_value(
        re.compile(r"^cd .* && python train\.py$")
    )
    page.command("mgpu:open-node", id="node-2")
    page.page.locator("[data-node-view=node-2]").get_by_role("button", name="Terminal").click()
    expect(page.page.locator(".jp-Terminal")).to_be_visible()
    lab.wait_until(
        lambda: any(has_shell(job, "node-2") for job in lab.client.jobs(state="running")), "a shell on node-2"
    )


def has_shell(job: Job, node: str) -> bool:
    return job.snapshot is not None and job.snapshot.pty and list(job.snapshot.nodes) == [node]


HIDDEN = """
window.__told = [];
window.Notification = class { constructor(title, given) { window.__told.push(title + ': ' + given.body); }
  static requestPermission() { return Promise.resolve('granted'); } };
Object.defineProperty(document, 'hidden', { get: () => window.__hidden === true });
"""


def test_the_browser_tells_when_it_was_asked_to(lab: Lab, context: BrowserContext) -> None:
    context.add_init_script(HIDDEN)
    settings = lab.directory / "jupyter-config/lab/user-settings/@mgpu/labextension/core.jupyterlab-settings"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('{"notifyBrowser": true}')
    page = show(lab, context).page
    settings.unlink()
    page.evaluate("() => { window.__hidden = true; document.dispatchEvent(new Event('visibilitychange')); }")
    lab.client.submit(["false"], gpus=1, name="says-so")
    page.wait_for_function("() => window.__told.some(text => text.startsWith('“says-so” failed: exit 1'))")
