"""A server in memory for tests and documentation: the same transport seam, no network, jobs that go as they are told.

client = Client(transport=MockTransport(lambda spec: Play(output=(Say(b"hello\\n"),))))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import models, traces, upkeep
from mgpu_jupyter.api.routes import IDEMPOTENCY_HEADER, NDJSON
from mgpu_jupyter.client.transport import Answer, Request, Stream
from mgpu_jupyter.client.websocket import ConnectionLost, WebSocket
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState
from mgpu_jupyter.model.sweep import combination
from mgpu_jupyter.model.units import units_of
from mgpu_jupyter.model.waits import parse_array

USER = "me"
STARTED_AT = 1_000.0
HOLD_S = 30.0  # a held job whose test forgot to cancel it


class Say(msgspec.Struct, frozen=True):
    """Something that a rank prints; each becomes one frame."""

    data: bytes
    stream: Literal["stdout", "stderr"] = "stdout"
    rank: int = 0


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """How a job goes."""

    output: tuple[Say, ...] = ()
    exit_code: int = 0
    reason: str = ""
    """Why it waits before it starts; empty: it starts at once."""
    waits: bool = False
    """Stays in the queue, for `reason`, until it is cancelled."""
    hold: bool = False
    """Goes on until it is cancelled."""
    lasts_s: float = 1.0
    final: JobState | None = None
    """Ends in this state; by default as the exit code says."""
    note: str = ""


class _Entry:
    def __init__(self, job_id: JobId, spec: JobSpec, play: Play, array: tuple[str, int] | None = None) -> None:
        self.id, self.spec, self.play = job_id, spec, play
        self.array_id = array[0] if array else None
        self.array_index = array[1] if array else None
        self.cancelled = threading.Event()

    def view(self, state: JobState) -> models.Job:
        final, started = state.is_final, state is not JobState.QUEUED
        code = (143 if self.cancelled.is_set() else self.play.exit_code) if final else None
        units = units_of(self.spec)
        placements = tuple(
            models.Placement(
                node=NodeId(f"node-{unit.index + 1}"),
                rank=unit.index,
                gpus=tuple(GpuUuid(f"GPU-{unit.index}-{number}") for number in range(unit.gpus)),
                gpu_indices=tuple(range(unit.gpus)),
                started_at=STARTED_AT,
                ended_at=STARTED_AT + self.play.lasts_s if final else None,
                exit_code=code,
                note=self.play.note,
            )
            for unit in units
        )
        return models.Job(
            id=self.id,
            state=state,
            user=USER,
            name=self.spec.name,
            command=" ".join(self.spec.command) or (self.spec.script or "").partition("\n")[0],
            nodes=tuple(placement.node for placement in placements) if started else (),
            gpus=sum(unit.gpus for unit in units),
            exit_code=code,
            attempt=1 if started else 0,
            submitted_at=STARTED_AT - 1,
            started_at=STARTED_AT if started else None,
            ended_at=STARTED_AT + self.play.lasts_s if final else None,
            reason=self.play.reason if not started else "",
            priority=self.spec.priority,
            time_limit_s=self.spec.time_limit_s,
            place=None if started else 1,
            placements=placements if started else (),
            array_id=self.array_id,
            array_index=self.array_index,
            origin=self.spec.origin,
            sweep=combination(self.spec.sweep, self.array_index) if self.spec.sweep and self.array_index is not None else {},
        )

    @property
    def final(self) -> JobState:
        if self.cancelled.is_set():
            return JobState.CANCELLED
        if self.play.final is not None:
            return self.play.final
        return JobState.FAILED if self.play.exit_code else JobState.COMPLETED

    @property
    def now(self) -> JobState:
        if self.is_over:
            return self.final
        return JobState.QUEUED if self.play.waits else JobState.RUNNING

    @property
    def is_over(self) -> bool:
        return self.cancelled.is_set() or not (self.play.hold or self.play.waits)


def trace(job: models.Job) -> traces.Trace:
    """Return a short way: submitted and started, as assigned unless the job says otherwise."""
    steps = (
        traces.Step(step="submitted", at=job.submitted_at, seconds=0.0, text=f"by {job.user}"),
        traces.Step(step="started", at=job.submitted_at + 1.0, seconds=1.0, text="node node-1, host host-1, pid 7"),
    )
    return traces.Trace(
        job_id=job.id,
        name=job.name,
        user=job.user,
        command=job.command,
        state=job.state,
        submitted_at=job.submitted_at,
        now=job.submitted_at + 2.0,
        attempts=(traces.AttemptTrace(attempt=1, epoch=1, queued_at=job.submitted_at, steps=steps),),
        ok=not job.mismatches,
        mismatches=job.mismatches,
    )


def explanation(reason: str = "", job_id: JobId | None = None) -> explanations.Explanation:
    """Return a short answer: that it starts now, or waits for this reason."""
    if not reason:
        return explanations.Explanation(
            verdict="now",
            code="now",
            text="It would start now on node-1 (GPU 0).",
            job_id=job_id,
            where=(explanations.Where(node=NodeId("node-1"), gpus=(0,)),),
        )
    out = explanations.Excluded(check="gpus", text=reason, never=False, count=1, nodes=(NodeId("node-1"),))
    return explanations.Explanation(
        verdict="not_now",
        code="busy",
        text=f"Not now: {reason}",
        job_id=job_id,
        units=(explanations.UnitAnswer(first=0, count=1, needs="2 GPUs", missing=1, would_do=0, excluded=(out,)),),
        place=1,
        offers=(
            explanations.Offer(
                text="1 GPU instead of 2",
                flags=("--gpus 1",),
                patch={"gpus": 1},
                where=(explanations.Where(node=NodeId("node-1"), gpus=(0,)),),
            ),
        ),
    )


class MockTransport:
    """Answers like a server; `requests` is what was asked, `on_hold` is called where a held job's stream waits."""

    def __init__(
        self,
        play: Callable[[JobSpec], Play] = lambda _: Play(),
        nodes: Iterable[models.Node] = (),
        on_hold: Callable[[], None] | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self.jobs: dict[str, _Entry] = {}
        self.failures: list[BaseException | Answer] = []
        """Taken one by one in place of the next answers."""
        self._play = play
        self._nodes = tuple(nodes) or (a_node(),)
        self._keys: dict[str, models.Submitted] = {}
        self._on_hold = on_hold

    @property
    def specs(self) -> list[JobSpec]:
        """Return what was submitted; an array once."""
        return [entry.spec for entry in self.jobs.values() if entry.array_id is None or self.array(entry.array_id)[0] is entry]

    def array(self, array_id: str) -> list[_Entry]:
        """Return the jobs of an array."""
        return [entry for entry in self.jobs.values() if entry.array_id == array_id]

    def send(self, request: Request) -> Answer:
        """Answer a request."""
        self.requests.append(request)
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Answer):
                return failure
            raise failure
        match request.method, request.path.split("/"):
            case _, [("health" | "cluster" | "nodes") as what] | ["jobs", ("purge" as what)]:
                return self._pool(what)
            case "POST", ["jobs"]:
                return _json(
                    self._submit(msgspec.json.decode(request.body or b"", type=JobSpec), request.headers.get(IDEMPOTENCY_HEADER)), 201
                )
            case "POST", ["jobs", "bulk"]:
                bulk = msgspec.json.decode(request.body or b"", type=models.BulkSubmit)
                return _json(models.BulkSubmitted(jobs=tuple(self._submit(item.spec, item.key) for item in bulk.jobs)), 201)
            case "POST", ["jobs", "dry-run"]:
                return _json(explanation(self._play(msgspec.json.decode(request.body or b"", type=JobSpec)).reason))
            case "GET", ["jobs"]:
                return _json(self._list(request.query))
            case _, ["jobs", job_id, *rest]:
                return self._one(job_id, [request.method, *rest], request)
        return _error(404, "not-found", f"There is no {request.path}.")

    def open(self, request: Request) -> Stream:
        """Answer a request for a stream."""
        self.requests.append(request)
        entry = self.jobs.get(request.path.split("/")[1])
        if entry is None or request.headers.get("Accept") != NDJSON:
            return _Frames(404, [_error(404, "no-such-job", "There is no such job: see `mgpu_queue --all`.").body], None)
        starts = dict(pair.split(":") for pair in request.query.get("offsets", "").split(",") if pair)
        offsets = {int(rank): int(offset) for rank, offset in starts.items()}
        only = int(request.query["rank"]) if "rank" in request.query else None
        return _Frames(200, self._frames(entry, offsets, only), self._on_hold)

    def upgrade(self, request: Request) -> tuple[int, bytes, WebSocket | None]:
        """Answer that there are no WebSockets here: nothing can be typed into a job of the mock."""
        self.requests.append(request)
        return 404, _error(404, "no-such-job", "Nothing can be typed here.").body, None

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _submit(self, spec: JobSpec, key: str | None) -> models.Submitted:
        known = self._keys.get(key or "")
        if known is not None:
            return known
        array = parse_array(spec.array)
        if array is None:
            answer = models.Submitted(job_id=self._add(spec).id, state=JobState.QUEUED)
        else:
            array_id = f"ARRA{len(self.jobs):04}"
            ids = tuple(self._add(spec, (array_id, index)).id for index in array.indices)
            answer = models.Submitted(job_id=ids[0], state=JobState.QUEUED, array_id=array_id, job_ids=ids)
        if key:
            self._keys[key] = answer
        return answer

    def _add(self, spec: JobSpec, array: tuple[str, int] | None = None) -> _Entry:
        entry = _Entry(JobId(f"MOCK{len(self.jobs):04}"), spec, self._play(spec), array)
        self.jobs[entry.id] = entry
        return entry

    def _one(self, job_id: str, way: list[str], request: Request) -> Answer:
        query = request.query
        entries = self.array(job_id) or [entry for entry in (self.jobs.get(job_id),) if entry is not None]
        if not entries:
            return _error(404, "no-such-job", f"There is no job {job_id}: see `mgpu_queue --all`.")
        entry, ids = entries[0], tuple(entry.id for entry in self.array(job_id))
        if way == ["POST", "cancel"]:
            for one in entries:
                if not one.is_over:
                    one.cancelled.set()
            return _json(models.CancelAnswer(job_id=JobId(job_id), state=entry.now, job_ids=ids), 202)
        if way in (["PATCH"], ["POST", "requeue"]):
            if entry.now.is_final:
                return _error(409, "job-over", f"Job {entry.id} {entry.now.past}: submit it again.")
            return _json(models.OrderAnswer(job_id=JobId(job_id), state=entry.now, job_ids=ids))
        if way in (["POST", "rerun"], ["POST", "replace"]):
            return _json(self._submit(_changed(entry, request.body), None), 201)
        if way == ["GET", "explain"]:
            return _json(explanation(entry.play.reason, job_id=entry.id))
        if way == ["GET", "output"]:
            rank, offset = int(query.get("rank", "0")), int(query.get("offset", "0"))
            data = b"".join(say.data for say in entry.play.output if say.rank == rank)
            offset = max(offset, len(data) - int(query["tail"])) if "tail" in query else offset
            return Answer(status=200, body=data[offset : offset + int(query.get("limit", "1048576"))])
        view = entry.view(entry.now)
        return _json(trace(view) if way == ["GET", "trace"] else view)

    def _list(self, query: dict[str, str]) -> models.JobList:
        wanted = query.get("state", "").split(",")
        views = [
            view
            for view in (entry.view(entry.now) for entry in reversed(self.jobs.values()))
            if (wanted == [""] or view.state in wanted or ("active" in wanted and not view.state.is_final))
            and query.get("user", view.user) == view.user
            and query.get("name", view.name) == view.name
            and query.get("array", view.array_id) == view.array_id
            and ("notebook" not in query or (view.origin is not None and view.origin.notebook == query["notebook"]))
        ]
        start, size = int(query.get("cursor", "0")), int(query.get("limit", "100"))
        more = str(start + size) if len(views) > start + size else None
        return models.JobList(jobs=tuple(views[start : start + size]), next_cursor=more)

    def _pool(self, what: str) -> Answer:
        if what == "purge":
            over = [entry for entry in self.jobs.values() if entry.now.is_final]
            size = sum(len(say.data) for entry in over for say in entry.play.output)
            return _json(upkeep.PurgeAnswer(jobs=len(over), output_bytes=size))
        if what == "health":
            return _json(models.Health(status="ok", version="0"))
        return _json(self._cluster() if what == "cluster" else models.NodeList(nodes=self._nodes))

    def _cluster(self) -> models.Cluster:
        gpus = [gpu for node in self._nodes for gpu in node.gpus]
        return models.Cluster(
            name="mock",
            user=USER,
            admin=True,
            nodes=len(self._nodes),
            nodes_online=len(self._nodes),
            gpus=len(gpus),
            gpus_free=sum(gpu.job_id is None for gpu in gpus),
            simulated=any(gpu.simulated for gpu in gpus),
            jobs={},
            notice="",
            seq=0,
        )

    def _frames(self, entry: _Entry, starts: dict[int, int], only: int | None) -> Iterable[bytes | threading.Event]:
        if entry.play.reason or entry.play.waits:
            yield _line(models.JobFrame(seq=1, job=entry.view(JobState.QUEUED)))
        if entry.play.waits:
            yield entry.cancelled
            yield _line(models.EndFrame(job=entry.view(entry.final)))
            return
        yield _line(models.JobFrame(seq=2, job=entry.view(JobState.RUNNING)))
        reached: dict[int, int] = {}
        for say in entry.play.output:
            offset = reached.get(say.rank, 0)
            reached[say.rank] = offset + len(say.data)
            skip = min(max(starts.get(say.rank, 0) - offset, 0), len(say.data))
            if skip < len(say.data) and only in (None, say.rank):
                yield _line(models.OutputFrame(rank=say.rank, stream=say.stream, offset=offset + skip, data=say.data[skip:]))
        if entry.play.hold:
            yield entry.cancelled
        yield _line(models.EndFrame(job=entry.view(entry.final)))


def _changed(entry: _Entry, body: bytes | memoryview | None) -> JobSpec:
    """Return what is asked for instead; a job that gives way is cancelled."""
    if body is None:
        return entry.spec
    entry.cancelled.set()
    return msgspec.convert(msgspec.to_builtins(entry.spec) | msgspec.json.decode(body, type=upkeep.ReplaceRequest).patch, JobSpec)


class _Frames:
    def __init__(self, status: int, pieces: Iterable[bytes | threading.Event], on_hold: Callable[[], None] | None) -> None:
        self.status = status
        self._pieces = iter(pieces)
        self._on_hold = on_hold

    def read(self, timeout_s: float) -> bytes:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                return piece
            if not piece.is_set() and self._on_hold is not None:
                self._on_hold()
            if not piece.wait(min(timeout_s, HOLD_S)):
                self._pieces = iter((piece, *self._pieces))
                raise TimeoutError("nothing came")
        return b""

    def close(self) -> None:
        self._pieces = iter(())


def a_node(name: str = "node-1", gpus: int = 4) -> models.Node:
    """Return a node with simulated GPUs."""
    return models.Node(
        id=NodeId(name),
        state=NodeState.ONLINE,
        reason="",
        host=name,
        address="127.0.0.1",
        arch="x86_64",
        cpus=8,
        memory_bytes=32_000_000_000,
        gpus=tuple(
            models.Gpu(index=index, uuid=GpuUuid(f"GPU-{name}-{index}"), name="Simulated GPU", memory_bytes=80_000_000_000, simulated=True)
            for index in range(gpus)
        ),
    )


def lost(message: str = "The connection broke.") -> ConnectionLost:
    """Return a failure for `MockTransport.failures`."""
    return ConnectionLost("no-answer", message)


def _json(body: msgspec.Struct, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(body))


def _error(status: int, code: str, message: str) -> Answer:
    return _json(models.ErrorBody(code=code, message=message), status)


def _line(frame: models.JobStreamFrame) -> bytes:
    return msgspec.json.encode(frame) + b"\n"
