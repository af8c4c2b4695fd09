"""Two users of the operating system with a Jupyter server each and one shared master, no Hub."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_agent.protocol.errors import Forbidden, Unauthorised
from mgpu_jupyter import Client
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.login import read_line
from tests.e2e.people import OsUser, Shared, open_directory, python_for_all, why_not
from tests.processes import free_port, wait_until

SECRET = "CANARY-ENV-7f3a9c"

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with open_directory() as path:
        yield path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with Shared(tmp_path_factory.mktemp("people") / "cluster") as cluster:
        cluster.start_shared_master()
        cluster.start_node("n1", 8)
        yield cluster


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def two(shared: Shared, place: Path, lines: dict[str, str]) -> Iterator[tuple[OsUser, OsUser]]:
    """Ann and Bob: made, added, logged in, each with a server."""
    python, env = python_for_all(place)
    with OsUser(place, python, env) as ann, OsUser(place, python, env) as bob:
        for person in (ann, bob):
            lines[person.name] = shared.client.admin.add_user(person.name).line
            said = person.run("mgpu", "login", "-", stdin=lines[person.name]).stdout
            assert said.startswith(f"You are {person.name} on mgpu at https://127.0.0.1:{shared.port}/")
            person.start_server()
        yield ann, bob


def jupyter_request(person: OsUser, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Ask a server as its owner's browser does, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", person.port, timeout=120)
    with contextlib.closing(connection):
        headers = {"Authorization": f"token {person.jupyter_token}", "Content-Type": "application/json"}
        connection.request(method, f"/{path}", body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def queue_at(person: OsUser) -> list[tuple[str, str]]:
    _, body = jupyter_request(person, "GET", f"{PREFIX}/jobs?state=active")
    return [(job["id"], job["user"]) for job in json.loads(body)["jobs"]]


def socket_status(person: OsUser, path: str) -> int:
    async def connect() -> int:
        headers = {"Authorization": f"token {person.jupyter_token}"}
        try:
            socket = await websocket_connect(
                HTTPRequest(f"ws://127.0.0.1:{person.port}/{PREFIX}/{path}", headers=headers)
            )
        except HTTPClientError as error:
            return error.code
        socket.close()
        while await socket.read_message() is not None:  # until the other side closed too
            pass
        return 101

    return asyncio.run(connect())


def test_every_job_carries_the_right_user_over_ten_fresh_requests(two: tuple[OsUser, OsUser]) -> None:
    spec = json.dumps({"command": ["true"], "gpus": 0}).encode()
    for person in two:
        users = set()
        for _ in range(10):
            status, body = jupyter_request(person, "POST", f"{PREFIX}/jobs", spec)
            assert status == 201, body
            users.add(
                json.loads(jupyter_request(person, "GET", f"{PREFIX}/jobs/{json.loads(body)['job_id']}")[1])[
                    "user"
                ]
            )
        assert users == {person.name}
        # The shell of the same user, which needs no Jupyter server, and a request that claims to be someone
        # else.
        job_id = json.loads(
            person.run("mgpu_srun", "--gpus", "0", "--background", "--json", "--", "true").stdout
        )["job_id"]
        with person.client() as client:
            assert client.job(job_id).info.user == person.name
        status, body = jupyter_request(
            person, "POST", f"{PREFIX}/jobs", b'{"command":["true"],"user":"root"}'
        )
        assert status == 400, body


def test_neither_can_touch_the_others_job_and_both_see_the_same_queue(
    shared: Shared, two: tuple[OsUser, OsUser]
) -> None:
    wait_until(lambda: not list(shared.client.jobs(state="active")), "nothing of the test before runs")
    jobs = {}
    for person in two:
        with person.client() as client:
            jobs[person] = client.submit(
                ["bash", "-c", "echo out of $MGPU_JOB_ID; exec sleep 300"], gpus=1
            ).id
    for person in two:
        with person.client() as client:
            wait_until(
                lambda c=client, p=person: "out of" in c.job(jobs[p]).output(), "its own output is read"
            )

    assert queue_at(two[0]) == queue_at(two[1])
    assert sorted(queue_at(two[0])) == sorted((job_id, person.name) for person, job_id in jobs.items())
    for person, other in (two, two[::-1]):
        theirs = jobs[other]
        with person.client() as client:
            for act in (
                client.job(theirs).output,
                lambda c=client, t=theirs: list(c.job(t).follow()),
                lambda c=client, t=theirs: c.cancel(t),
            ):
                with pytest.raises(Forbidden, match=f"belongs to {other.name}"):
                    act()
        assert [socket_status(person, f"jobs/{job_id}/stream") for job_id in (theirs, jobs[person])] == [
            403,
            101,
        ]
        assert jupyter_request(person, "POST", f"{PREFIX}/jobs/{theirs}/requeue", b"{}")[0] in (403, 404)
        assert person.run("mgpu_cancel", theirs, check=False).returncode == 1
        assert f"belongs to {other.name}" in person.run("mgpu", "logs", theirs, check=False).stderr
        assert jupyter_request(person, "GET", f"{PREFIX}/users")[0] == 403
        own_token = (person.home / "state" / "keys" / "token").read_text()
        with (
            Client(f"http://127.0.0.1:{other.port}/", own_token, env={}) as stranger,
            pytest.raises(Unauthorised),
        ):
            stranger.cluster()
    assert shared.job_states()[jobs[two[0]]] == shared.job_states()[jobs[two[1]]] == "running"
    for person, job_id in jobs.items():
        with person.client() as client:
            client.cancel(job_id)
            assert client.job(job_id).wait(60) is not None


def test_kernels_and_terminals_speak_to_their_own_server(
    two: tuple[OsUser, OsUser], lines: dict[str, str]
) -> None:
    ann, _ = two
    status, body = jupyter_request(ann, "POST", "api/kernels", b"{}")
    assert status == 201, body
    kernel = wait_until(lambda: _kernel_of(ann), "the kernel runs")
    env = kernel.environ()

    assert env["MGPU_URL"] == f"http://127.0.0.1:{ann.port}/"
    assert read_line(lines[ann.name]).token not in env.values()
    with Client(env={name: env[name] for name in ("MGPU_URL", "MGPU_TOKEN")}) as client:
        assert client.cluster().user == ann.name
        assert client.health().relays_to.startswith("https://127.0.0.1:")
    jupyter_request(ann, "DELETE", f"api/kernels/{json.loads(body)['id']}")


def _kernel_of(person: OsUser) -> psutil.Process | None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == person.uid and "ipykernel_launcher" in " ".join(process.cmdline()):
                return process
    return None


def test_the_master_restarts_and_both_go_on(shared: Shared, two: tuple[OsUser, OsUser]) -> None:
    ann, bob = two
    with ann.client() as client, bob.client() as other:
        job = client.submit(
            ["bash", "-c", "echo before; until [ -e go ]; do sleep 0.05; done; echo after"],
            gpus=1,
            chdir=str(shared.directory),
        )
        wait_until(lambda: "before" in job.output(), "the job runs")
        assert shared.stop("master") == 0
        status, body = jupyter_request(bob, "GET", f"{PREFIX}/jobs")
        assert (status, json.loads(body)["code"]) == (503, "master-unreachable")
        assert other.health().status == "degraded"
        shared.start_shared_master()
        second = other.submit(["echo", "by", bob.name], gpus=1)
        assert second.wait(60).output() == f"by {bob.name}\n"
        (shared.directory / "go").touch()
        assert job.wait(60).output() == "before\nafter\n"
        assert (job.info.user, second.info.user) == (ann.name, bob.name)


def test_the_second_server_of_a_user_relays_to_the_first_and_takes_its_place(place: Path) -> None:
    python, env = python_for_all(place)
    with OsUser(place, python, env) as eve:
        first = eve.start_server()
        port = free_port()
        second = eve.start_server("second", port)
        try:
            with eve.client() as one, eve.client(port) as two:
                job = two.submit(["true"], gpus=0)
                assert [found.id for found in one.jobs()] == [job.id]
                assert (one.health().relays_to, two.health().relays_to) == (
                    "",
                    f"http://127.0.0.1:{eve.port}/",
                )
                eve.stop_server()
                assert first.returncode == 0
                wait_until(
                    lambda: two.health().relays_to == "" and two.health().status == "ok",
                    "the second holds the master",
                )
                assert [(found.id, found.info.user) for found in two.jobs()] == [(job.id, eve.name)]
        finally:
            second.terminate()
            second.wait(60)


def test_canary_secrets_appear_nowhere(
    shared: Shared, two: tuple[OsUser, OsUser], lines: dict[str, str]
) -> None:
    ann, bob = two
    token = read_line(lines[ann.name]).token
    keys = shared.state / "keys"
    key_text = [(keys / name).read_text().split()[-1] for name in ("link.key", "enrol.key", "token")]
    canaries = [
        SECRET,
        token,
        lines[ann.name],
        *key_text,
        ann.jupyter_token,
        (ann.home / "state" / "keys" / "token").read_text(),
    ]
    python = str(ann._python)
    code = "import sys; from mgpu_jupyter.cli.main import mgpu_srun as main; sys.exit(main())"
    with ann.client() as client:
        shell = subprocess.Popen(
            [
                python,
                "-c",
                code,
                "--env",
                f"SECRET={SECRET}",
                "--",
                "bash",
                "-c",
                "echo up ${#SECRET}; exec sleep 300",
            ],
            env=ann.env,
            user=ann.uid,
            group=ann.gid,
            extra_groups=[],
            cwd=ann.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == f"up {len(SECRET)}\n".encode()
            (job,) = [one for one in client.jobs(state="active") if one.info.user == ann.name]
            assert _holding(canaries, _ps()) == []
            pages = [body for _, body in _error_pages(bob, canaries)]
            seen_by_bob = [
                jupyter_request(bob, "GET", f"{PREFIX}/{path}")[1]
                for path in ("jobs", f"jobs/{job.id}", "nodes", "cluster", "health")
            ]
            assert _holding(canaries, b"\n".join(seen_by_bob)) == []
            assert _holding(canaries, b"\n".join(pages)) == []
        finally:
            shell.send_signal(signal.SIGINT)
            shell.communicate(timeout=120)
    readable = [
        path for path in shared.state.rglob("*") if path.is_file() and _others_can_read(path, shared.state)
    ]
    assert readable == []
    logs = [
        path
        for path in (*shared.directory.rglob("*.log"), *shared.directory.glob("state/nodes/*/*"))
        if path.is_file() and "log" in path.name
    ]
    assert any("master" in path.name for path in logs)
    for path in logs:
        assert _holding(canaries, path.read_bytes()) == [], path
    # The servers of users print Jupyter's own token on purpose, for their owner.
    for person in two:
        assert _holding([one for one in canaries if one != ann.jupyter_token], person.log().encode()) == []
    database = b"".join(path.read_bytes() for path in shared.state.glob("mgpu.db*"))
    assert _holding([one for one in canaries if one != SECRET], database) == []


def _ps() -> bytes:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return b"\n".join(lines)


def _holding(canaries: list[str], text: bytes) -> list[str]:
    return [canary[:12] for canary in canaries if canary.encode() in text]


def _others_can_read(path: Path, root: Path) -> bool:
    way = [path, *[parent for parent in path.parents if parent == root or root in parent.parents]]
    with contextlib.suppress(FileNotFoundError):  # the master removes files while it runs
        return all(
            one.stat().st_mode & (stat.S_IROTH | stat.S_IXOTH | stat.S_IRGRP | stat.S_IXGRP) for one in way
        )
    return False


def _error_pages(person: OsUser, canaries: list[str]) -> Iterator[tuple[int, bytes]]:
    """Ask for errors with secrets in every place where people put them."""
    for canary in canaries:
        body = json.dumps({"command": ["true"], "gpus": -1, "env": {"SECRET": canary}}).encode()
        for page in (
            jupyter_request(person, "POST", f"{PREFIX}/jobs", body),
            jupyter_request(person, "POST", f"{PREFIX}/jobs", body[:-3]),
            jupyter_request(person, "POST", f"{PREFIX}/jobs", b"{" + canary.encode()),
            jupyter_request(person, "GET", f"{PREFIX}/jobs?limit={canary}"),
            jupyter_request(person, "GET", f"{PREFIX}/nothing?token={canary}"),
        ):
            assert page[0] >= 400, page
            yield page
        connection = http.client.HTTPConnection("127.0.0.1", person.port, timeout=120)
        with contextlib.closing(connection):
            connection.request("GET", f"/{PREFIX}/jobs", headers={"Authorization": f"mgpu {canary}"})
            answer = connection.getresponse()
            assert answer.status == 401
            yield answer.status, answer.read()


def test_a_removed_user_is_out_and_says_so_in_one_sentence(
    shared: Shared, two: tuple[OsUser, OsUser]
) -> None:
    _, bob = two
    shared.client.admin.remove_user(bob.name)
    status, body = jupyter_request(bob, "GET", f"{PREFIX}/jobs")

    assert (status, json.loads(body)["code"]) == (401, "bad-token")
    done = bob.run("mgpu_queue", check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "forgotten" in bob.run("mgpu", "logout").stdout
    assert bob.run("mgpu", "login", "mgpulogin1.damaged", check=False).returncode == 2
