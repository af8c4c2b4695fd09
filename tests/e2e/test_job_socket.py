"""Attacks on the agent's socket for jobs: nobody runs anything in a job with `--mpi` of another, with an
account of mgpu or without.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from mgpu_agent.mpi.parcels import RunOrder, pack
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Post
from mgpu_jupyter import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.login import read_line
from tests.e2e.attacker import ANSWER_MS, Connection, enrol, hello
from tests.e2e.people import OsUser, Shared, open_directory, python_for_all, why_not

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]
ORDER = """
import os, sys
from mgpu_agent.mpi.parcels import RunOrder, pack
from mgpu_agent.mpi.parcels import Mailbox
sys.exit(not Mailbox().send("n2", pack(RunOrder(sys.argv[1], sys.argv[2]))))
"""
# Speaks to every socket that could be the agent's, with each of the secrets that it was given as first frame,
# and with none. The name without a path is what earlier agents had.
ATTACK = """
import os, socket, sys, msgspec
from mgpu_agent.mpi.parcels import RunOrder, pack
tag, place, path, *secrets = sys.argv[1:]
tries = 0
for address in [chr(0) + "mgpu-jobs-" + os.environ["MGPU_TASK"].split("/")[0], path]:
    for number, secret in enumerate(["", *secrets]):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(address)
            tries += 1
            if secret:
                connection.send(secret.encode())
            text = f"id > {place}/{tag}-{os.getpid()}-{tries}"
            connection.send(msgspec.msgpack.encode({"to": "n2", "data": pack(RunOrder(f"{tag}{os.getpid()}{tries}", text))}))
            connection.settimeout(5)
            connection.recv(100)  # until it is hung up on, or answered
        except OSError:
            pass
        connection.close()
print(tries)
"""  # noqa: E501


class Site(NamedTuple):
    """A shared master, two nodes that run jobs as their users, and who uses them; carl has no account of
    mgpu.
    """

    cluster: Shared
    ann: OsUser
    bob: OsUser
    carl: OsUser
    python: Path
    place: Path
    clients: dict[str, Client]

    def of(self, person: OsUser) -> Client:
        """Return the client of a user, who is added first."""
        if person.name not in self.clients:
            self.clients[person.name] = Client.of_login(
                read_line(self.cluster.client.admin.add_user(person.name).line)
            )
        return self.clients[person.name]

    def as_user(self, person: OsUser, code: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run Python code as this user."""
        return subprocess.run(
            [str(self.python), "-c", code, *words],
            env=person.env | env,
            user=person.uid,
            group=person.gid,
            extra_groups=[],
            cwd=person.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, client: Client, words: list[str]) -> Job:
        """Start a job with `--mpi` over both nodes and wait until both run."""
        job = client.submit(words, nodes=2, gpus_per_node=1, mpi=True)
        self.cluster.wait_until(lambda: len(processes_of(job)) == 2, "both nodes run it")
        return job

    def start_node(self, node: str) -> None:
        """Start an agent by the Python that users can run, too: that of jobs with `--mpi` is the agent's
        own.
        """
        code = "import sys; from mgpu_agent.cli import main; sys.exit(main())"
        words = [
            "--node-id",
            node,
            "--fake-gpus",
            "2",
            "--master-port",
            str(self.cluster.port),
            "--run-as-user",
        ]
        env = {name: value for name, value in self.ann.env.items() if name.startswith(("PYTHON", "LD_"))}
        command = [str(self.python), "-c", code, *words, "--scratch-dir", str(self.place.parent / "scratch")]
        self.cluster.start_agent(node, command, env)


def processes_of(job: Job) -> dict[str, psutil.Process]:
    """Return the first process of a job on each node."""
    found = {}
    for process in psutil.process_iter():
        try:
            env, words = process.environ(), process.cmdline()
        except psutil.Error:
            continue
        if env.get("MGPU_JOB_ID") == job.id and any(
            "mgpu_agent.mpi.first" in word or "mgpu_agent.mpi.host" in word for word in words
        ):
            found[env["MGPU_NODE_ID"]] = process
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_directory() as place, Shared(tmp_path_factory.mktemp("socket") / "cluster") as cluster:
        python, env = python_for_all(place)
        if env:  # jobs do not have the agent's variables
            libraries = next((python.parents[1] / "lib").glob("python3*"))
            (libraries / "site-packages").symlink_to(place / "site")
        with (
            OsUser(place, python, env) as ann,
            OsUser(place, python, env) as bob,
            OsUser(place, python, env) as carl,
        ):
            cluster.start_shared_master()
            for_all = place / "for-all"
            for_all.mkdir()
            for_all.chmod(0o1777)
            site = Site(cluster, ann, bob, carl, python, for_all, {})
            for node in ("n1", "n2"):
                site.start_node(node)
            yield site
            for client in site.clients.values():
                client.close()


def order(site: Site, job: Job, name: str) -> str:
    """Have a process of the job on n1 order something on n2, as its own launcher does, and return what came
    of it.
    """
    path = site.place / name
    env = processes_of(job)["n1"].environ()

    def done() -> str:
        assert site.as_user(site.ann, ORDER, name, f"id -un > {path}", **env).returncode in (0, 1)
        return path.read_text()

    return site.cluster.wait_until(done, "an honest order is carried out")


def content(path: Path) -> bytes:
    """Return what is in a file; master and agents remove some while they run."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def attacks(site: Site) -> dict[str, str]:
    """Return what ran for others than ann and not as themselves: with his own secret bob reaches his own
    job.
    """

    def all_said() -> dict[str, str] | None:
        found = {path.name: path.read_text() for path in site.place.iterdir()}
        return found if all(found.values()) else None  # a file is there before its program has written

    said = site.cluster.wait_until(all_said, "what ran has said as whom")
    ran = {name: who for name, who in said.items() if not name.startswith("honest")}
    return {
        name: who
        for name, who in ran.items()
        if not (name.startswith(site.bob.name) and who.startswith(f"uid={site.bob.uid}("))
    }


def test_nobody_runs_anything_in_the_job_of_another(site: Site) -> None:
    job = site.start(site.of(site.ann), ["sleep", "3600"])
    of_bob = site.start(site.of(site.bob), ["sleep", "3600"])
    mine = processes_of(of_bob)["n1"].environ()
    own = mine.get("MGPU_JOB_SECRET", "")
    path = str(site.place.parent / "scratch" / "n1" / "socket" / "jobs.sock")
    ledger = mine["MGPU_TASK"].partition("/")[0]
    right = int(processes_of(job)["n1"].environ()["MGPU_EPOCH"])
    assert order(site, job, "honest-before") == f"{site.ann.name}\n"
    for person in (site.bob, site.carl):
        for epoch in range(right - 1, right + 3):  # so one of the guesses is right
            key = f"{job.id}.1.{epoch}"
            # No secret, wrong ones, bob's own, and bob's own with the other attempt or the other user in it.
            code = own.rpartition(".")[2]
            wrong = [
                own,
                key,
                f"{key}.{site.ann.uid}.{'0' * 64}",
                f"{key}.{site.ann.uid}.{code}",
                f"{key}.{person.uid}.{code}",
            ]
            tried = site.as_user(
                person,
                ATTACK,
                f"{person.name}-{epoch}",
                str(site.place),
                path,
                *wrong,
                MGPU_TASK=f"{ledger}/{key}/0",
            )
            assert int(tried.stdout) == 1 + len(wrong), tried  # they do reach it
    # The secret of ann's job itself is worth nothing to others.
    secret = processes_of(job)["n1"].environ().get("MGPU_JOB_SECRET", "")
    for person in (site.bob, site.carl):
        site.as_user(
            person,
            ATTACK,
            f"{person.name}-stolen",
            str(site.place),
            path,
            secret,
            MGPU_TASK=f"{ledger}/none/0",
        )
    assert order(site, job, "honest-after") == f"{site.ann.name}\n"
    assert attacks(site) == {}
    for one in (job, of_bob):
        one.cancel()
        one.wait(60)


def test_who_reaches_the_socket_and_where_the_secret_is(site: Site) -> None:
    """Users pass through its directory and neither list nor change it; the secret is in no log, ledger,
    command or job's environment.
    """
    text = "env; cat /proc/self/environ; echo; echo that is all; sleep 3600"
    job = site.of(site.ann).submit(
        ["bash", "-c", text], nodes=2, gpus_per_node=1, mpi=True, prolog="env", epilog="true"
    )
    site.cluster.wait_until(
        lambda: len(processes_of(job)) == 2 and "that is all\n" in job.output(), "it runs and has said all"
    )
    place = site.place.parent / "scratch" / "n1" / "socket"
    stat = (place / "jobs.sock").stat()
    assert (oct(place.stat().st_mode & 0o777), place.stat().st_uid, stat.st_uid) == ("0o711", 0, 0)
    said = site.as_user(site.bob, f"import os; os.listdir({str(place)!r})").stderr
    said += site.as_user(site.bob, f"import os; os.unlink({str(place / 'jobs.sock')!r})").stderr
    assert said.count("PermissionError") == 2
    secrets = {
        process.environ()["MGPU_JOB_SECRET"].rpartition(".")[2] for process in processes_of(job).values()
    }
    assert len(secrets) == 2  # one for each node
    commands = [
        word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()
    ]
    files = [path for path in site.cluster.directory.rglob("*") if path.is_file()]
    found = [str(path) for path in files if any(secret.encode() in content(path) for secret in secrets)]
    assert (found, [word for word in commands if any(secret in word for secret in secrets)]) == ([], [])
    assert not re.search("MGPU_JOB_SECRET", job.output())
    job.cancel()
    job.wait(60)


def test_a_job_is_still_known_to_an_agent_that_started_anew(site: Site) -> None:
    job = site.start(site.of(site.ann), ["sleep", "3600"])
    for node in ("n1", "n2"):
        site.cluster.kill(node)
        site.start_node(node)
    assert order(site, job, "honest-anew") == f"{site.ann.name}\n"
    job.cancel()
    job.wait(60)


def test_a_node_orders_nothing_in_an_attempt_that_it_does_not_have(site: Site) -> None:
    """Neither by itself nor in the name of a node that has it; and a node that has an attempt hands nothing
    to one that has not.
    """
    job = site.start(site.of(site.ann), ["sleep", "3600"])
    runtime = site.cluster.runtime()
    keys = enrol(runtime, "sybil")
    with Connection(runtime.link_address, keys, runtime.link_public_key.encode()) as sybil:
        sybil.send(hello("sybil"))
        sybil.receive(ANSWER_MS)
        for epoch in range(1, 20):
            key = AttemptKey(JobId(job.id), 1, epoch)
            data = pack(RunOrder(f"sybil{epoch}", f"id > {site.place}/sybil-{epoch}"))
            sybil.send(*(Post(key=key, to=NodeId(node), data=data) for node in ("n1", "n2", "sybil")))
        assert [message for message in sybil.receive_all(500) if type(message).__name__ == "Posted"] == []
    assert order(site, job, "honest-beside-sybil") == f"{site.ann.name}\n"
    assert attacks(site) == {}
    job.cancel()
    job.wait(60)
