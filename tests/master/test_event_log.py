"""The log that an operator reads: a line for each thing that happened, and not one for each of very many."""

from __future__ import annotations

import logging
import re

import pytest

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuTrouble
from mgpu_jupyter.master import node_calls
from mgpu_jupyter.master.event_log import AT_ONCE
from mgpu_jupyter.model.settings import Retries, Scheduling
from mgpu_jupyter.scheduler.events import (
    GpusChanged,
    LaunchWasRefused,
    NodeChecked,
    NodeHeard,
    NodeJoined,
    NodeLeft,
    NodeOrdered,
    NodeProbed,
    NodeSilent,
    TaskReported,
)
from mgpu_jupyter.scheduler.model import Policy
from tests.builders import a_spec, ended, facts, status
from tests.hostile import ALL
from tests.master.bench import Bench

N1 = NodeId("n1")
FACTS = "host host-n1, address 127.0.0.1, 4 GPUs, simulated"
OVER = "WARNING job_id=ID of ann attempt 1 is over on n1 (GPU 0)"
LAST, AGAIN = "It was last heard at 1970-01-01 00:16:40 UTC.", "It is tried again at 00:17:10 UTC."


class LoggedBench(Bench):
    """A master whose clock stands still until a test moves it, and the lines that it wrote."""

    def __init__(self, caplog):
        super().__init__()
        self.now, self._caplog = 1_000.0, caplog
        self.use(self.master)
        caplog.set_level(logging.INFO, "mgpu")

    def use(self, master):
        self.master = master
        master.clock = lambda: self.now

    def tell(self, *events):
        self.nodes.tell(*events)
        self.master.turn()

    def lines(self):
        """Return the lines since the last call, with masked ids."""
        records = [one for one in self._caplog.records if one.name == "mgpu.events"]
        self._caplog.clear()
        ids = re.compile(r"(job_id|array)=[A-Z0-9]{8}")
        return [one.levelname + " " + ids.sub(r"\1=ID", one.getMessage()) for one in records]

    def run(self, job):
        self.tell(TaskReported(at=self.now, status=status(job, started_at=self.now)))

    def end(self, job, exit_code=0):
        self.tell(
            TaskReported(
                at=self.now,
                status=ended(job, exit_code=exit_code, started_at=job.started_at or self.now, at=self.now),
            )
        )


@pytest.fixture
def bench(caplog):
    return LoggedBench(caplog)


def test_the_life_of_jobs(bench):
    bench.join()
    bench.lines()
    job = bench.one_job(gpus=2, name="train")
    bench.now += 2.0
    bench.run(job)
    bench.now += 3.0
    bench.end(bench.master.state.jobs[job.id], exit_code=3)
    assert bench.lines() == [
        'INFO job_id=ID submitted by ann: "train", 2 GPUs',
        "INFO job_id=ID of ann started on n1 (GPU 0, 1), 2.0 s after it was submitted",
        "INFO job_id=ID of ann failed on n1 (GPU 0, 1) after 3.0 s: It ended with exit code 3 on n1.",
    ]
    at_once = bench.one_job(gpus=0)
    bench.nodes.tell(TaskReported(at=bench.now, status=status(at_once, started_at=bench.now)))
    bench.end(at_once)
    waits = bench.one_job(gpus=4, hold=True)
    bench.cancel(waits.id)
    bench.turn()
    assert bench.lines() == [
        "INFO job_id=ID submitted by ann: 0 GPUs",
        "INFO job_id=ID of ann started on n1, 0 ms after it was submitted",
        "INFO job_id=ID of ann completed on n1 after 0 ms",
        "INFO job_id=ID submitted by ann: 4 GPUs",
        "INFO job_id=ID of ann was cancelled: Cancelled by ann.",
    ]


def test_the_life_of_nodes_and_what_they_lose(bench):
    bench.join()
    job = bench.one_job(gpus=1)
    bench.run(job)
    bench.lines()
    bench.tell(NodeSilent(at=bench.now, node_id=N1, reason="Its connection ended."))
    bench.tell(NodeHeard(at=bench.now, node_id=N1))
    again = facts("n1", 4, incarnation="boot-2/ledger-1", pid=7)
    bench.tell(NodeJoined(at=bench.now, node_id=N1, facts=again))
    bench.tell(NodeLeft(at=bench.now, node_id=N1, reason="Its agent was stopped."))
    assert bench.lines() == [
        f"WARNING node_id=n1 is suspect, 1 job may run there: Its connection ended. {LAST}",
        "INFO node_id=n1 is heard again",
        f"INFO node_id=n1 joined: {FACTS}; its agent was started anew",
        f"{OVER} after 0 ms, it waits again: Node n1 restarted and lost it.",
        "WARNING node_id=n1 is offline, 1 job may run there: Its agent was stopped.",
    ]
    bench.use(bench.new_master())
    bench.master.recover()
    bench.tell(
        NodeJoined(at=bench.now, node_id=N1, facts=facts("n1", 4, incarnation="boot-2/ledger-1", pid=8))
    )
    assert bench.lines()[0] == ("INFO node_id=n1 joined: host host-n1, address 127.0.0.1, 4 GPUs, simulated")


def test_what_is_decided_about_the_health_of_nodes(bench):
    bench.use(bench.new_master(Policy(scheduling=Scheduling(retries=Retries(node_failures=1)))))
    bench.join()
    job = bench.one_job(gpus=1)
    bench.lines()
    why = {"code": "spool", "message": "Its disk is full.", "fault": "node"}
    bench.tell(LaunchWasRefused(at=bench.now, node_id=N1, key=job.attempt_key, **why))
    bench.now += 60.0
    bench.master.turn()
    number = bench.master.state.nodes[N1].health.probe
    bench.tell(NodeProbed(at=bench.now, node_id=N1, number=number, ok=True, message=""))
    bench.tell(NodeChecked(at=bench.now, node_id=N1, ailments=("Its clock is wrong.",)))
    bench.tell(NodeChecked(at=bench.now, node_id=N1, ailments=()))
    gone = {GpuUuid("GPU-n1-3"): GpuTrouble("lost", "NVIDIA's driver says: GPU is lost.")}
    bench.tell(GpusChanged(at=bench.now, node_id=N1, troubles=gone))
    bench.tell(
        GpusChanged(at=bench.now, node_id=N1, troubles={GpuUuid("GPU-n1-2"): GpuTrouble("memory", "-")})
    )
    order = NodeOrdered(at=bench.now, node_id=N1, action="drain", by="root", reason="new memory")
    bench.tell(order)
    assert [line for line in bench.lines() if " of ann started " not in line] == [
        f"WARNING node_id=n1 is unhealthy: The last start on it failed: Its disk is full. {AGAIN}",
        f"{OVER}, it waits again: It could not be started on n1: Its disk is full.",
        "INFO node_id=n1 is well again and takes jobs",
        "WARNING node_id=n1 is unhealthy: Its clock is wrong.",
        "INFO node_id=n1 is well again and takes jobs",
        "WARNING node_id=n1 GPU 3 is not handed out: NVIDIA's driver says: GPU is lost.",
        "INFO node_id=n1 GPU 3 is handed out again",
        "INFO node_id=n1 is draining: Drained by root: new memory.",
    ]


def test_a_node_that_is_revoked_and_removed(bench):
    bench.join()
    bench.lines()
    bench.post(node_calls.revoke(N1, "root", "stolen", bench.answer))
    bench.turn()
    order = node_calls.OrderWish(action="remove", reason="")
    bench.post(node_calls.order(N1, "root", order, bench.answer))
    bench.turn()
    assert bench.lines() == [
        "WARNING node_id=n1 is refused from now on: Revoked by root: stolen.",
        "WARNING node_id=n1 is offline: Revoked by root: stolen.",
        "WARNING node_id=n1 was removed",
    ]


@pytest.mark.slow
def test_an_array_of_ten_thousand_is_a_few_lines(bench):
    bench.join(gpus=8)
    bench.lines()
    bench.submit((a_spec(gpus=1, array="0-9999"), None))
    bench.master.turn()
    count = 10_000
    while active := [job for job in bench.master.state.jobs.values() if job.placements]:
        bench.now += 1.0
        bench.nodes.tell(
            *[
                TaskReported(at=bench.now, status=ended(job, started_at=bench.now, at=bench.now))
                for job in active
            ]
        )
        bench.master.turn()
        if len(bench.master.state.jobs) < count - 1_000:
            break
    bench.now += 10.0
    bench.master.turn()
    lines = bench.lines()
    assert lines[0] == "INFO array=ID of 10000 jobs submitted by ann: 1 GPU each"
    assert re.fullmatch(r"INFO job_id=ID \(array=ID, 0\) of ann started on n1 \(GPU 0\), .*", lines[1])
    assert lines[-1].startswith("INFO array=ID of user=ann: ")
    assert len(lines) <= AT_ONCE + 126 / 10 + 3
    counted = sum(int(number) for line in lines for number in re.findall(r"(\d+) completed", line)) + sum(
        " completed on " in line for line in lines
    )
    assert counted == count - len(bench.master.state.jobs), "none is left out of the count"


def test_what_is_counted_is_told_at_the_end_and_a_failure_in_full(bench):
    bench.join(gpus=8)
    bench.lines()
    for _ in range(AT_ONCE):
        bench.cancel(bench.one_job(hold=True).id)
        bench.turn()
    bench.now += 1.0
    job = bench.one_job()
    bench.end(job, exit_code=2)
    assert len(bench.lines()) == AT_ONCE
    bench.master._events.flush(bench.now, all_of_it=True)
    (line,) = bench.lines()
    assert line == (
        "INFO jobs of user=ann: 11 submitted, 10 cancelled, 1 started, 1 failed in 1.0 s; the last: "
        "job_id=ID of ann failed on n1 (GPU 0) after 0 ms: It ended with exit code 2 on n1."
    )


@pytest.mark.parametrize("text", [text for text in ALL if not re.search("[\ud800-\udfff]", text)])
def test_what_others_wrote_is_one_harmless_line(bench, text):
    bench.join()
    bench.lines()
    bench.submit((a_spec(name=text[:100] or "x"), None), user=text)
    bench.master.turn()
    (line,) = bench.lines()
    assert line.isprintable()


def test_nothing_is_gathered_where_nobody_reads(bench, caplog):
    caplog.set_level(logging.WARNING, "mgpu")
    bench.join()
    bench.one_job()
    assert bench.lines() == []
