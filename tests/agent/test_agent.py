"""A whole agent process against a small master over CURVE: launches, output, restarts of either side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from mgpu_agent.config import AgentConfig
from mgpu_agent.identity import Identity
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.messages import Bye, Launch, Resync, Stop
from mgpu_agent.protocol.model import PythonWish, TaskSpec
from mgpu_agent.whereabouts import check_named_master
from mgpu_jupyter.client.here import Here
from tests.agent.conftest import Node
from tests.agent.master import SmallMaster, wait_until

pytestmark = pytest.mark.slow  # a whole node for each test

GPUS = (GpuUuid("GPU-SIM-n1-0"), GpuUuid("GPU-SIM-n1-1"))


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_hello_says_who_and_what(joined: SmallMaster, node: Node) -> None:
    hello = joined.hellos[0]

    assert (hello.node_id, hello.tasks, hello.facts.pid, hello.facts.address) == (
        "n1",
        (),
        node.process.pid,
        "127.0.0.1",
    )
    assert hello.facts.host == Here.real().host  # what --gpu-ids without a node goes by
    assert [(gpu.uuid, gpu.index, gpu.memory_bytes, gpu.simulated) for gpu in hello.facts.gpus] == [
        (GPUS[0], 0, 24 * 1024**3, True),
        (GPUS[1], 1, 24 * 1024**3, True),
    ]
    assert joined.order[:2] == ["Enrol", "Hello"]


def test_a_short_job_is_told_once_after_its_output(joined: SmallMaster) -> None:
    joined.order.clear()
    key = joined.launch("echo", "hi")
    status = joined.wait_end(key)

    assert (joined.text(key), status.exit_code, status.signal, status.stdout_bytes) == ("hi\n", 0, None, 3)
    assert [name for name in joined.order if name != "Heartbeat"] in (
        ["Output", "TaskReport"],
        ["TaskReport", "Output", "TaskReport"],
    )


def test_what_really_ran_is_told(joined: SmallMaster, state: Path) -> None:
    program = (
        "import os; e = os.environ; print(e['CUDA_VISIBLE_DEVICES'], e['CUDA_DEVICE_ORDER'], "
        "e['MGPU_GPUS'], e['MGPU_JOB_ID'],"
        " e['MGPU_ATTEMPT'], e['MGPU_EPOCH'], e['MGPU_NODE_ID'], e['PYTHONUNBUFFERED'], e['FROM_SPEC'], "
        "e['FROM_TASK'], e['PWD'],"
        " os.getcwd(), sep='|')"
    )
    key = joined.launch(
        sys.executable,
        "-c",
        program,
        gpus=(GPUS[1],),
        env={"FROM_SPEC": "spec", "FROM_TASK": "spec"},
        tasks=(TaskSpec(rank=0, env={"FROM_TASK": "task"}),),
    )
    status = joined.wait_end(key)

    assert (
        joined.text(key)
        == f"1|PCI_BUS_ID|GPU-SIM-n1-1|{key.job_id}|1|{key.epoch}|n1|1|spec|task|{state}|{state}\n"
    )
    assert (status.node_id, status.gpus, status.cwd, status.note, status.pid > 1) == (
        "n1",
        (GPUS[1],),
        str(state),
        "",
        True,
    )


def test_secrets_of_a_server_stay_with_it(master: SmallMaster, node: Node) -> None:
    secrets = {
        "MGPU_TOKEN": "s1",
        "MGPU_URL": "s2",
        "JUPYTER_TOKEN": "s3",
        "JPY_API_TOKEN": "s4",
        "JUPYTERHUB_API_TOKEN": "s5",
    }
    node.start(env={**secrets, "PLAIN": "kept"})
    master.wait(lambda: master.hellos)
    key = master.launch("env")
    master.wait_end(key)
    names = {line.partition("=")[0] for line in master.text(key).splitlines()}

    assert (names & secrets.keys(), "PLAIN" in names) == (set(), True)


def test_a_missing_directory_is_said(joined: SmallMaster, node: Node) -> None:
    key = joined.launch("pwd", cwd="/no/such/directory")
    status = joined.wait_end(key)
    scratch = node.directory / "scratch" / key.job_id

    assert joined.text(key) == f"{scratch}\n"
    assert (
        status.note
        == f"/no/such/directory cannot be entered on this node: the job runs in {scratch}, which is kept "
        f"for 7 days."
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import sys\nprint(sys.executable)", f"{sys.executable}\n"),
        ("#!/bin/sh\necho shell $0", None),
        ("import beside\nprint(beside.VALUE)", "from beside\n"),
    ],
)
def test_cells_run(joined: SmallMaster, node: Node, state: Path, source: str, expected: str | None) -> None:
    (state / "beside.py").write_text("VALUE = 'from beside'\n")
    key = joined.launch(script=source)
    status = joined.wait_end(key)
    shown = f"shell {node.directory}/spool/{key}.cell\n" if expected is None else expected

    assert (joined.text(key), joined.text(key, stream=2), status.exit_code) == (shown, "", 0)
    assert status.python == ("" if expected is None else sys.executable)


def test_a_traceback_names_the_cell(joined: SmallMaster, node: Node) -> None:
    key = joined.launch(script="x = 1\nraise ValueError('no')\n")
    status = joined.wait_end(key)
    name = f'{node.directory}/spool/{key}.cell.py", line 2'

    assert (
        status.exit_code,
        name in joined.text(key, stream=2),
        "raise ValueError('no')" in joined.text(key, stream=2),
    ) == (1, True, True)


def test_the_python_that_was_asked_for(joined: SmallMaster, state: Path) -> None:
    same, other = state / "python3.11", state / "python2.7"
    for path in (same, other):
        path.write_text("#!/bin/sh\necho ran\n")
        path.chmod(0o755)
    by_kernel = joined.launch(script="1", python=PythonWish(kernel_path=str(same), kernel_version="3.11"))
    by_agent = joined.launch(script="1", python=PythonWish(kernel_path=str(other), kernel_version="3.11"))
    by_name = joined.launch(script="1", python=PythonWish(path=str(other)))
    missing = joined.launch(script="1", python=PythonWish(path="/no/python"))
    pythons = [joined.wait_end(key).python for key in (by_kernel, by_agent, by_name)]
    (refusal,) = joined.wait(lambda: joined.refusals)

    assert pythons == [str(same), sys.executable, str(other)]
    assert (refusal.key, refusal.code, refusal.fault, refusal.exit_code) == (
        missing,
        "no-python",
        "node",
        127,
    )


def test_launches_that_cannot_be(joined: SmallMaster) -> None:
    missing = joined.launch("no-such-program")
    foreign = joined.launch("true", incarnation="other/one")
    joined.wait(lambda: len(joined.refusals) == 2)
    told = {(refusal.key, refusal.code, refusal.fault, refusal.exit_code) for refusal in joined.refusals}

    assert told == {(missing, "not-found", "request", 127), (foreign, "stale", "stale", None)}


def test_a_repeated_launch_runs_once(joined: SmallMaster, state: Path) -> None:
    spec = joined.spec("sh", "-c", "echo x >> starts; cat starts")
    joined.say(Launch(spec=spec))
    joined.say(Launch(spec=spec))
    joined.wait_end(spec.key)
    joined.say(Launch(spec=spec))
    count = len(joined.reports)
    joined.wait(lambda: len(joined.reports) > count)

    assert (joined.text(spec.key), (state / "starts").read_text()) == ("x\n", "x\n")


def test_stop_before_launch_and_while_running(joined: SmallMaster) -> None:
    never = joined.spec("true")
    joined.say(Stop(key=never.key, grace_s=1.0))
    joined.say(Launch(spec=never))
    running = joined.launch("sleep", "300")
    pid = joined.wait_running(running).pid
    joined.say(Stop(key=running, grace_s=5.0, reason="cancelled"))
    status = joined.wait_end(running)

    assert {(refusal.key, refusal.code) for refusal in joined.refusals} == {(never.key, "stopped")}
    assert (status.signal, status.exit_code, status.reason, is_alive(pid)) == (15, None, "cancelled", False)


def test_much_output_arrives_whole_within_the_window(master: SmallMaster, node: Node) -> None:
    master.window_bytes = 100_000
    node.start()
    master.wait(lambda: master.hellos)
    program = "import sys\nfor n in range(60000): print(f'{n:050d}')\nprint('e' * 500_000, file=sys.stderr)"
    loud = master.launch(sys.executable, "-c", program)
    quiet = master.launch("sh", "-c", "echo quiet")
    status = master.wait_end(loud)
    master.wait_end(quiet)

    assert master.text(loud) == "".join(f"{n:050d}\n" for n in range(60000))
    assert (master.text(loud, stream=2), master.text(quiet), status.exit_code) == (
        "e" * 500_000 + "\n",
        "quiet\n",
        0,
    )
    assert master.unacknowledged_peak <= 100_000


def test_an_ack_further_back_rewinds(joined: SmallMaster) -> None:
    joined.acks = False
    key = joined.launch(sys.executable, "-c", "print('x' * 300_000)")
    joined.wait_end(key)
    joined.acknowledge(key, 0, 1, 300_001)
    del joined.output[key, 0, 1][1000:]
    joined.acknowledge(key, 0, 1, 1000)
    joined.wait_end(key)

    assert joined.text(key) == "x" * 300_000 + "\n"


def test_output_comes_while_the_job_runs(joined: SmallMaster) -> None:
    key = joined.launch("sh", "-c", "echo one; sleep 300")
    joined.wait(lambda: joined.text(key) == "one\n")

    assert joined.wait_running(key).ended_at is None


def test_the_window_is_shared_fairly(master: SmallMaster, node: Node) -> None:
    master.window_bytes = 64 * 1024
    node.start()
    master.wait(lambda: master.hellos)
    flood = master.launch("sh", "-c", "exec yes flood")
    master.wait(lambda: len(master.output[flood, 0, 1]) > 1_000_000)
    quiet = master.launch("echo", "quiet")
    master.wait_end(quiet)
    master.say(Stop(key=flood, grace_s=0.0))

    assert master.text(quiet) == "quiet\n"
    master.wait(lambda: master.statuses[flood, 0].ended_at)


def test_forget_deletes_the_files(joined: SmallMaster, node: Node) -> None:
    done, running = joined.launch("echo", "hi"), joined.launch("sleep", "300")
    joined.wait_end(done)
    joined.wait_running(running)
    spool = node.directory / "spool"
    before = {path.name for path in spool.iterdir()}
    joined.forget(done, running)
    wait_until(lambda: len(list(spool.iterdir())) == 2)
    joined.say(Resync())
    joined.wait(lambda: len(joined.hellos) == 2)

    left = {path.name for path in spool.iterdir()}
    assert (len(before), left < before, {Path(name).suffix for name in left}) == (4, True, {".out", ".err"})
    assert [status.key for status in joined.hellos[-1].tasks] == [running]


def test_readings_come_and_rise_under_load(joined: SmallMaster) -> None:
    joined.launch("sleep", "300", gpus=(GPUS[0],))

    def readings() -> tuple[float, float] | None:
        samples = {sample.uuid: sample for beat in joined.heartbeats for sample in beat.samples}
        if samples.keys() != set(GPUS):
            return None
        busy, idle = (samples[uuid].utilisation_percent or 0.0 for uuid in GPUS)
        return (busy, idle) if busy > 5.0 else None

    _, idle = joined.wait(readings) or (0.0, 0.0)
    assert idle == 0.0


def test_a_second_agent_says_so(joined: SmallMaster, node: Node, state: Path) -> None:
    words = [sys.executable, "-m", "mgpu_agent.cli", "--node-id", "n1", "--state-dir", str(state)]
    plain = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    embedded = subprocess.run(
        [*words, "--embedded"], capture_output=True, text=True, timeout=120, check=False
    )
    sentence = "The agent of node n1 is already running.\n"

    assert [(run.returncode, run.stderr) for run in (plain, embedded)] == [(1, sentence), (0, sentence)]


def test_an_embedded_agent_ends_with_bye(master: SmallMaster, node: Node) -> None:
    process = node.start("--embedded")
    master.wait(lambda: master.hellos)
    master.say(Bye())
    wait_until(lambda: process.poll() is not None)
    wait_until(lambda: not node.keepers())

    assert (process.returncode, "joined" in (node.directory / "agent.log").read_text()) == (0, True)
    assert (node.directory / "agent.log").stat().st_mode & 0o777 == 0o600


START_ONE = (
    "of yours runs on this machine: start one with mgpu_master or JupyterLab, then start mgpu_node again.\n"
)
NEEDS_A_LINE = "run `mgpu join-token` there and start mgpu_node with the line it prints.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], f"No mgpu master {START_ONE}"),
        (["--master-port", "1"], f"No mgpu master on port 1 {START_ONE}"),
        (
            ["--master-host", "gpu.example.com"],
            f"This machine is not enrolled with the master on gpu.example.com: {NEEDS_A_LINE}",
        ),
    ],
)
def test_without_a_master_there_is_one_sentence(state: Path, arguments: list[str], sentence: str) -> None:
    words = [sys.executable, "-m", "mgpu_agent.cli", "--node-id", "n1", "--state-dir", str(state), *arguments]
    env = os.environ | {"MGPU_MASTER_WAIT": "0.1"}
    run = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=env)

    assert (run.returncode, run.stderr, run.stdout) == (1, sentence, "")


def test_who_waits_for_a_master_says_so(state: Path) -> None:
    words = [sys.executable, "-m", "mgpu_agent.cli", "--node-id", "n1", "--state-dir", str(state)]
    env = os.environ | {"MGPU_MASTER_WAIT": "2"}
    run = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=env)

    waits = "No mgpu master of yours runs on this machine yet: waiting 2 s for one to start.\n"
    assert (run.returncode, run.stderr) == (1, f"{waits}No mgpu master {START_ONE}")


def test_another_master_than_that_of_the_enrolment_is_refused(joined: SmallMaster, node: Node) -> None:
    wait_until((node.directory / "enrolment.json").exists)
    enrolment = Identity(node.directory).enrolment
    assert enrolment is not None
    config = AgentConfig(node_id=NodeId("n1"), state=node.directory, master_host="no.such.host.invalid")
    with pytest.raises(
        InvalidRequest, match=r"^This node is enrolled with the master at .*, not with one on no"
    ):
        check_named_master(config, enrolment)
    check_named_master(replace(config, master_host=None), enrolment)


def test_state_is_private(joined: SmallMaster, node: Node) -> None:
    wait_until((node.directory / "enrolment.json").exists)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in (node.directory, *node.directory.iterdir(), *(node.directory / "keys").iterdir())
    }

    assert modes == {
        "n1": 0o700,
        "keys": 0o700,
        "spool": 0o700,
        "scratch": 0o700,
        "node.json": 0o600,
        "jobs": 0o600,
        "jobs.sock": 0o600,
        "enrolment.json": 0o600,
        "ledger": 0o600,
        "agent.lock": 0o600,
        "keeper.lock": 0o600,
        "keeper.log": 0o600,
        "keeper.sock": 0o600,
    }


def test_many_short_jobs(joined: SmallMaster) -> None:
    keys = [joined.launch("true") for _ in range(300)]
    joined.wait(lambda: all((key, 0) in joined.statuses and joined.statuses[key, 0].ended_at for key in keys))

    assert {joined.statuses[key, 0].exit_code for key in keys} == {0}
