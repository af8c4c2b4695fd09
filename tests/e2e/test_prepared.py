"""A gang starts nowhere while one of its nodes lacks what its part needs: the directory, the account, room
for output. The one sentence about it names the node and the cause.

Each node sees the machine its own way, by a mount namespace; needs root.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.login import read_line
from tests.chaos.rows.disks import can_mount
from tests.e2e.cluster import BIN, bash
from tests.e2e.people import OsUser, Shared, open_directory, python_for_all, why_not

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(not can_mount(), reason="needs mount namespaces"),
]


class Site:
    """Five nodes that run jobs as their users; four of them are not as they should be."""

    def __init__(self, cluster: Shared, person: OsUser, client: Client, place: Path) -> None:
        self.cluster, self.person, self.client = cluster, person, client
        self.data, self.ran = place / "data", place / "ran"

    def submit(self, *nodes: str, chdir: Path) -> Job:
        """Submit a gang whose ranks would write down that they ran."""
        self.ran.write_text("")
        self.ran.chmod(0o666)
        command = bash("echo $MGPU_RANK $PWD >> {ran}", ran=self.ran)
        return self.client.submit(
            command, nodes=len(nodes), gpus_per_node=1, nodelist=",".join(nodes), chdir=str(chdir)
        ).wait(60)

    def outcome(self, job: Job) -> tuple[str, str, str]:
        """Return how a job ended, why, and what its ranks wrote down."""
        return str(job.state), job.info.reason, self.ran.read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_directory() as place, Shared(tmp_path_factory.mktemp("prepared") / "cluster") as cluster:
        python, env = python_for_all(place)
        with OsUser(place, python, env) as ann:
            cluster.start_shared_master("--MgpuApp.max_failed_starts=1", "--MgpuApp.node_failures=1000")
            data = place / "data"
            data.mkdir()
            data.chmod(0o777)
            accounts = place / "passwd"
            kept = [
                line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith(ann.name)
            ]
            accounts.write_text("\n".join(kept) + "\n")
            spool = cluster.state / "nodes" / "full" / "spool"
            spool.mkdir(parents=True, mode=0o700)
            for path in (cluster.state, cluster.state / "nodes", spool.parent):
                path.chmod(0o700)
            worlds = {
                "well": "true",
                "closed": f"mount -t tmpfs -o mode=0700 none {shlex.quote(str(data))}",
                "stranger": f"mount --bind {shlex.quote(str(accounts))} /etc/passwd",
                "full": f"mount -t tmpfs -o size=256k,mode=0700 none {shlex.quote(str(spool))}",
            }
            for name, change in worlds.items():
                words = [str(BIN / "mgpu_node"), "--node-id", name, "--fake-gpus", "1", "--no-restart"]
                words += ["--master-port", str(cluster.port), "--run-as-user"]
                words += ["--scratch-dir", str(place / "scratch")]
                inside = f"mount --make-rprivate / && {change} && exec {shlex.join(words)}"
                cluster.start_agent(name, ["unshare", "-m", "sh", "-c", inside])
            client = Client.of_login(read_line(cluster.client.admin.add_user(ann.name).line))
            yield Site(cluster, ann, client, place)
            client.close()


def test_a_directory_that_the_user_cannot_enter_on_the_second_node(site: Site) -> None:
    job = site.submit("well", "closed", chdir=site.data)
    why = (
        f"It could not be started 1 time; the last time on closed: {site.data} cannot be entered there, and "
        f"can on well: make it on every node, bring it with --sync, or name another directory with --chdir."
    )
    assert site.outcome(job) == ("failed", why, "")
    assert site.cluster.node_states()["closed"] == "online"


def test_a_directory_that_no_node_has_is_the_scratch_of_each(site: Site) -> None:
    job = site.submit("well", "closed", chdir=site.data / "nowhere")
    scratch = {name: site.data.parent / "scratch" / name / "scratch" / job.id for name in ("well", "closed")}
    assert (str(job.state), sorted(site.ran.read_text().splitlines())) == (
        "completed",
        sorted(f"{placement.rank} {scratch[placement.node]}" for placement in job.info.placements),
    )


def test_an_account_that_the_second_node_does_not_have(site: Site) -> None:
    job = site.submit("well", "stranger", chdir=site.data)
    name = site.person.name
    why = (
        f"It could not be started on stranger: This node has no account {name!r} for the user {name!r}: its "
        f"administrator can map it with `mgpu_node --map-user {name}=ACCOUNT`."
    )
    assert site.outcome(job) == ("failed", why, "")


def test_no_room_for_output_on_the_second_node(site: Site) -> None:
    job = site.submit("well", "full", chdir=site.data)
    why = (
        "It could not be started 1 time; the last time on full: The node's disk is full: free some space on "
        "it."
    )
    assert site.outcome(job) == ("failed", why, "")
