"""One message of every kind with every field set; the golden file holds their bytes.

`python -m tests.protocol.samples` prints the lines of `golden.hex`. A released line is never changed, only
added to.
"""

from __future__ import annotations

from mgpu_agent.protocol.codec import encode
from mgpu_agent.protocol.file_messages import CollectResult, FetchPieces, FoundResults, Piece, ResultChunk
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.meeting import Fingerprint, MeetingPoint, Peer, Reached, Unreached, Way
from mgpu_agent.protocol.messages import (
    Bye,
    Check,
    Checked,
    Enrol,
    Enrolled,
    Forget,
    Heard,
    Heartbeat,
    Hello,
    Input,
    InputAck,
    Launch,
    LaunchRefused,
    Leave,
    Meet,
    Met,
    Output,
    OutputAck,
    Ping,
    Pong,
    Post,
    Posted,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Refuse,
    Resize,
    Resync,
    Start,
    Stop,
    TaskReport,
    ToAgent,
    ToMaster,
    Warn,
    Welcome,
)
from mgpu_agent.protocol.model import (
    STDERR,
    STDOUT,
    Ailment,
    CellPython,
    CellWish,
    GpuInfo,
    GpuProcess,
    GpuSample,
    GpuTrouble,
    HealthChecks,
    HookSpec,
    LaunchSpec,
    NodeFacts,
    OutputFile,
    OutputMark,
    ProcessSeen,
    PythonWish,
    ResultFile,
    TaskSpec,
    TaskStatus,
    Trouble,
)

MASTER_EPOCH = 7
KEY = AttemptKey(JobId("AB12CD34"), 2, 99)
NODE = NodeId("n1")
GPU = GpuUuid("GPU-00000000-0000-0000-0000-000000000001")
WAY = Way("192.0.2.10", "eth1")
MARK = OutputMark(KEY, 0, STDOUT, 4096)

FACTS = NodeFacts(
    host="gpu001",
    address="192.0.2.10",
    arch="x86_64",
    cpus=64,
    memory_bytes=2**38,
    boot_id="b7e4",
    incarnation="i1",
    agent_version="0.1.0",
    python="3.11",
    pid=4242,
    gpus=(
        GpuInfo(
            index=0,
            uuid=GPU,
            name="Simulated GPU",
            memory_bytes=2**34,
            simulated=True,
            mig_parent="GPU-2",
            nvlinks={GpuUuid("GPU-3"): 4},
        ),
    ),
    gpu_note="simulated",
    labels={"room": "B"},
    rack="r1",
    switch="s1",
    address_method="way-to-master",
    port=8081,
    runs_as="*",
)
STATUS = TaskStatus(
    key=KEY,
    rank=1,
    node_id=NODE,
    host="gpu001",
    address="192.0.2.10",
    pid=4300,
    started_at=1_700_000_000.5,
    gpus=(GPU,),
    cwd="/home/ada",
    python="/usr/bin/python3",
    note="the directory did not exist there",
    ended_at=1_700_000_001.25,
    exit_code=3,
    signal=15,
    reason="cancelled",
    lost=True,
    stdout_bytes=10,
    stderr_bytes=20,
    collects=True,
    gpu_memory_peak_bytes=2**30,
    gpu_utilisation_percent=87.5,
)
SPEC = LaunchSpec(
    key=KEY,
    node_id=NODE,
    incarnation="i1",
    user="ada",
    tasks=(TaskSpec(rank=0, env={"MGPU_NODE_RANK": "0"}, files=(OutputFile(1, "a.out", append=True),)),),
    gpus=(GPU,),
    argv=("python", "train.py"),
    script="print(1)",
    python=PythonWish(path="/usr/bin/python3", kernel_path="/opt/python", kernel_version="3.11"),
    env={"LR": "0.1"},
    cwd="/home/ada",
    kill_grace_s=2.5,
    lease_s=300.0,
    stdin=True,
    pty=True,
    rows=50,
    columns=132,
    setup="module load cuda",
    defaults={"OMP_NUM_THREADS": "1"},
    debug=True,
    folder="0" * 64,
    results=("out/*.pt",),
    hooks=(HookSpec("prolog", "module load", True, 30.0),),
    mpi=True,
    inputs="1" * 64,
    outputs=("c",),
    outputs_limit_bytes=2**31,
    container=True,
    cpus=4,
    mem_bytes=2**34,
    folder_limit_bytes=2**32,
    results_limit_bytes=2**33,
)
SAMPLE = GpuSample(
    uuid=GPU,
    utilisation_percent=50.0,
    memory_used_bytes=2**30,
    temperature_c=60.0,
    power_w=250.0,
    processes=(GpuProcess(pid=1, user="ada", memory_bytes=5, outside=True, passive=True, name="python"),),
    trouble=GpuTrouble(Trouble.OUTSIDE, "pid 1 of ada"),
)

TO_AGENT: dict[str, ToAgent] = {
    "welcome": Welcome(
        cluster="lab",
        heartbeat_s=30.0,
        sample_s=2.0,
        output_window_bytes=1 << 20,
        received=(MARK,),
        beat=3600.5,
    ),
    "enrolled": Enrolled(node_id=NODE),
    "refuse": Refuse(code="unknown-key", message="Ask for a join string."),
    "launch": Launch(spec=SPEC),
    "prepare": Prepare(spec=SPEC, hold_s=60.0, meets=True),
    "meet": Meet(
        key=KEY, secret=b"s" * 32, peers=(Peer(node_id=NODE, ways=(WAY,), port=40_000),), limit_s=4.0
    ),
    "start": Start(key=KEY, spec=SPEC),
    "stop": Stop(key=KEY, grace_s=15.0, reason="cancelled", cause="cancelled"),
    "forget": Forget(keys=(KEY,), ranks=(1,)),
    "output_ack": OutputAck(mark=MARK),
    "resync": Resync(number=12),
    "bye": Bye(),
    "probe": Probe(number=100),
    "heard": Heard(beat=3600.5),
    "collect_result": CollectResult(key=KEY, number=1, offset=4096, size=1024),
    "piece": Piece(digest="0" * 64, data=memoryview(b"hello")),
    "check": Check(
        checks=HealthChecks(
            every_s=30.0, min_free_bytes=16_000_000, program=("/opt/check", "-q"), program_timeout_s=5.0
        )
    ),
    "input": Input(key=KEY, rank=0, writer="w1", offset=5, data=b"\x00\xffhi", eof=True),
    "resize": Resize(key=KEY, rank=0, rows=24, columns=80),
    "warn": Warn(key=KEY, signal=10, serial=1_700_000_000.5),
    "ping": Ping(number=5, key=KEY, cell=CellWish(user="ada", python=PythonWish(path="/usr/bin/python3"))),
    "posted": Posted(key=KEY, sender=NODE, data=b"\x00\xffhi"),
}
TO_MASTER: dict[str, ToMaster] = {
    "enrol": Enrol(node_id=NODE, public_key="k" * 40),
    "hello": Hello(
        node_id=NODE,
        facts=FACTS,
        tasks=(STATUS,),
        samples=(SAMPLE,),
        prepared=(KEY,),
        beat=3600.5,
        answers=12,
    ),
    "heartbeat": Heartbeat(
        at=1_700_000_000.5,
        samples=(SAMPLE,),
        load=1.5,
        cpu_percent=37.5,
        memory_available_bytes=2**36,
        beat=3602.5,
    ),
    "task": TaskReport(status=STATUS),
    "prepared": Prepared(
        key=KEY, offer=MeetingPoint(ways=(WAY,), port=40_000, master_port=20_001), in_scratch=True
    ),
    "met": Met(
        key=KEY,
        reached=(Reached(NODE, WAY.address),),
        unreached=(Unreached(NODE, "127.0.0.1", "connection refused"),),
        fingerprint=Fingerprint(python="3.11.2", torch="2.13.0", driver="570.86"),
    ),
    "launch_refused": LaunchRefused(
        key=KEY, code="no-program", message="There is no such program.", fault="request", exit_code=127
    ),
    "output": Output(key=KEY, rank=0, stream=STDERR, offset=3, data=b"\x00\xffhi"),
    "found_results": FoundResults(
        key=KEY, files=(ResultFile("out/a.pt", 8, "0" * 64, 0o640, 3),), problems=("out/b: gone",)
    ),
    "result_chunk": ResultChunk(key=KEY, number=1, offset=4096, data=memoryview(b"x"), problem="gone"),
    "fetch_pieces": FetchPieces(key=KEY, digests=("0" * 64,)),
    "leave": Leave(reason="upgrade"),
    "probed": Probed(number=100, ok=False, message="The disk is full."),
    "checked": Checked(ailments=(Ailment(check="program", text="It is too hot.", gpu=GPU),)),
    "input_ack": InputAck(key=KEY, rank=0, writer="w1", offset=9, again=True, closed=True),
    "pong": Pong(
        number=5,
        node_id=NODE,
        host="gpu001",
        address="192.0.2.10",
        agent_version="0.1.0",
        python="/usr/bin/python3",
        pid=4242,
        at=1_700_000_000.5,
        link="tcp://192.0.2.1:8790",
        started_at=1_699_999_000.0,
        cell=CellPython(path="/usr/bin/python3", version="3.11"),
        processes=(
            ProcessSeen(
                rank=1,
                pid=4300,
                alive=True,
                host="gpu001",
                node_id="n1",
                job_id="AB12CD34",
                attempt="2",
                cwd="/home/ada",
                user="ada",
                started_at=1_700_000_000.5,
                ports=("0.0.0.0:29500",),
                master_port="29500",
                note="Its environment cannot be read.",
            ),
        ),
    ),
    "post": Post(key=KEY, to=NODE, data=b"\x00\xffhi"),
}

if __name__ == "__main__":
    for name, message in (TO_AGENT | TO_MASTER).items():
        print(name, encode(message, MASTER_EPOCH).hex())
