"""What commands print of queue, nodes and simulations: whole lines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.cli import simulate, tables
from mgpu_jupyter.cli.nodes import as_lines
from mgpu_jupyter.cli.queue import rows_of
from mgpu_jupyter.cli.show import columns
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play, Say, a_node
from mgpu_jupyter.model.job import JobSpec
from tests.cli.test_cli import plays
from tests.cli.test_command_output import JOB, Captured, said
from tests.client.test_queue_rows import JOBS, NOW


def test_lines_of_nodes() -> None:
    gpu = a_node().gpus[0]
    node = replace(
        a_node("n1"),
        gpus=(gpu, replace(gpu, index=1, job_id=JobId(JOB), utilisation_percent=49.6)),
        reason="Slow.",
        cpu_percent=12.4,
        port=7,
        rack="A",
        switch="1",
        labels={"b": "", "a": "1"},
        warnings=("Old.",),
        gpu_note="Simulated.",
        orders=models.NodeOrders(
            lists=replace(models.NodeOrders().lists, allow_users=("ann",), deny_accounts=("x",)),
            lists_by="eve",
        ),
    )
    lines = as_lines((node,))
    assert lines[0] == "n1: online (Slow.) | host n1 | 8 CPUs, 12 % busy | 2 GPUs, simulated, 1 free"
    assert lines[1].startswith("  address 127.0.0.1")
    assert lines[1].endswith(", port 7")
    assert lines[2:8] == [
        "  rack A, switch 1",
        "  labels a=1, b",
        "  only for ann (set by eve)",
        "  not for account x (set by eve)",
        "  WARNING: Old.",
        "  Simulated.",
    ]
    assert [line.split(" | ")[0] for line in lines[8:]] == [
        "  GPU 0: Simulated GPU (simulated)",
        "  GPU 1: Simulated GPU (simulated)",
    ]
    assert lines[9].endswith(f" | 50 % busy | {JOB}")
    bare = replace(a_node("n2"), gpus=(), cpu_percent=None)
    assert as_lines((bare,))[0] == "n2: online | host n2 | 8 CPUs | no GPU"
    assert as_lines(()) == ["No nodes yet: run `mgpu_node --node-id NAME` on a machine with GPUs."]


def test_machines_that_never_joined(capsys: Captured) -> None:
    expected = (
        models.ExpectedNode(id=NodeId("e1"), host="h", gpu_count=2, gpu_type="H100"),
        models.ExpectedNode(id=NodeId("e2"), gpu_count=0),
        models.ExpectedNode(id=NodeId("e3")),
    )
    told = "expected (in the cluster's file; it never joined)"
    code, out, _, _ = said(capsys, "nodes", models.NodeList(nodes=(), expected=expected))
    assert (code, out[1:]) == (
        0,
        [f"e1: {told} | host h | 2 GPUs H100", f"e2: {told} | no GPU", f"e3: {told}"],
    )
    code, out, _, _ = said(capsys, "nodes --json", models.NodeList(nodes=(a_node(),), expected=expected))
    page = msgspec.json.decode(out[0])
    assert ([one["id"] for one in page["expected"]], len(page["nodes"][0]["gpus"])) == (["e1", "e2", "e3"], 4)
    plain = said(capsys, "nodes --json", models.NodeList(nodes=(a_node(),)))
    assert "expected" not in msgspec.json.decode(plain[1][0])


def test_columns_of_the_queue() -> None:
    assert rows_of("id, gpus,nodes,name,started_at,exit_code")(JOBS[1:3]) == [
        "ID        GPUS  NODES  NAME  STARTED_AT  EXIT_CODE",
        "LATE0001  4     n2     -     1699999995  -",
        "EARL0001  8     n1,n3  -     1699999950  -",
    ]
    assert rows_of("id", header=False)(JOBS[1:3]) == ["LATE0001", "EARL0001"]
    assert rows_of("{id}: {state}")(JOBS[1:3]) == ["LATE0001: running", "EARL0001: running"]
    assert columns([["a", "bb"], ["ccc", ""]]) == "a    bb\nccc"


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("", "it names no field"),
        (",", "it names no field"),
        ("id,size", "there is no field size"),
        ("{size}", "there is no field size"),
    ],
)
def test_columns_that_are_none(pattern: str, what: str) -> None:
    with pytest.raises(
        Exception,
        match=f"--format {pattern.replace('{', '.').replace('}', '.')}: {what}; the fields are id, ",
    ):
        rows_of(pattern)


def test_tables_of_a_wide_and_a_narrow_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)

    def shown(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        tables.show_queue(JOBS, (a_node("n1", 2),), {})
        return capsys.readouterr().out.splitlines()

    wide = shown(200)
    assert [line.rstrip() for line in wide if line.startswith("---")] == [
        *("--- Running Jobs ---", "--- Queue ---", "--- Finished Jobs ---", "--- Cluster Status ---")
    ]
    assert [line.split() for line in wide[-2:]] == [
        ["node", "state", "GPUs", "free", "reason"],
        ["n1", "online", "2", "2"],
    ]
    narrow = shown(60)
    assert narrow[:6] == [
        "--- Running Jobs ---",
        "Job       State    User  Size  Time  Name  Command",
        "EARL0001  running  ann   2×4   50 s        run EARL0001",
        "    on n1, n3",
        "LATE0001  running  ann   1×4   5 s         run LATE0001",
        "    on n2",
    ]
    tables.show_queue((), (), {})
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        *("--- Running Jobs ---", "No running jobs", "--- Queue ---", "No queued jobs"),
        *("--- Cluster Status ---", "No node information available"),
    ]


def test_nodes_of_a_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    gpu = replace(a_node().gpus[0], utilisation_percent=49.6, memory_used_bytes=None)
    node = replace(
        a_node("n1"),
        gpus=(gpu, replace(gpu, index=1, utilisation_percent=None)),
        cpu_percent=5.0,
        rack="A",
        switch="1",
        warnings=("Old.",),
    )
    tables.show_nodes((node, replace(a_node("n2"), gpus=(), gpu_note="No driver.", reason="Slow.")))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [
        "n1  online  host n1 | 127.0.0.1 | rack A | switch 1 | 8 CPUs, 5 % busy",
        "  WARNING: Old.",
        "GPU  name                       memory  busy  held by".replace("memory", lines[2].split()[2]),
    ]
    assert [(line.split()[0], line.split()[-1]) for line in lines[3:5]] == [("0", "free"), ("1", "free")]
    assert ("50 %" in lines[3], " - " in lines[4]) == (True, True)
    assert lines[5:] == ["n2  online  host n2 | 127.0.0.1 | 8 CPUs | No driver. | Slow."]


# --- simulate -------------------------------------------------------------------------------------------


@pytest.fixture
def a_trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("submit_s,duration_s,gpus\n0,100,1\n0,100,2\n10,50,1\n0,10,99\n0,10,0\n")
    return path


def test_a_simulation(capsys: Captured, a_trace: Path) -> None:
    line = f"simulate {a_trace} --nodes 1 --gpus-per-node 2"
    code, out, err, _ = said(capsys, line, None)
    assert (code, err) == (0, [])
    assert out[0] == "1 nodes × 2 GPUs, policy easy, estimates perfect".replace(
        "easy", out[0].split("policy ")[1].split(",")[0]
    )
    assert out[1] == f"  {'jobs':<34}3"
    assert [row[2:36].rstrip() for row in out[1:11]] == [
        "jobs",
        "mean wait",
        "95 % waited at most",
        "longest wait",
        "mean submit to end (JCT)",
        "mean bounded slowdown",
        "GPUs in use",
        "first submit to last end",
        "promised a start, later than that",
        "replayed in",
    ]
    assert out[8] == f"  {'first submit to last end':<34}200.0 s (3 m 20 s)"
    assert out[11:] == ["Left out: 1 job larger than the cluster.", "Left out: 1 job without a GPU."]
    code, out, _, _ = said(capsys, f"{line} --json --repeat 2 --estimates none", None)
    page = msgspec.json.decode(out[0])
    assert (code, len(out), page["n_jobs"], page["repeat"], page["estimates"]) == (0, 1, 6, 2, "learned")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--nodes 0", "--nodes 0: write a whole number from 1 to "),
        ("--nodes x", "--nodes x: write a whole number from 1 to "),
        ("--repeat 1001", "--repeat 1001: write a whole number from 1 to 1,000."),
        ("--estimates odd", "--estimates odd: it is one of perfect, "),
        ("", "Give --nodes: mgpu simulate TRACE"),
        ("--nodes 1", "Give --gpus-per-node: mgpu simulate TRACE"),
    ],
)
def test_a_simulation_of_nothing_whole(capsys: Captured, a_trace: Path, flags: str, told: str) -> None:
    code, out, err, _ = said(capsys, f"simulate {a_trace} {flags}", None)
    assert (code, out, told in err[0], len(err)) == (2, [], True, 1)
    code, _, err, _ = said(capsys, "simulate", None)
    assert (code, "Name a trace, a CSV file" in err[0]) == (2, True)


def test_a_picture_is_drawn_and_refused_before_anything_is_replayed(
    capsys: Captured, a_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, list[str], str]] = []
    monkeypatch.setattr(
        simulate, "draw_replays", lambda path, done, title: drawn.append((path.name, list(done), title))
    )
    line = f"simulate {a_trace} --nodes 1 --gpus-per-node 2 --policy fifo --plot"
    assert said(capsys, f"{line} p.svg", None)[0] == 0
    assert drawn == [("p.svg", ["fifo"], "trace.csv, 1 nodes × 2, fifo")]
    code, out, err, _ = said(capsys, f"{line} p.txt", None)
    assert (code, out, len(err), len(drawn)) == (2, [], 1, 1)


# --- the rest -------------------------------------------------------------------------------------------


def test_flush_says_what_it_did(capsys: Captured) -> None:
    mock = plays(hold=True)
    client = Client(transport=mock)
    for _ in range(2):
        client.submit(["x"])
    assert entry.mgpu(["flush", "--json"], lambda: Client(transport=mock)) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found == {"flushed": 2, "job_ids": ["MOCK0001", "MOCK0000"]}
    assert entry.mgpu(["flush"], lambda: Client(transport=mock)) == 0
    assert capsys.readouterr().out == "Flushed 0 jobs\n"


def test_following_a_log(capsys: Captured) -> None:
    mock = MockTransport(lambda _: Play(output=(Say(b"a\n"), Say(b"b", "stderr", 1))))
    Client(transport=mock).submit_spec(JobSpec(command=("x",), nodes=2))
    for line, out in (
        ("logs MOCK0000 -f", "0: a\n1: b\n"),
        ("logs MOCK0000 -f --rank 1", "b"),
        ("logs MOCK0000", "0: a\n1: b\n"),
        ("logs MOCK0000 --rank 0", "a\n"),
    ):
        assert entry.mgpu(line.split(), lambda: Client(transport=mock)) == 0
        assert capsys.readouterr() == (out, "")
