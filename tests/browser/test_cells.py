"""A cell that runs on GPUs, in a real JupyterLab in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import BrowserContext

from tests.browser.lab import Lab


def test_a_cell_runs_on_a_gpu(lab: Lab, context: BrowserContext, pictures: Path) -> None:
    lab.write_notebook(
        "one.ipynb",
        [
            "%load_ext mgpu_jupyter",
            "%%mgpu_srun --gpus 2\nimport os\nprint('GPUs', len(os.environ['MGPU_GPUS'].split(',')))",
        ],
    )
    page = lab.open(context, "one.ipynb")
    page.wait_for_kernel()
    page.run(0)
    page.run(1)
    assert "GPUs 2" in page.text(1)
    page.screenshot(pictures / "one.png")
