"""Variables of a notebook go to a cell and come back: arrays, ranks, background, what is refused, and what
crashes do not cost.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from mgpu_agent.protocol.errors import Conflict, InvalidRequest, NotFound
from mgpu_jupyter.client import nearby
from mgpu_jupyter.client.fetching import bring
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.bench.variables import memory_of, there_and_back
from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook, Ran

LARGE = 100_000_000
MOST_GROWTH = 64 * 1024 * 1024
THERE_AND_BACK = """%%mgpu_srun --gpus 1 --in a,words --out b,told
assert a.flags.writeable
a[0] = 7
b = a * 2
told = {"words": words, "python": __import__("sys").version_info[:2]}
"""
RANKS = """%%mgpu_srun --gpus 4 --distributed --in base --out r
import os
r = base + int(os.environ["RANK"])
"""
HIDE_CLOUDPICKLE = "import sys; sys.modules['cloudpickle'] = None\n"
OF_THE_NOTEBOOK = """class Net:
    def __init__(self, weights): self.weights = weights
    def total(self): return float(self.weights.sum()) * scale
def double(net): return Net(net.weights * 2)
import numpy as np
scale, nets = 10, {"deep": [Net(np.ones(1000)), (np.arange(5), "x")]}
"""
FAKE_PYTHON = """#!/bin/sh
case "$*" in *version_info*) echo 3.7; exit 0;; esac
exec {real} "$@"
"""


def said(ran: Ran) -> str:
    """Return what a cell that failed says, as an error or as a mistake in its first line."""
    return f"{ran.error}{ran.text('stderr')}"


def test_an_array_goes_there_and_comes_back(notebook: Notebook) -> None:
    notebook.run("import numpy as np; a = np.arange(1_000_000.0); words = ['x', {'y': 1}]")
    ran = notebook.run(THERE_AND_BACK)
    assert ran.error is None, ran
    shown = ran.shown() + ran.text()
    assert "in: a 7.6 MiB, words" in shown
    assert "out: b 7.6 MiB, told" in shown
    checked = notebook.run(
        "print(a[0], b[0], bool((b[1:] == a[1:] * 2).all()), b.flags.writeable, told['words'] == words)"
    )
    assert (checked.error, checked.text()) == (None, "0.0 14.0 True True True\n")


def test_functions_classes_and_frames_of_the_notebook_go_there_and_come_back(notebook: Notebook) -> None:
    """With cloudpickle and pandas, which the tests' environment has."""
    pytest.importorskip("cloudpickle", reason="cloudpickle is not installed: pip install cloudpickle")
    pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    notebook.run(
        OF_THE_NOTEBOOK
        + "import pandas as pd; frame = pd.DataFrame({'a': np.arange(4.0), 'b': list('wxyz')})"
    )
    ran = notebook.run(
        "%%mgpu_srun --gpus 2 --distributed --in nets,double,frame --out net,more\nimport os\n"
        "net = double(nets['deep'][0])\nmore = frame.assign(rank=int(os.environ['RANK']))"
    )
    assert ran.error is None, ran
    checked = notebook.run(
        "print([(type(one) is Net, one.total()) for one in net], [list(one['rank']) for one in more],"
        " more[1].drop(columns='rank').equals(frame))"
    )
    assert (checked.error, checked.text()) == (
        None,
        f"{[(True, 20000.0)] * 2} [[0, 0, 0, 0], [1, 1, 1, 1]] True\n",
    )


def test_a_hundred_megabytes_come_back_equal_and_the_server_stays_small(
    two_nodes: Cluster, notebook: Notebook
) -> None:
    """Acceptance, row 3, without its time; `make bench-variables` measures that."""
    notebook.run("import numpy as np")
    there_and_back(notebook, 0, 8)
    with memory_of(two_nodes.pid("master")) as grown:
        there_and_back(notebook, 1, LARGE)
    assert grown[0] < MOST_GROWTH


def test_of_several_ranks_each_name_is_a_list(notebook: Notebook) -> None:
    notebook.run("base = 10")
    ran = notebook.run(RANKS)
    assert ran.error is None, ran
    assert notebook.run("print(r)").text() == "[10, 11, 12, 13]\n"
    ran = notebook.run(
        "%%mgpu_srun -N 2 --gpus-per-node 1 --out where\nimport os\nwhere = os.environ['MGPU_NODE_ID']"
    )
    assert ran.error is None, ran
    assert notebook.run("print(sorted(where))").text() == "['n1', 'n2']\n"


def test_background_jobs_say_what_they_left_or_why_not(notebook: Notebook) -> None:
    notebook.run(
        "%%mgpu_srun --background --as job --out c,d\nimport time\nwhile not "
        "__import__('os').path.exists('go'): time.sleep(0.05)\nc = 1"
    )
    told = notebook.run("job.result()")
    assert told.error is not None
    assert "its variables come with its end: job.wait() waits for that" in told.error
    notebook.run("open('go', 'w').close(); job.wait(60)")
    assert "`d` was never set by the cell" in str(notebook.run("job.result()").error)
    notebook.run("%%mgpu_srun --background --as job --out c,d\nc, d = 1, [2]")
    assert notebook.run("print(job.wait(60).result())").text() == "{'c': 1, 'd': [2]}\n"
    notebook.run("%%mgpu_srun --background --as job --out c\nc = 1\nraise SystemExit(3)")
    assert "left no variables, since it is failed" in str(notebook.run("job.wait(60).result()").error)
    notebook.run("%%mgpu_srun --background --as job\nc = 1")
    assert "was not asked for variables" in str(notebook.run("job.wait(60).result()").error)
    assert notebook.run("import os; os.unlink('go')").error is None


def test_a_cell_that_sets_too_little_brings_the_rest_and_names_what_is_missing(notebook: Notebook) -> None:
    ran = notebook.run("%%mgpu_srun --out c,d\nc = 1\nd = open('/dev/null')")
    assert "`d` is or holds an open file (/dev/null)" in str(ran.error)
    assert notebook.run("print(c)").text() == "1\n"
    ran = notebook.run("%%mgpu_srun --out c\n1 / 0")
    assert "exit code 1" in str(ran.error)
    assert "ZeroDivisionError" in next(
        "".join(one.content["traceback"]) for one in ran.pieces if one.kind == "error"
    )


@pytest.mark.parametrize(
    ("setting", "flags", "sentence"),
    [
        (
            "f = open('/dev/null')",
            "--in f",
            "`f` is or holds an open file (/dev/null): send its path or its content instead.",
        ),
        ("f = (x for x in 'a')", "--in f", "`f` is or holds a generator"),
        ("f = [__import__('threading').Lock()]", "--in f", "`f` is or holds a lock"),
        (
            f"{HIDE_CLOUDPICKLE}class K: pass\nf = K()",
            "--in f",
            "`f` needs the class K, which only this notebook knows: install cloudpickle",
        ),
        (
            "import os; os.environ['MGPU_VALUES_LIMIT'] = '1'; f = bytes(2 << 20)",
            "--in f",
            "`f` has 2 MiB, and 1 MiB may travel in all",
        ),
        (
            "del os.environ['MGPU_VALUES_LIMIT']",
            "--in nothing",
            "--in nothing: there is no variable nothing in this notebook",
        ),
        ("f = 1", "--in f,f", "--in names f twice"),
        ("f = 1", "--out class", "--out class: it is a word of Python"),
        ("f = 1", "--in 'f g'", "it is no name of a variable"),
        ("f = 1", "--image python:3 --in f", "do not reach into a container"),
    ],
)
def test_what_cannot_travel_is_refused_by_name_and_nothing_is_queued(
    two_nodes: Cluster, notebook: Notebook, setting: str, flags: str, sentence: str
) -> None:
    notebook.run(setting)
    before = len(list(two_nodes.client.jobs()))
    ran = notebook.run(f"%%mgpu_srun {flags}\nprint(1)")
    assert sentence in said(ran), ran
    assert len(list(two_nodes.client.jobs())) == before


def test_commands_and_other_interpreters_take_no_variables(two_nodes: Cluster, notebook: Notebook) -> None:
    notebook.run("f = 1")
    assert "are for cells in Python" in said(notebook.run("%%mgpu_srun --in f\n#!/bin/sh\ntrue"))
    assert "are for Python cells" in said(notebook.run("%mgpu_srun --in f -- true"))
    with pytest.raises(InvalidRequest, match="are for Python cells"):
        two_nodes.client.submit(["true"], gpus=0, outputs=["c"])


def test_another_minor_version_is_reported_before_anything_is_queued(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    other = tmp_path / "python3.7"
    other.write_text(FAKE_PYTHON.format(real=sys.executable))
    other.chmod(0o755)
    client = two_nodes.client
    before = len(list(client.jobs()))
    with pytest.raises(
        InvalidRequest,
        match=rf"n1 \(Python 3.7, {other}\).*Name a Python {sys.version_info[0]}.{sys.version_info[1]} that "
        rf"is there",
    ):
        client.submit(script="c = a", gpus=0, inputs={"a": 1}, outputs=["c"], python=str(other))
    assert len(list(client.jobs())) == before


@pytest.mark.parametrize("is_near", [True, False])
def test_the_same_in_python_and_what_was_sent_is_not_sent_again(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch, *, is_near: bool
) -> None:
    """On the server's machine, and as from elsewhere: over HTTP alone."""
    if not is_near:
        monkeypatch.setattr(nearby, "mapped", lambda *_: None)
        monkeypatch.setattr(nearby, "tray_of", lambda *_: None)
    client = two_nodes.client
    pieces = two_nodes.state / "pieces"
    a = np.arange(600_000.0)
    first = client.submit(script="b = a[::-1].copy()", gpus=0, inputs={"a": a}, outputs="b").wait(60)
    assert np.array_equal(first.result(), a[::-1])  # type: ignore[arg-type]
    kept = {path for path in pieces.rglob("*") if path.is_file()}
    second = client.submit(script="b = a.sum()", gpus=0, inputs={"a": a}, outputs=["b"]).wait(60)
    assert second.result() == a.sum()
    assert {path for path in pieces.rglob("*") if path.is_file()} == kept
    private = [
        stat.S_IMODE(path.stat().st_mode) & 0o077
        for path in (two_nodes.state / "results").rglob("*")
        if path.is_file()
    ]
    assert set(private) == {0}
    assert not os.listdir(two_nodes.state / "tray")
    client.admin.purge(0.0)
    assert not {path for path in pieces.rglob("*") if path.is_file()}
    with pytest.raises(NotFound):
        second.result()


def test_inputs_that_nobody_sent_are_refused(two_nodes: Cluster) -> None:
    job = two_nodes.client.submit(script="c = 1", gpus=0, outputs=["c"]).wait(60)
    assert job.result() == 1
    with pytest.raises(Conflict, match="run the cell again"):
        two_nodes.client.submit_spec(JobSpec(script="print(1)", gpus=0, inputs="0" * 64))


def test_variables_survive_restarts_and_a_second_attempt_gets_the_same(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    """Killed while the job runs: the agent, the master; and then the job is put back once more."""
    client = two_nodes.client
    script = (
        "import os, time\nopen(f'{place}/up.' + os.environ['MGPU_ATTEMPT'], 'w').close()\n"
        "while not os.path.exists(f'{place}/go.' + os.environ['MGPU_ATTEMPT']): time.sleep(0.05)\n"
        "b = (a + 1, os.environ['MGPU_ATTEMPT'])\n"
    )
    a = np.arange(300_000)
    job = client.submit(
        script=script, gpus=1, nodelist=["n1"], inputs={"a": a, "place": str(tmp_path)}, outputs=["b"]
    )
    two_nodes.wait_until((tmp_path / "up.1").exists, "the first attempt runs")
    two_nodes.kill("n1")
    two_nodes.kill("master")
    two_nodes.start_master()
    two_nodes.start_node("n1")
    client = two_nodes.client
    job = client.job(job.id)
    two_nodes.wait_until(lambda: job.refresh().state == JobState.RUNNING, "it runs on")
    job.requeue()
    two_nodes.wait_until((tmp_path / "up.2").exists, "the second attempt runs")
    (tmp_path / "go.2").touch()
    assert job.wait(60).state == JobState.COMPLETED
    array, attempt = bring(client.caller, job.id).values["b"]  # type: ignore[misc]
    assert attempt == "2"
    assert np.array_equal(array, a + 1)
    scratch = two_nodes.state / "nodes" / "n1" / "scratch"
    two_nodes.wait_until(
        lambda: not [name for name in os.listdir(scratch) if job.id in name], "nothing is left on the node"
    )
