"""Jobs of a notebook in a real kernel: sweeps, several at once, what is remembered, the offer to attach,
attaching after restarts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from mgpu_jupyter.notebook.offer import ATTACH, SECOND
from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook, Ran

LINES = 1_000
COUNTING = f"""
import time
for number in range({LINES}):
    print("line", number, flush=True)
    if number % 10 == 0:
        time.sleep(0.03)
"""
EXPECTED = [f"line {number}" for number in range(LINES)]
THREE = """
jobs = []
for name, code in (("a", 0), ("bad", 3), ("c", 0)):
    line = f"--background --name {name} -- bash -c 'sleep 0.3; exit {code}'"
    jobs.append(get_ipython().run_line_magic("mgpu_srun", line))
"""
AWAITED = """
import asyncio
ticks = 0
async def tick():
    global ticks
    while True:
        ticks += 1
        await asyncio.sleep(0.05)
ticking = asyncio.ensure_future(tick())
job = get_ipython().run_line_magic("mgpu_srun", "--background -- sleep 0.5")
over = await job
again = await mgpu_jupyter.gather_async([job])
ticking.cancel()
print(over.state, again[0] is job, ticks > 2)
"""
HOLD = "import time\nprint('up', flush=True)\ntime.sleep(600)"


@pytest.fixture(scope="module")
def kernel(shared_cluster: Cluster) -> Iterator[Notebook]:
    """A kernel that knows which notebook it belongs to, as Jupyter's server tells it."""
    env = shared_cluster.env | {"JPY_SESSION_NAME": str(shared_cluster.directory / "work.ipynb")}
    with Notebook(env, shared_cluster.directory) as notebook:
        assert notebook.run("%load_ext mgpu_jupyter").error is None
        yield notebook


def metadata(ran: Ran) -> list[str]:
    """Return the ids of jobs that outputs carry."""
    found = [piece.content["metadata"].get("mgpu") for piece in ran.pieces if "metadata" in piece.content]
    return [str(one["job_id"]) for one in found if one]


def test_a_sweep_is_a_table_of_results(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%mgpu_srun --gpus 1 --sweep lr=0.1,0.01 --sweep opt=adam,sgd%3 --as sweep\nprint(f'{opt} {lr * "
        "10:.1f}')"
    )
    assert ran.error is None
    assert "4 of 4 over" in ran.shown()
    found = notebook.run(
        "print([(row['lr'], row['opt'], row['state'], row['exit_code'], row['last line']) for row in _])"
    )
    assert (
        found.text()
        == f"{[(lr, opt, 'completed', 0, f'{opt} {lr * 10:.1f}') for lr in (0.1, 0.01) for opt in ('adam', 'sgd')]}\n"  # noqa: E501
    )
    page = next(piece.content["data"]["text/html"] for piece in ran.pieces if piece.kind == "execute_result")
    assert page.count("<tr>") == 5
    assert notebook.run("print(len(sweep.table().to_dicts()), sweep.id)").text().startswith("4 ")


def test_a_sweep_brings_variables_back(notebook: Notebook) -> None:
    notebook.run("base = 10")
    ran = notebook.run(
        "%%mgpu_srun --gpus 1 --sweep x=1,2,3 --in base --out square,text\nsquare, text = base + x * x, "
        "str(x)"
    )
    assert ran.error is None
    found = notebook.run(
        "print([(row['x'], row['square'], row['text'], 'last line' in row) for row in _.to_dicts()])"
    )
    assert found.text() == "[(1, 11, '1', False), (2, 14, '2', False), (3, 19, '3', False)]\n"
    assert notebook.run("print(square, text)").text() == "[11, 14, 19] ['1', '2', '3']\n"
    odd = (
        "%%mgpu_srun --gpus 1 --sweep x=1,2,3 --as sweep --out square\nif x == 2: raise SystemExit(3)\nif "
        "x == 3: square = x * x"
    )
    ran = notebook.run(odd)
    assert ran.error is None
    assert "`square` was never set by the cell" in ran.text() + ran.text("stderr") + ran.shown()
    assert notebook.run("print(square, sweep.result())").text() == "[None, None, 9] [None, None, 9]\n"


def test_several_jobs_are_gathered_with_one_bar(notebook: Notebook) -> None:
    start = "jobs = []\nfor name, code in (('a', 0), ('bad', 3), ('c', 0)):\n"
    start += (
        "    jobs.append(get_ipython().run_line_magic('mgpu_srun', f\"--background --name {name} -- "
        "bash -c 'sleep 0.3; exit {code}'\"))"
    )
    assert notebook.run(start).error is None
    ran = notebook.run(
        "import mgpu_jupyter\ndone = mgpu_jupyter.gather(jobs)\nprint([job.exit_code for job in done], "
        "len(done.failed))"
    )
    assert (ran.error, ran.text()) == (None, "[0, 3, 0] 1\n")
    bars = [piece for piece in ran.pieces if piece.kind in ("display_data", "update_display_data")]
    assert len({piece.content["transient"]["display_id"] for piece in bars}) == 1
    last = bars[-1].content["data"]
    assert last["text/plain"].startswith("3 of 3 over · 1 did not complete\nbad (")
    assert 'role="progressbar"' in last["text/html"]
    awaited = notebook.run(AWAITED)
    assert (awaited.error, awaited.text()) == (None, "completed True True\n")


WHEN_IT_WAITS = """
import sys, threading, time, mgpu_jupyter
def say():
    main, names = threading.main_thread().ident, ()
    while "gather" not in names or "get" not in names:  # it waits for news
        frame, names = sys._current_frames()[main], []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        time.sleep(0.01)
    print("now", flush=True)
threading.Thread(target=say, daemon=True).start()
"""


def test_an_interrupted_gather_leaves_the_jobs(notebook: Notebook, two_nodes: Cluster) -> None:
    assert notebook.run("%mgpu_srun --background --as held -- sleep 600").error is None
    ran = notebook.run_and_interrupt(WHEN_IT_WAITS + "mgpu_jupyter.gather([held])", "now")
    assert ran.error is not None
    assert ran.error.startswith("KeyboardInterrupt: Left 1 job running; they go on. `mgpu_cancel ")
    job_id = notebook.run("print(held.id)").text().strip()
    two_nodes.wait_until(lambda: two_nodes.job_states()[job_id] == "running", "it goes on")


def test_outputs_remember_their_jobs(two_nodes: Cluster) -> None:
    """In a notebook that nbclient runs and saves, as any front end does."""
    cells = [
        "%load_ext mgpu_jupyter",
        "%%mgpu_srun --gpus 1\nprint('hello')",
        "%mgpu_srun --background --as job -- true",
        "job.wait()",
        "%mgpu_attach",
    ]
    made: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(cells)
    ]
    text = json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    path = two_nodes.directory / "saved.ipynb"
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.execute(cwd=str(two_nodes.directory), env=two_nodes.env | {"JPY_SESSION_NAME": str(path)})
    path.write_text(json.dumps(notebook))
    saved = json.loads(path.read_text())
    ids = {job.id for job in two_nodes.client.jobs(limit=2)}
    kept = [
        {
            output["metadata"]["mgpu"]["job_id"]
            for output in cell["outputs"]
            if "mgpu" in output.get("metadata", {})
        }
        for cell in saved["cells"][1:4]
    ]
    assert kept[0] | kept[1] == ids
    assert (len(kept[0]), kept[1]) == (1, kept[2])
    listed = "".join(saved["cells"][4]["outputs"][0]["data"]["text/plain"])
    assert [job_id for job_id in ids if job_id not in listed] == []


def test_the_same_cell_again_offers_to_attach(notebook: Notebook, two_nodes: Cluster) -> None:
    cell = f"%%mgpu_srun --background --name train-7b --as job\n{HOLD}"
    assert notebook.run(cell).error is None
    first = notebook.run("print(job.id)").text().strip()
    again = notebook.run(cell)
    assert again.error is not None
    assert "StillRuns: This cell’s job train-7b still " in again.error
    assert f"{ATTACH}: %mgpu_attach {first} · {SECOND}: add --again to the line." in again.error
    assert set(metadata(again)) == {first}
    assert (
        len(
            [state for state in two_nodes.job_states().values() if state in ("queued", "starting", "running")]
        )
        == 1
    )
    env = two_nodes.env | {"JPY_SESSION_NAME": str(two_nodes.directory / "work.ipynb")}
    with Notebook(env, two_nodes.directory) as restarted:
        assert restarted.run("%load_ext mgpu_jupyter").error is None
        assert f"%mgpu_attach {first}" in (restarted.run(cell).error or "")
        assert restarted.run(cell.replace("--background", "--background --again")).error is None
        assert first in restarted.run("%mgpu_attach").shown()
    assert notebook.run("%%mgpu_srun --background\nprint(1)").error is None


def test_attach_is_whole_after_restarts_of_kernel_and_server(cluster: Cluster) -> None:
    """The kernel that started the job ends, the server is killed while another kernel is attached: every line
    is there once, in order.
    """
    cluster.start_master()
    cluster.start_node("n1")
    with Notebook(cluster.env, cluster.directory) as first:
        ran = first.run(
            f"%load_ext mgpu_jupyter\nget_ipython().run_cell_magic('mgpu_srun', '--background --as job', "
            f"{COUNTING!r})\nprint(job.id)"
        )
        job_id = ran.text().split()[-1]
    job = cluster.client.job(job_id)
    cluster.wait_until(lambda: "line 100\n" in job.output(), "a hundred lines are there")
    killed: list[float] = []

    def kill(text: str) -> None:
        if "line 200\n" in text and not killed:
            killed.append(time.monotonic())
            cluster.kill("master")
            cluster.start_master()

    with Notebook(cluster.env, cluster.directory) as second:
        second.run("%load_ext mgpu_jupyter")
        ran = second.run(f"%mgpu_attach {job_id}", watch=kill)
        assert (ran.error, len(killed)) == (None, 1)
        assert ran.text().splitlines() == EXPECTED
        tail = second.run(f"%mgpu_logs {job_id} --tail 2")
        assert tail.text() == f"line {LINES - 2}\nline {LINES - 1}\n"


def test_leaving_what_was_attached_lets_it_go_on(notebook: Notebook, two_nodes: Cluster) -> None:
    notebook.run(f"get_ipython().run_cell_magic('mgpu_srun', '--background --as held', {HOLD!r})")
    job_id = notebook.run("print(held.id)").text().strip()
    ran = notebook.run_and_interrupt(f"%mgpu_attach {job_id}", "up")
    assert ran.error is not None
    assert ran.error.startswith(f"KeyboardInterrupt: Left {job_id}; it goes on.")
    # Output and states come by different ways.
    two_nodes.wait_until(lambda: two_nodes.job_states()[job_id] == "running", "it goes on")


def test_the_tab_key_in_a_kernel(notebook: Notebook, two_nodes: Cluster) -> None:
    job = two_nodes.client.submit(["sleep", "600"], name="train")

    def offered(line: str) -> dict[str, Any]:
        """Press the key until it has something to say: it never waits long for a server, and says nothing if
        that is busy.
        """
        return two_nodes.wait_until(
            lambda: found if (found := notebook.complete(line))["matches"] else None, f"{line} is completed"
        )

    found = offered("%mgpu_cancel ")
    assert job.id in found["matches"]
    types = {one["text"]: one["type"] for one in found["metadata"]["_jupyter_types_experimental"]}
    assert types[job.id].endswith(" train")
    assert notebook.complete("%%mgpu_srun --gpus-per")["matches"] == ["--gpus-per-node"]
    assert offered("%mgpu_srun --nodelist n")["matches"] == ["n1", "n2"]
    assert offered("%mgpu_srun --nodelist=n1,")["matches"] == ["n2"]
    notebook.run("weights = [1]; wealth = 2")
    assert notebook.complete("%%mgpu_srun --in we")["matches"] == ["weights", "wealth"]
    assert notebook.complete("%%mgpu_srun --in weights,we")["matches"] == ["wealth"]


def test_a_question_mark(notebook: Notebook) -> None:
    for name in ("%mgpu_srun?", "%%mgpu_srun?", "%mgpu_attach?"):
        shown = notebook.run(name)
        assert shown.error is None
        assert f"%{name.strip('%?')}" in notebook.page(name)


def test_a_job_as_a_value_follows_its_job(notebook: Notebook, two_nodes: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "go"
    ran = notebook.run(
        f"%mgpu_srun --background --name waits --gpus 1 -- bash -c 'until [ -e {mark} ]; do sleep 0.05; done'"
    )
    buttons, shown = [piece for piece in ran.pieces if piece.kind == "display_data"]
    assert (
        "mgpu:cancel-job" in buttons.content["data"]["text/html"],
        "mgpu-head" in shown.content["data"]["text/html"],
    ) == (True, True)
    assert shown.content["data"]["text/plain"].startswith("mgpu ")
    updates = [
        piece.content["data"]["text/plain"] for piece in ran.pieces if piece.kind == "update_display_data"
    ]
    if not any(" running on n" in text for text in updates):  # the job may run before its cell is over
        notebook.updates(shown.content["transient"]["display_id"], " running on n")
    mark.touch()
    updated = notebook.updates(shown.content["transient"]["display_id"], "Done in")
    assert "exit 0" in updated
