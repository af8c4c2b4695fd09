"""A node whose agent is root and runs jobs as their users: who they are, what they own, and that root is
nobody's by accident.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mgpu_agent.protocol.errors import Forbidden, MgpuError
from mgpu_jupyter import Client
from mgpu_jupyter.client.login import read_line
from mgpu_jupyter.model.job import JobState
from tests.e2e.cluster import bash
from tests.e2e.people import OsUser, Shared, open_directory, processes_of_user, python_for_all, why_not

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]


class Site:
    """A shared master, a node that runs jobs as their users, and who uses it."""

    def __init__(self, cluster: Shared, ann: OsUser, bob: OsUser, scratch: Path) -> None:
        self.cluster, self.ann, self.bob, self.scratch = cluster, ann, bob, scratch
        self._clients: dict[str, Client] = {}

    def of(self, name: str) -> Client:
        """Return the client of a user, who is added first."""
        if name not in self._clients:
            self._clients[name] = Client.of_login(read_line(self.cluster.client.admin.add_user(name).line))
        return self._clients[name]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_directory() as place, Shared(tmp_path_factory.mktemp("as-user") / "cluster") as cluster:
        python, env = python_for_all(place)
        with OsUser(place, python, env) as ann, OsUser(place, python, env) as bob:
            cluster.start_shared_master()
            scratch = place / "scratch"
            maps = ("--map-user", f"visitor={bob.name}", "--map-user", "operator=root")
            cluster.start_node("n1", 4, "--run-as-user", "--scratch-dir", str(scratch), *maps)
            site = Site(cluster, ann, bob, scratch)
            yield site
            site.close()


def test_jobs_of_two_users_run_under_their_uids_with_their_homes(site: Site) -> None:
    script = bash(
        'echo "$(id -un) $(id -u) $(id -G) $HOME $USER $LOGNAME $(stat -c %U .) $(stat -Lc %U%a '
        '/dev/stderr)"; pwd'
    )
    for person in (site.ann, site.bob):
        job = site.of(person.name).submit(script, gpus=1, chdir="/nowhere")
        assert job.wait(60).state == JobState.COMPLETED, job.info
        name, home = person.name, person.home
        who, where = job.output().splitlines()
        assert who == f"{name} {person.uid} {person.gid} {home} {name} {name} {name} {name}600"
        assert where == str(site.scratch / "n1" / "scratch" / job.id)


def test_a_user_of_another_name_gets_the_account_that_it_is_mapped_to(site: Site) -> None:
    job = site.of("visitor").submit(["id", "-un"], gpus=0)
    assert job.wait(60).state == JobState.COMPLETED, job.info
    assert job.output().strip() == site.bob.name


def test_root_is_refused_unless_it_was_mapped(site: Site) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    job = site.cluster.client.submit(["id", "-u"], gpus=0)
    assert job.wait(60).state == JobState.FAILED
    assert job.info.user == me
    assert job.info.reason.startswith("It could not be started on n1: No job runs as root on this node")
    service = site.of("daemon").submit(["id", "-u"], gpus=0)
    assert service.wait(60).state == JobState.FAILED
    assert "is an account of the system on this node" in service.info.reason
    stranger = site.of("nobody-knows").submit(["id", "-u"], gpus=0)
    assert stranger.wait(60).state == JobState.FAILED
    assert "This node has no account 'nobody-knows'" in stranger.info.reason
    mapped = site.of("operator").submit(["id", "-u"], gpus=0)
    assert mapped.wait(60).state == JobState.COMPLETED, mapped.info
    assert mapped.output().strip() == "0"
    assert site.cluster.node_states() == {"n1": "online"}


def test_variables_are_their_users_own(site: Site) -> None:
    """The job's account can read the runner and what was sent; nobody else gets what it leaves,
    administrators included.
    """
    python = shutil.which(
        f"python{sys.version_info[0]}.{sys.version_info[1]}", path="/usr/bin:/usr/local/bin"
    )
    if python is None:
        pytest.skip("this machine has no Python of this minor version that all users can run")
    body = """
import glob, os, stat
words = open("/proc/self/cmdline").read().split(chr(0))
place = words[words.index("--values") + 1]
b = (a, os.getuid(), [(path, os.stat(f"{place}/{path}").st_uid) for path in os.listdir(place)], oct(os.stat(place).st_mode & 0o777))
"""  # noqa: E501
    ann = site.of(site.ann.name)
    job = ann.submit(script=body, gpus=0, python=python, inputs={"a": [1, 2]}, outputs=["b"]).wait(60)
    assert job.state == JobState.COMPLETED, job.output()
    assert job.result() == ([1, 2], site.ann.uid, [("in", site.ann.uid)], "0o700")
    for other in (site.of(site.bob.name), site.cluster.client):
        with pytest.raises(Forbidden):
            other.job(job.id).result()


def test_a_cell_is_its_users_own_and_a_cancel_ends_processes_of_other_uids(site: Site) -> None:
    body = "#!/bin/bash\nstat -c '%U %a' $0; id -un; setsid sleep 300 & sleep 300\n"
    job = site.of(site.ann.name).submit(script=body, gpus=1)
    said = [f"{site.ann.name} 600", site.ann.name]
    site.cluster.wait_until(lambda: job.output().splitlines() == said, "the script is hers, as is its run")

    def all_of_it() -> list[int] | None:
        found = [
            process.pid
            for process in processes_of_user(site.ann.uid)
            if "mgpu_helper" not in process.cmdline()
        ]
        return found if len(found) >= 3 else None

    pids = site.cluster.wait_until(all_of_it, "all of it runs")
    job.cancel()
    job.wait(60)
    site.cluster.wait_until(lambda: not any(map(psutil.pid_exists, pids)), "none of its processes lives")


def test_a_directory_that_the_user_cannot_enter_is_not_entered_by_root_instead(site: Site) -> None:
    job = site.of(site.ann.name).submit(["pwd"], gpus=0, chdir=str(site.bob.home))
    assert job.wait(60).state == JobState.COMPLETED, job.info
    assert job.output().strip() == str(site.scratch / "n1" / "scratch" / job.id)
    assert "cannot be entered on this node" in job.info.placements[0].note
    own = site.of(site.ann.name).submit(["pwd"], gpus=0, chdir=str(site.ann.home))
    assert own.wait(60).state == JobState.COMPLETED, own.info
    assert own.output().strip() == str(site.ann.home)


def test_nodes_and_cluster_say_who_trusts_whom(site: Site) -> None:
    (node,) = site.cluster.client.nodes()
    assert node.runs == "each job as its user"
    assert site.cluster.client.cluster().notice == "Every node runs each job as its user."
    with pytest.raises(MgpuError):
        site.of("visitor").admin.join_token()


def test_folders_results_and_hooks_are_the_users_and_the_sites_hooks_the_agents(
    site: Site, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "run.sh").write_text(
        "#!/bin/sh\nstat -c '%U %a' . run.sh\nid -un > out\nln -s /etc/shadow stolen\ncp /etc/hostname "
        "theirs\n"
    )
    (project / "run.sh").chmod(0o750)
    name = site.ann.name
    job = site.of(name).submit(
        ["./run.sh"], gpus=0, sync=str(project), results=["out", "stolen"], epilog="id -un"
    )
    assert job.wait(60).state == JobState.COMPLETED, job.info
    assert job.output().splitlines() == [f"{name} 700", f"{name} 750", name]
    found = job.wait_for_results()
    assert [file.path for file in found.files] == ["out"]
    assert [problem.partition(": ")[2].partition(":")[0] for problem in found.problems] == ["stolen"]
    (path,) = job.download_results(tmp_path / "here")
    assert path.read_text() == f"{name}\n"
