"""A terminal of JupyterLab finds the master by itself, and mgpu's programs too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from tests.browser.lab import Lab, LabPage
from tests.processes import wait_until

_OPEN = """
async () => {
  const panel = await window.jupyterapp.commands.execute('terminal:create-new');
  window.mgpuTestTerminal = panel.content;
  return true;
}
"""
_LINES = """
() => {
  const term = window.mgpuTestTerminal && window.mgpuTestTerminal._term;
  if (!term) return [];
  const buffer = term.buffer.active;
  return Array.from({ length: buffer.length }, (_, at) => buffer.getLine(at).translateToString(true));
}
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab") / "cluster") as lab:
        lab.start_demo()
        yield lab


def lines(page: LabPage) -> list[str]:
    shown: list[str] = page.page.evaluate(_LINES)
    return [line for line in shown if line]


def test_a_terminal_of_the_demo_works_at_once(demo: Lab, context: BrowserContext, pictures: Path) -> None:
    page = demo.open(context)
    page.page.evaluate(_OPEN)
    wait_until(lambda: lines(page), "the shell shows its prompt")
    page.page.keyboard.type(
        "clear; mgpu_queue; mgpu_srun --gpus 1 -- echo ran on $((40+2)) GPUs; echo over $?\n"
    )
    wait_until(lambda: "over 0" in lines(page), "the commands are over")

    shown = lines(page)
    page.screenshot(pictures / "terminal.png")
    assert [line for line in shown if line.startswith("---")] == [
        "--- Running Jobs ---",
        "--- Queue ---",
        "--- Cluster Status ---",
    ]
    assert "ran on 42 GPUs" in shown
