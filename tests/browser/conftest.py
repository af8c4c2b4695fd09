from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.lab import LIMIT_MS, Lab, LabPage
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import TEST_LIMIT_S
from tests.ui import assets

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SIZE = {"width": 1280, "height": 900}
expect.set_options(timeout=LIMIT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    served = assets.is_current(assets.SERVED)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(TEST_LIMIT_S))
            if CHROMIUM is None:
                item.add_marker(
                    pytest.mark.skip(reason="There is no Chromium: install your system's chromium package.")
                )
            if not served:
                item.add_marker(
                    pytest.mark.skip(
                        reason="What JupyterLab serves was not built from these sources: make ui."
                    )
                )


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for the tests of one file: while it is open, asyncio has a running loop in this thread, which
    other tests cannot bear.
    """
    assert CHROMIUM is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser of one's own: no cookies, no storage."""
    with chromium.new_context(viewport=SIZE, locale="en-GB") as context:
        yield context


@pytest.fixture(scope="module")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab") / "cluster") as lab:
        lab.start_lab()
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """JupyterLab with two nodes of four simulated GPUs each, idle; the tests of a module share it."""
    yield shared_lab
    for job in shared_lab.client.jobs(state="active"):
        job.cancel()
    shared_lab.wait_until(lambda: not list(shared_lab.client.jobs(state="active")), "nothing runs any more")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: `MGPU_PICTURES` keeps them to be looked at."""
    return Path(os.environ.get("MGPU_PICTURES", tmp_path / "pictures"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs below a failure, and keep a picture of every tab where `MGPU_PICTURES` says."""
    report = yield
    if report.when == "call" and report.failed and isinstance(item, pytest.Function):
        given = item.funcargs.values()
        report.sections += [
            ("the cluster", cluster.report()) for cluster in {c for c in given if isinstance(c, Cluster)}
        ]
        if (kept := os.environ.get("MGPU_PICTURES")) is not None:
            pages = [page for one in given if isinstance(one, BrowserContext) for page in one.pages]
            for number, page in enumerate(pages):
                _keep(page, Path(kept) / f"failed-{item.name}-{number}.png")
    return report


def _keep(page: Page | LabPage, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (page.page if isinstance(page, LabPage) else page).screenshot(path=str(path))
