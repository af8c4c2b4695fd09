from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook

TEST_LIMIT_S = 600
"""For every test with its fixtures: longer than all waits within it, so that a test that fails says itself
what it waited for.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(TEST_LIMIT_S))


@pytest.fixture(scope="session", autouse=True)
def _end_in_order() -> Iterator[None]:
    """Make SIGTERM end the session like Ctrl-C, so that every cluster is taken down.

    And take Ctrl-C back: whoever runs this in the background of a script ignores it, and so would every
    program that is started here.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """An empty cluster: the test starts what it needs."""
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("shared") / "cluster") as cluster:
        cluster.start_master()
        cluster.start_node("n1")
        cluster.start_node("n2")
        yield cluster


@pytest.fixture
def two_nodes(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A master and the nodes n1 and n2 with four simulated GPUs each, idle; the tests of a module share
    them.
    """
    yield shared_cluster
    for job in shared_cluster.client.jobs(state="active"):
        job.cancel()
    shared_cluster.wait_until(
        lambda: not list(shared_cluster.client.jobs(state="active")), "nothing runs any more"
    )


@pytest.fixture(scope="module")
def kernel(shared_cluster: Cluster) -> Iterator[Notebook]:
    with Notebook(shared_cluster.env, shared_cluster.directory) as notebook:
        assert notebook.run("%load_ext mgpu_jupyter").error is None
        yield notebook


@pytest.fixture
def notebook(two_nodes: Cluster, kernel: Notebook) -> Notebook:
    """A kernel as a notebook has it, with the magics loaded."""
    return kernel


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the cluster's logs below a failure, while the cluster still stands."""
    report = yield
    if report.when == "call" and report.failed:
        given = item.funcargs.values() if isinstance(item, pytest.Function) else ()
        report.sections += [
            ("the cluster", cluster.report()) for cluster in {c for c in given if isinstance(c, Cluster)}
        ]
    return report
