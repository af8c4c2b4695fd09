"""`make pictures`: every view of the sidebar in light and dark, as docs/sidebar.md shows them, of one small
story in a real JupyterLab.

Six nodes with eight simulated GPUs, four users, jobs that run, wait, are held and are over. It waits for what
a picture is to show.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.login import read_line
from mgpu_jupyter.demo.program import StopRequested, end_on_signals
from tests.browser.conftest import ARGUMENTS, CHROMIUM, SIZE
from tests.browser.lab import Lab, LabPage

DOCS = Path(__file__).parents[2] / "mgpu_jupyter" / "docs" / "pictures"
MINUTE_S = 60
SLEEP = ["sleep", "3600"]
TRAIN = r"""
import os, sys, time
rank = int(os.environ["MGPU_RANK"])
print("nccl: 8 ranks on 2 nodes, ring over eth1\nmodel 7b: 6.74 B parameters, bf16\nmemory after load: 56.9 GiB", flush=True)
for step in range(20, 4000, 20):
    if rank == 0:
        print(f"step {step:4}/4000  loss {2.3 + 6 / (step + 40):.3f}  lr 2.9e-4  71.{step % 7} k tok/s", flush=True)
    if rank == 6 and step == 260:
        print("slow batch: 1.9 s (median 0.8 s)", file=sys.stderr, flush=True)
    time.sleep(0.02 if step < 440 else 10)
"""  # noqa: E501


class Story:
    """Who runs what; names of jobs to their ids."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.ids: dict[str, str] = {}

    def submit(
        self, name: str, client: Client | None = None, command: list[str] = SLEEP, **wishes: object
    ) -> None:
        """Have a job, and remember it."""
        self.ids[name] = (client or self._lab.client).submit(command, name=name, **wishes).id

    def wait_for(self, state: str, *names: str) -> None:
        """Wait until these jobs have come so far."""
        self._lab.wait_until(
            lambda: {self._lab.job_states().get(self.ids[name]) for name in names} == {state},
            f"{names} are {state}",
            60,
        )


@contextlib.contextmanager
def told(lab: Lab) -> Iterator[Story]:
    """Let the story happen."""
    with contextlib.ExitStack() as stack:
        others = [
            Client.of_login(read_line(lab.client.admin.add_user(f"user{number}").line))
            for number in (1, 2, 3)
        ]
        for client in others:
            stack.callback(client.close)
        one, two, three = others
        story = Story(lab)
        story.submit("eval-mmlu", command=["true"], gpus=4)
        story.submit("finetune-13b", command=["sh", "-c", "exit 1"], gpus=4)
        story.wait_for("completed", "eval-mmlu")
        story.wait_for("failed", "finetune-13b")
        lab.client.admin.change_node("node-6", "drain", reason="kernel update")
        pair = {"nodes": 2, "gpus_per_node": 4, "nodelist": "node-1,node-2"}
        story.submit(
            "train-7b",
            command=[sys.executable, "-c", TRAIN],
            ntasks_per_node=4,
            time_limit=180 * MINUTE_S,
            **pair,
        )
        story.submit("pretrain-xl", one, time_limit=180 * MINUTE_S, **pair)
        story.submit("eval-sweep", two, gpus=6, nodelist="node-3", time_limit=38 * MINUTE_S)
        story.submit("ablate", one, gpus=2, nodelist="node-3", time_limit=131 * MINUTE_S)
        story.submit("diffusion", three, gpus=5, nodelist="node-4", time_limit=25 * MINUTE_S)
        story.wait_for("running", "train-7b", "pretrain-xl", "eval-sweep", "ablate", "diffusion")
        story.submit("pretrain-xl-2", one, nodes=4, gpus_per_node=8, time_limit=240 * MINUTE_S)
        lab.client.job(story.ids["pretrain-xl-2"]).update(priority=1)
        story.submit("export", three, gpus=6, nodelist="node-3", time_limit=10 * MINUTE_S)
        story.submit("finetune-13b-2", nodes=2, gpus_per_node=6, time_limit=60 * MINUTE_S)
        story.submit("sweep-lr", gpus=8, hold=True)
        yield story


def busy_for_a_while(page: LabPage) -> None:
    """Wait until the GPUs that are held have come to their load."""
    page.page.wait_for_function(
        "() => { const held = [...document.querySelectorAll('#mgpu-cluster [data-state=mine], #mgpu-cluster "
        "[data-state=others]')];"
        "return held.length > 20 && held.every(one => Number(one.dataset.busy) > 50); }",
        timeout=120_000,
    )


def take_all(lab: Lab, page: LabPage, story: Story, folder: Path, theme: str) -> None:
    """Take the pictures of one theme."""
    browser = page.page
    view = browser.locator("[data-job-view]:visible")

    def take(name: str) -> None:
        page.screenshot(folder / f"lab-{name}-{theme}.png")

    busy_for_a_while(page)
    take("sidebar")
    browser.locator("#mgpu-cluster [data-node=node-2][data-place='2']").hover()
    expect(browser.locator("#mgpu-card .mgp-spark")).to_be_visible()
    take("card")
    browser.mouse.move(900, 700)
    page.command("mgpu:open-job", id=story.ids["train-7b"])
    expect(view.locator("[role=log]")).to_contain_text("step  440/4000")
    expect(view.locator("aside")).to_contain_text("so far")
    take("job")
    page.command("mgpu:explain-job", id=story.ids["finetune-13b-2"])
    expect(view).to_contain_text("How sure is")
    expect(view.locator(".mgp-plan")).to_be_visible()
    take("explain")
    view.get_by_role("button", name="Edit").click()
    expect(browser.locator(".jp-Dialog").get_by_label("Priority")).to_be_visible()
    take("edit")
    browser.locator(".jp-Dialog").get_by_role("button", name="Leave it").click()
    page.command("mgpu:open-node", id="node-3")
    node = browser.locator("[data-node-view=node-3]")
    expect(node.locator(f'[data-job-here="{story.ids["export"]}"]')).to_be_visible()
    take("node")
    node.get_by_role("button", name="Drain…").click()
    expect(browser.locator(".jp-Dialog")).to_contain_text("expected here")
    take("drain")
    browser.locator(".jp-Dialog").get_by_role("button", name="Cancel").click()
    page.command("mgpu:open-dashboard")
    browser.locator("[data-column=node-4]").hover()
    expect(browser.locator(".mgp-card")).to_contain_text("diffusion")
    take("dashboard")
    browser.mouse.move(900, 700)
    page.command("mgpu:new-job")
    form = browser.locator(".mgp-submit")
    form.get_by_label("What to run").fill("python finetune.py --model 13b")
    form.get_by_label("GPUs on each").fill("2")
    form.get_by_label("Name", exact=True).fill("finetune-13b")
    expect(form.locator("[data-verdict=now]")).to_contain_text("Starts now")
    expect(form.locator(".mgp-sizes")).to_contain_text("now")
    take("submit")
    browser.evaluate("() => void window.jupyterapp.commands.execute('mgpu:add-machine')")
    browser.locator(".jp-Dialog").get_by_role("button", name="Make join line").click()
    expect(browser.locator(".jp-Dialog .mgp-join-line")).to_be_visible()
    take("add")
    browser.locator(".jp-Dialog").get_by_role("button", name="Close").click()
    if theme == "light":
        page.theme("contrast")
        page.screenshot(folder / "lab-contrast.png")


def opened(lab: Lab, browser: Browser, theme: str) -> LabPage:
    """Open JupyterLab with a notebook and the sidebar."""
    page = lab.open(
        browser.new_context(viewport=SIZE, locale="en-GB"), "train.ipynb", theme=theme, workspace=theme
    )
    page.wait_for_kernel()
    page.command("mgpu:show-panel")
    page.page.evaluate("() => window.jupyterapp.shell._hsplitPanel.setRelativeSizes([318, 962, 0])")
    expect(page.page.locator("[data-live=live]")).to_be_visible()
    return page


def main() -> int:
    """Take them all; return the exit code."""
    parser = argparse.ArgumentParser(prog="make pictures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, default=DOCS)
    folder = parser.parse_args().to
    if CHROMIUM is None:
        print("There is no Chromium: install your system's chromium package.", file=sys.stderr)
        return 1
    end_on_signals()
    expect.set_options(timeout=60_000)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="mgpu-pictures-") as directory,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            with Lab(Path(directory) / "full", simulate="6x8") as lab:
                lab.start_lab()
                lab.write_notebook(
                    "train.ipynb",
                    ["%%mgpu_srun --nodes 2 --gpus-per-node 4 -t 03:00:00 --name train-7b\nimport train"],
                )
                with told(lab) as story:
                    pages = {theme: opened(lab, browser, theme) for theme in ("light", "dark")}
                    for theme, page in pages.items():
                        take_all(lab, page, story, folder, theme)
                    pages["light"].theme("light")
                    lab.stop("lab")
                    for theme, page in pages.items():
                        expect(page.page.locator("#mgpu-panel")).to_contain_text(
                            "No connection to the Jupyter server"
                        )
                        page.screenshot(folder / f"lab-stale-{theme}.png")
            with Lab(Path(directory) / "empty", simulate="") as lab:
                lab.start_lab("--MgpuApp.local_agent=False")
                lab.write_notebook("train.ipynb", ["print(1)"])
                for theme in ("light", "dark"):
                    page = opened(lab, browser, theme)
                    expect(page.page.locator("#mgpu-cluster")).to_contain_text("No machines yet")
                    page.screenshot(folder / f"lab-empty-{theme}.png")
            browser.close()
    except StopRequested as error:
        print(f"Stopped by {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
