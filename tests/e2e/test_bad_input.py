"""Issue 3, row 5: bad input, as a table. Each is answered with a status, a stable code and a sentence that
says what to do, through REST, command line and magic where each applies; nothing is half-done, and nobody
sees a traceback.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator

import msgspec
import pytest

from mgpu_jupyter.api.route import PREFIX
from tests.e2e.cluster import BIN, Cluster
from tests.e2e.notebook import Notebook

MB = 1_000_000
CANARY = "canary-4f1d"
LONG = "x" * (10 * MB)


class Rest(msgspec.Struct, frozen=True):
    """A request, and what is answered."""

    status: int
    code: str
    says: str
    method: str = "POST"
    path: str = "jobs"
    body: object = None
    raw: bytes | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake, as each of the three ways can make it."""

    rest: tuple[Rest, ...] = ()
    shell: tuple[tuple[str, ...], int, str] | None = None
    """Words, exit code, what stderr says."""
    cell: tuple[str, str] | None = None
    """Code of a cell, and the error that it raises."""


def job(**fields: object) -> dict[str, object]:
    return {"command": ["true"], **fields}


def bulk(bad: dict[str, object]) -> dict[str, object]:
    items = [{"spec": job(gpus=0)} for _ in range(1_000)]
    items[500] = {"spec": bad}
    return {"jobs": items}


TOO_LARGE = "Needs 9 GPUs on one node, but the largest, gpu01, has 8 GPUs"
NO_NODE = "There is no node gpu1: name gpu01 if you mean that one"
TOO_LONG = "put it into a script file."
CASES = {
    "an unknown flag": Case(
        rest=(Rest(400, "invalid", "there is no field gpu", body=job(gpu=1)),),
        shell=(("mgpu_srun", "--gpu", "1", "--", "true"), 2, "There is no flag --gpu: use --gpus"),
        cell=("%mgpu_srun --gpu 1 -- true", "UsageError: There is no flag --gpu: use --gpus"),
    ),
    "9 GPUs where 8 exist": Case(
        rest=(Rest(409, "too-large", TOO_LARGE, body=job(gpus=9)),),
        shell=(("mgpu_srun", "--gpus", "9", "--", "true"), 1, TOO_LARGE),
        cell=("%mgpu_srun --gpus 9 -- true", f"Conflict: {TOO_LARGE}"),
    ),
    "more nodes than there are": Case(
        rest=(Rest(409, "too-few-nodes", "Needs 2 nodes, but only 1 may be used", body=job(nodes=2)),),
        shell=(("mgpu_srun", "-N", "2", "--", "true"), 1, "Needs 2 nodes, but only 1 may be used"),
    ),
    "an unknown node": Case(
        rest=(Rest(409, "unknown-node", NO_NODE, body=job(nodelist=["gpu1"])),),
        shell=(("mgpu_srun", "--nodelist", "gpu1", "--", "true"), 1, NO_NODE),
        cell=("%mgpu_srun --nodelist gpu1 -- true", f"Conflict: {NO_NODE}"),
    ),
    "an empty command": Case(
        rest=(
            Rest(400, "no-command", "The command is empty", body=job(command=[""])),
            Rest(400, "no-command", "Give a command", body={}),
        ),
        shell=(("mgpu_srun", "--", ""), 2, "The command is empty"),
        cell=("%mgpu_srun --gpus 1 --", "UsageError: Name the command after `--`"),
    ),
    "a command of 10 MB": Case(
        rest=(Rest(400, "command-too-long", TOO_LONG, body=job(command=["echo", LONG])),),
        cell=(f"get_ipython().run_line_magic('mgpu_srun', '-- echo ' + 'x' * {len(LONG)})", TOO_LONG),
    ),
    "invalid JSON": Case(
        rest=(
            Rest(400, "not-json", "send one JSON document in UTF-8.", raw=b"{"),
            Rest(400, "not-json", "send one JSON document in UTF-8.", raw=b'{"command": ["\xff"]}'),
            Rest(400, "invalid", "it must be a table of names and values", raw=b"[" * 100_000),
        ),
    ),
    "a NUL in a name": Case(
        rest=(Rest(400, "invalid", "name is not valid", body=job(name="a\0b")),),
        cell=(
            "get_ipython().run_line_magic('mgpu_srun', '--name \"a\\0b\" -- true')",
            "UsageError: --name is not valid",
        ),
    ),
    "a line break in a name": Case(
        rest=(Rest(400, "invalid", "name is not valid", body=job(name="a\nb")),),
        shell=(("mgpu_srun", "--name", "a\nb", "--", "true"), 2, "--name is not valid"),
        cell=(
            "get_ipython().run_line_magic('mgpu_srun', '--name \"a\\nb\" -- true')",
            "UsageError: --name is not valid",
        ),
    ),
    "../ in paths": Case(
        rest=(
            Rest(404, "no-such-job", "is no job id", method="GET", path="jobs/..%2F..%2Fetc%2Fpasswd"),
            Rest(404, "no-such-job", "is no job id", method="GET", path="jobs/%2e%2e/output"),
            Rest(404, "no-such-node", "There is no node '..'", method="GET", path="nodes/%2e%2e"),
            Rest(
                404,
                "not-found",
                "There is nothing at this address",
                method="GET",
                path="nodes/../../../etc/passwd",
            ),
            Rest(400, "invalid", "nodelist[0] is not valid", body=job(nodelist=["../n1"])),
            Rest(400, "invalid", "cwd is not valid", body=job(cwd="../etc")),
        ),
        shell=(("mgpu", "logs", "../../etc/passwd"), 1, "is no job id"),
        cell=("%mgpu_cancel ../../etc/passwd", "is no job id"),
    ),
    "a token in a URL": Case(
        rest=(Rest(401, "unauthorised", "Log in first", method="GET", path=f"jobs?token={CANARY}"),)
    ),
    "1,000 jobs in one bulk with one bad": Case(
        rest=(
            Rest(
                400,
                "gpu-contradiction",
                "Job 501 of 1000: --gpus 3",
                path="jobs/bulk",
                body=bulk(job(nodes=2, gpus=3)),
            ),
            Rest(409, "too-large", "Job 501 of 1000: Needs 9 GPUs", path="jobs/bulk", body=bulk(job(gpus=9))),
            Rest(
                400,
                "invalid",
                "jobs[500].spec.gpus is not valid",
                path="jobs/bulk",
                body=bulk(job(gpus="two")),
            ),
        ),
        cell=(
            (
                "from mgpu_jupyter import Client\nClient().submit_many([{'command': ['true']}] * 999 + "
                "[{'command': ['true'], 'gpus': 9}])"
            ),
            "Conflict: Job 1000 of 1000: Needs 9 GPUs",
        ),
    ),
    "a method that is not served": Case(
        rest=(
            Rest(405, "method-not-allowed", "does not take that method", method="DELETE", path="jobs"),
            Rest(404, "not-found", "There is nothing at this address", method="GET", path="job"),
        ),
    ),
}


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and one node with eight GPUs."""
    with Cluster(tmp_path_factory.mktemp("eight") / "cluster") as cluster:
        cluster.start_master()
        cluster.start_node("gpu01", 8)
        yield cluster


@pytest.fixture(scope="module")
def kernel(eight: Cluster) -> Iterator[Notebook]:
    with Notebook(eight.env, eight.directory) as notebook:
        assert notebook.run("%load_ext mgpu_jupyter").error is None
        yield notebook


def ask(
    cluster: Cluster, method: str, path: str, body: bytes | None = None, *, with_token: bool = True
) -> tuple[int, dict[str, object]]:
    """Send one request as it stands and return status and JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=120)
    headers = {"Authorization": f"mgpu {cluster.runtime().token}"} if with_token else {}
    try:
        connection.request(method, f"/{PREFIX}/{path}", body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def is_a_sentence(text: object) -> bool:
    return isinstance(text, str) and text.endswith(".") and "Traceback" not in text


@pytest.mark.parametrize("name", CASES)
def test_bad_input(eight: Cluster, kernel: Notebook, name: str) -> None:
    case = CASES[name]
    before = eight.job_states()
    for rest in case.rest:
        body = rest.raw if rest.body is None else json.dumps(rest.body).encode()
        status, answer = ask(eight, rest.method, rest.path, body, with_token=CANARY not in rest.path)
        assert (status, answer["code"], set(answer)) == (
            rest.status,
            rest.code,
            {"code", "message", "details"},
        ), answer
        assert rest.says in str(answer["message"])
        assert is_a_sentence(answer["message"]), answer
    if case.shell is not None:
        words, exit_code, says = case.shell
        run = subprocess.run(
            [str(BIN / words[0]), *words[1:]],
            env=eight.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (run.returncode, run.stdout, says in run.stderr) == (exit_code, "", True), run.stderr
        assert is_a_sentence(run.stderr.strip())
        assert len(run.stderr.strip().splitlines()) == 1
    if case.cell is not None:
        code, says = case.cell
        ran = kernel.run(code)
        error = (ran.error or ran.text("stderr")).strip()
        assert says in error
        assert is_a_sentence(error)
    assert eight.job_states() == before, "nothing is half-done"
    assert "Traceback" not in eight.log("master")
    assert CANARY not in eight.log("master")


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_a_body_of_100_mb_is_refused_before_it_is_read(eight: Cluster, chunked: bool) -> None:
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {100 * MB}"
    head = (
        f"POST /{PREFIX}/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: mgpu "
        f"{eight.runtime().token}\r\n{length}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", eight.port), timeout=120) as connection:
        connection.sendall(head.encode())
        sent = 0
        try:
            while chunked and sent < 100 * MB:
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                sent += 0x10000
        except OSError:
            pass  # the server stopped listening, as it should
        answer = b""
        try:
            while data := connection.recv(65536):
                answer += data
        except ConnectionResetError:
            pass
    assert sent < 60 * MB
    if answer or not chunked:  # a connection that is reset may take the answer along
        assert answer.startswith(b"HTTP/1.1 413")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "body-too-large"
    assert eight.client.health().status == "ok"


def test_a_name_with_markup_is_a_name(eight: Cluster, kernel: Notebook) -> None:
    name = "<script>alert(1)</script>"
    status, _ = ask(eight, "POST", "jobs", json.dumps(job(name=name, gpus=0)).encode())
    ran = kernel.run("%mgpu_queue --all")
    html = "".join(
        piece.content["data"].get("text/html", "") for piece in ran.pieces if "data" in piece.content
    )

    assert status == 201
    assert ("<script" in html, "&lt;script&gt;alert(1)&lt;/script&gt;" in html) == (False, True)
    assert [one.name for one in (job_.info for job_ in eight.client.jobs(name=name))] == [name]


def test_a_directory_that_does_not_exist(eight: Cluster, kernel: Notebook) -> None:
    """The job runs in its scratch directory, and each way says so."""
    told = "/no/such/directory cannot be entered on this node: the job runs in "
    status, answer = ask(
        eight, "POST", "jobs", json.dumps(job(command=["pwd"], cwd="/no/such/directory")).encode()
    )
    done = eight.client.job(str(answer["job_id"])).wait(60)
    run = subprocess.run(
        [str(BIN / "mgpu_srun"), "--chdir", "/no/such/directory", "--", "pwd"],
        env=eight.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    cell = kernel.run("%mgpu_srun --chdir /no/such/directory -- pwd")

    assert (status, str(done.state), told in done.info.placements[0].note) == (201, "completed", True)
    assert "/scratch/" in done.output()
    assert (run.returncode, told in run.stderr, "/scratch/" in run.stdout) == (0, True, True)
    assert cell.error is None
    assert told in cell.text("stderr") + cell.text("stdout") + cell.shown()


def test_whoever_means_it_waits_for_a_node(eight: Cluster) -> None:
    jobs = [
        eight.client.submit(["true"], gpus=9, wait_for_nodes=True),
        eight.client.submit(["true"], nodelist=["gpu02"], wait_for_nodes=True),
    ]
    eight.wait_until(
        lambda: all("just submitted" not in one.info.reason for one in jobs), "both were looked at"
    )
    assert [(str(one.state), one.info.reason_code) for one in jobs] == [
        ("queued", "too-large"),
        ("queued", "unknown-node"),
    ]
    for one in jobs:
        one.cancel()
