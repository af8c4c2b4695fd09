"""Two users, one node that runs each job as its user: Ann's job keeps secrets everywhere, Bob's tries every
way to them by name.

What each way must give stands in the table of `docs/security.md`, not here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from mgpu_jupyter import Client, Job
from mgpu_jupyter.client.login import Login, read_line
from mgpu_jupyter.model.job import JobState
from tests.documents import SECURITY, table_of
from tests.e2e.cluster import START_LIMIT_S
from tests.e2e.people import OsUser, Shared, open_directory, python_for_all, why_not
from tests.processes import wait_until

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]
HERE = Path(__file__).parent / "neighbours"
# As an agent that was started from a login: with a keyring of its session, which children inherit.
NODE = """
import ctypes, os, sys
number = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
number is None or ctypes.CDLL(None).syscall(number, 1, None)
from mgpu_agent.cli import main
sys.exit(main())
"""
CELL = """
import os, sys, time
words = open("/proc/self/cmdline").read().split(chr(0))
print(os.environ["MASTER_PORT"], words[words.index("--values") + 1], words[-2], words[2], flush=True)
time.sleep(600)
left = 1
"""
LEAST_WAYS = 40


class Street:
    """A shared master, two nodes that run jobs as their users, and Ann and Bob."""

    def __init__(
        self, cluster: Shared, place: Path, ann: OsUser, bob: OsUser, python: Path, env: dict[str, str]
    ) -> None:
        self.cluster, self.place, self.ann, self.bob, self.python, self.env = (
            cluster,
            place,
            ann,
            bob,
            python,
            env,
        )
        # What the programs of this street leave in passing, and nobody else does.
        (place / "tmp").mkdir()
        (place / "tmp").chmod(0o1777)
        self.temporary = {"TMPDIR": str(place / "tmp")}
        self.logins: dict[str, Login] = {}
        self.clients: dict[str, Client] = {}

    def of(self, person: OsUser) -> Client:
        if person.name not in self.clients:
            self.logins[person.name] = read_line(self.cluster.client.admin.add_user(person.name).line)
            self.clients[person.name] = Client.of_login(self.logins[person.name])
        return self.clients[person.name]

    def start_nodes(self, *names: str, before: Sequence[str] = ()) -> None:
        """Start agents with a Python that users can run, too, because those of MPI jobs do; they know a
        secret.
        """
        for name in names:
            flags = (
                "--node-id",
                name,
                "--fake-gpus",
                "4",
                "--master-port",
                str(self.cluster.port),
                "--run-as-user",
            )
            command = [
                *before,
                str(self.python),
                "-c",
                NODE,
                *flags,
                "--scratch-dir",
                str(self.place / "scratch"),
            ]
            self.cluster.start(
                name, command, env=self.env | self.temporary | {"PLANTED_TOKEN": "of the agent"}
            )
        self.cluster.wait_until(
            lambda: self.cluster.node_states() == dict.fromkeys(names, "online"),
            "the nodes are online",
            START_LIMIT_S,
        )

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    with open_directory() as place, Shared(tmp_path / "cluster") as cluster:
        python, env = python_for_all(place)
        with OsUser(place, python, env) as ann, OsUser(place, python, env) as bob:
            street = Street(cluster, place, ann, bob, python, env)
            cluster.start_shared_master(env=street.temporary)
            street.start_nodes("n1", "n2")
            yield street
            street.close()


@contextlib.contextmanager
def secrets_of_ann(street: Street) -> Iterator[dict[str, Any]]:
    """Let Ann's jobs run, and say all that there is to know about them; take away what outlives them."""
    ann, client = street.ann, street.of(street.ann)
    project = street.place / "project"
    shutil.copytree(HERE, project, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "data.txt").write_text("ann's secret")
    digest = client.send_folder(project).digest
    command = [str(street.python), "victim.py", "a secret word"]
    job = client.submit(
        command,
        gpus=1,
        nodelist=["n1"],
        env={**street.env, "SECRET": "x"},
        sync=str(project),
        results=["secret.txt"],
        distributed=True,
    )
    cell = client.submit(
        script=CELL,
        gpus=1,
        nodelist=["n1"],
        python=str(street.python),
        env=street.env,
        inputs={"a": "secret"},
        outputs=["left"],
        distributed=True,
    )
    terminal = client.submit(["bash", "-c", "tty; sleep 600"], gpus=0, nodelist=["n1"], pty=True)
    ring = client.submit(
        ["bash", "-c", 'echo "$MGPU_JOB_SOCKET $MGPU_TASK"; sleep 600'],
        nodes=2,
        gpus_per_node=1,
        mpi=True,
        env=street.env,
    )
    facts = json.loads(whole_line(job))
    port, values, source, runner = whole_line(cell).split()
    tty, (socket, task) = whole_line(terminal).strip(), whole_line(ring).split()[-2:]
    assert task.count("/") == 2, "Ann's MPI job says where the agent's socket is"
    state, node = street.cluster.state, street.cluster.state / "nodes" / "n1"
    agent = street.cluster.pid("n1")
    facts |= {
        "job": job.id,
        "cell_job": cell.id,
        "digest": digest,
        "folder": facts["cwd"],
        "scratch": facts["cwd"],
        "unused_port": int(port),
        "values": values,
        "cell": source,
        "cells": str(Path(source).parent),
        "runner": runner,
        "terminal": tty,
        "mpi_socket": socket,
        "mpi_task": task,
        "state": str(state),
        "node": str(node),
        "place": str(street.place),
        "agent": agent,
        "keeper": keeper_of(node),
        "link": street.cluster.runtime().link_address,
        "url": street.logins[ann.name].url,
    }
    try:
        yield facts
    finally:
        for one in (job, cell, terminal, ring):
            one.cancel()
        for one in (job, cell, terminal, ring):
            one.wait(60)
        clean_up(facts)


def whole_line(job: Job) -> str:
    """Return the first line that a job wrote."""
    return wait_until(
        lambda: (job.output().splitlines(keepends=True) or [""])[0] if "\n" in job.output() else "",
        "it wrote a line",
        60,
    )


def processes_with(*words: str) -> list[int]:
    """Return the processes whose command line has all these words, oldest first."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if set(words) <= set(process.cmdline()):
                found.append((process.create_time(), process.pid))
    return [pid for _, pid in sorted(found)]


def keeper_of(node: Path) -> int:
    """Return the keeper of this node, or its reaper."""
    return processes_with("mgpu_agent.keeper", str(node))[0]


def clean_up(facts: dict[str, Any]) -> None:
    """Take away what the system keeps of a job that made it: memory, queues, files in places for all."""
    library, mark = ctypes.CDLL(None), facts["mark"]
    library.shmctl(facts["segment"], 0, None)
    library.semctl(facts["semaphore"], 0, 0)
    library.msgctl(facts["queue"], 0, None)
    library.mq_unlink(f"/ann-{mark}".encode())
    for path in [
        *Path("/dev/shm").glob(f"*ann-{mark}*"),
        *Path("/tmp").glob(f"*-{mark}*"),
        Path(facts["temporary"]),
    ]:
        path.unlink(missing_ok=True)


def test_no_way_leads_from_one_users_job_to_anothers(street: Street) -> None:
    expected = {row[0]: row[1] for row in table_of(SECURITY, "way")}
    with secrets_of_ann(street) as facts:
        bob = street.of(street.bob)
        known = street.bob.home / "facts.json"
        known.write_text(json.dumps(facts | {"token": street.logins[street.bob.name].token}))
        script = shutil.copy(HERE / "attacker.py", street.bob.home)
        for path in (known, script):
            os.chown(path, street.bob.uid, street.bob.gid)
        attack = bob.submit(
            [str(street.python), str(script), str(known)],
            gpus=1,
            nodelist=["n1"],
            env=street.env,
            results=["results.*"],
        )
        assert attack.wait(300).state == JobState.COMPLETED, attack.output()
        found: dict[str, str] = json.loads(attack.output())
        collected = attack.wait_for_results()
        states = [street.of(street.ann).job(facts[name]).state for name in ("job", "cell_job")]
    print("\n".join(f"{name}: {what}" for name, what in found.items()))
    print(
        f"{len(found)} ways from one user's job to another's: "
        f"{sum(what.startswith('denied') for what in found.values())} denied"
    )

    assert {name: what.split()[0] for name, what in found.items()} == expected
    assert len(found) >= LEAST_WAYS
    assert [file.path for file in collected.files] == []
    assert states == [JobState.RUNNING, JobState.RUNNING]
    assert set(street.cluster.node_states().values()) == {"online"}
