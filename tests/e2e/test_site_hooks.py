"""A site with a prolog and an epilog whose node runs jobs as their users: what a hostile job can make of
these, which is nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.login import read_line
from mgpu_jupyter.model.job import JobState
from tests.e2e.cluster import BIN
from tests.e2e.people import OsUser, Shared, open_directory, python_for_all, why_not

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]

LIBRARY = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void ran(void) {
    FILE *file = fopen("%s", "a");
    if (file) { fprintf(file, "%%d\\n", (int) geteuid()); fclose(file); }
}
"""


class Site:
    """One hostile user on a site that tidies up before and after jobs."""

    def __init__(self, cluster: Shared, ann: OsUser) -> None:
        self.cluster, self.ann = cluster, ann
        self.client = Client.of_login(read_line(cluster.client.admin.add_user(ann.name).line))

    def write(self, name: str, text: str) -> Path:
        """Write a program of the user's."""
        path = self.ann.home / name
        path.write_text(text)
        path.chmod(0o755)
        os.chown(path, self.ann.uid, self.ann.gid)
        return path

    def uids(self) -> set[str]:
        """Return as whom programs of the user's ran."""
        path = self.ann.home / "ran"
        return set(path.read_text().split()) if path.exists() else set()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(open_directory())
        cluster = stack.enter_context(Shared(tmp_path_factory.mktemp("site-hooks") / "cluster"))
        ann = stack.enter_context(OsUser(place, *python_for_all(place)))
        hook = "date > /dev/null; ls > /dev/null"
        cluster.start_shared_master(
            f"--MgpuApp.prolog={hook}", f"--MgpuApp.epilog={hook}", "--MgpuApp.node_failures=2"
        )
        # A descriptor and a variable that somebody left when the node was started.
        node = [
            str(BIN / "mgpu_node"),
            "--node-id",
            "n1",
            "--fake-gpus",
            "1",
            "--master-port",
            str(cluster.port),
        ]
        left = ["/bin/sh", "-c", 'exec 9</etc/shadow; TMP_MGPU_SECRET=x exec "$@"', "sh"]
        cluster.start_agent("n1", [*left, *node, "--run-as-user", "--scratch-dir", str(place / "scratch")])
        site = Site(cluster, ann)
        yield site
        site.client.close()


def test_a_path_of_the_jobs_own_runs_nothing_as_root(site: Site) -> None:
    site.write("date", f"#!/bin/sh\n/usr/bin/id -u >> {site.ann.home}/ran\n")
    site.write("ls", f"#!/bin/sh\n/usr/bin/id -u >> {site.ann.home}/ran\n")
    env = {
        "PATH": f"{site.ann.home}:/usr/bin:/bin",
        "BASH_ENV": str(site.ann.home / "date"),
        "ENV": str(site.ann.home / "date"),
    }
    job = site.client.submit(["/bin/sh", "-c", "date"], gpus=0, env=env, chdir=str(site.ann.home))
    assert job.wait(60).state == JobState.COMPLETED, job.info
    assert site.uids() == {str(site.ann.uid)}


def test_a_library_that_is_preloaded_runs_nothing_as_root(site: Site) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to make a library")
    source = site.write("trap.c", LIBRARY % f"{site.ann.home}/ran")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(site.ann.home / "trap.so"), str(source)], check=True)
    (site.ann.home / "ran").unlink(missing_ok=True)
    job = site.client.submit(["/bin/true"], gpus=0, env={"LD_PRELOAD": str(site.ann.home / "trap.so")})
    assert job.wait(60).state == JobState.COMPLETED, job.info
    assert site.uids() == {str(site.ann.uid)}


def test_no_environment_and_no_directory_of_a_job_makes_a_node_unhealthy(site: Site) -> None:
    gone = site.ann.home / "gone"
    gone.mkdir(mode=0o755)
    os.chown(gone, site.ann.uid, site.ann.gid)
    hostile = (
        {"PATH": "/nonexistent"},
        {"LD_PRELOAD": "/no/such.so", "IFS": "t"},
        {"HOME": "/no", "TMPDIR": "/no"},
    )
    jobs = [site.client.submit(["/bin/true"], gpus=0, env=env) for env in hostile]
    assert [job.wait(60).state for job in jobs] == [JobState.COMPLETED] * len(jobs)
    lost = site.client.submit(["/bin/true"], gpus=0, chdir=str(gone), prolog=f"rmdir {gone}")
    assert lost.wait(60).state == JobState.FAILED
    assert site.cluster.node_states() == {"n1": "online"}
    assert site.client.submit(["/bin/true"], gpus=0).wait(60).state == JobState.COMPLETED


def test_nothing_that_the_agent_was_started_with_is_open_in_a_job(site: Site) -> None:
    job = site.client.submit(["/bin/sh", "-c", "ls -l /proc/self/fd; cat <&9"], gpus=0)
    job.wait(60)
    assert job.output().count(" -> ") == 4
    assert "shadow" not in job.output()
    assert "root:" not in job.output()


def test_variables_of_roots_environment_do_not_reach_a_job(site: Site) -> None:
    job = site.client.submit(["/usr/bin/env"], gpus=0)
    assert job.wait(60).state == JobState.COMPLETED
    names = {line.partition("=")[0] for line in job.output().splitlines()}
    known = {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "PWD",
        "PYTHONUNBUFFERED",
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
    }
    passed = {
        name
        for name in os.environ
        if name in ("LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH") or name.startswith("LC_")
    }
    proxies = {
        name
        for name in os.environ
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT") or name == "REQUESTS_CA_BUNDLE"
    }
    assert {name for name in names if not name.startswith("MGPU_")} <= known | passed | proxies
    assert "TMP_MGPU_SECRET" not in names
