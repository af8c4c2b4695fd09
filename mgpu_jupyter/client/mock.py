"""A server in memory for tests and documents: plays `Transport`, with no network and scripted jobs.

client = Client(transport=MockTransport(lambda spec: Play(output=(Say(b"hello\\n"),))))
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import administration, frames, models, requests
from mgpu_jupyter.api.route import IDEMPOTENCY_HEADER, NDJSON
from mgpu_jupyter.client.mock_jobs import STARTED_AT, USER, MockJob, Play, Say, explanation, trace
from mgpu_jupyter.client.transport import Answer, Request, Stream
from mgpu_jupyter.client.websocket import ConnectionLost, WebSocket
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.display import display_key
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState
from mgpu_jupyter.model.mistakes import about_body
from mgpu_jupyter.model.waits import parse_array

__all__ = ("STARTED_AT", "MockTransport", "Play", "Say", "a_node", "explanation", "lost", "trace")

_INDEX = re.compile(r"`\$\.jobs\[(\d+)\]")
HOLD_S = 30.0  # a held job whose test forgot to cancel it


class MockTransport:
    """Answers like a server; `requests` are those received, `on_hold` is called where a held stream waits."""

    def __init__(
        self,
        play: Callable[[JobSpec], Play] = lambda _: Play(),
        nodes: Iterable[models.Node] = (),
        on_hold: Callable[[], None] | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self.jobs: dict[str, MockJob] = {}
        self.failures: list[BaseException | Answer] = []
        """Used one by one in place of the next answers."""
        self._play = play
        self._nodes = tuple(nodes) or (a_node(),)
        self._keys: dict[str, requests.Submitted] = {}
        self._on_hold = on_hold

    @property
    def specs(self) -> list[JobSpec]:
        """Return the submitted requests; an array once."""
        return [
            entry.spec
            for entry in self.jobs.values()
            if entry.array_id is None or self.array(entry.array_id)[0] is entry
        ]

    def array(self, array_id: str) -> list[MockJob]:
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
        try:
            return self._answer(request)
        except msgspec.ValidationError as error:
            found = _INDEX.search(str(error))
            details = {"index": int(found[1])} if found else {}
            return _error(400, "invalid", about_body(error), details)
        except msgspec.DecodeError as error:
            return _error(
                400, "not-json", f"The request is not JSON ({error}): send one JSON document in UTF-8."
            )
        except InvalidRequest as error:
            return _error(400, error.code, error.message)

    def _answer(self, request: Request) -> Answer:
        match request.method, request.path.split("/"):
            case _, [("health" | "cluster" | "nodes") as what] | ["jobs", ("purge" as what)]:
                return self._pool(what)
            case "POST", ["jobs"]:
                return _json(self._submit(_spec(request.body), request.headers.get(IDEMPOTENCY_HEADER)), 201)
            case "POST", ["jobs", "bulk"]:
                bulk = msgspec.json.decode(request.body or b"", type=requests.BulkSubmit)
                before = set(self.jobs)
                answers = [self._submit(item.spec, item.key) for item in bulk.jobs]
                told = (
                    one if one.job_id in before else replace(one, state=JobState.QUEUED) for one in answers
                )
                return _json(requests.BulkSubmitted(jobs=tuple(told)), 201)
            case "POST", ["jobs", "dry-run"]:
                return _json(explanation(self._play(_spec(request.body)).reason))
            case "GET", ["jobs"]:
                return _json(self._list(request.query))
            case _, ["jobs", job_id, *rest]:
                return self._one(job_id, [request.method, *rest], request)
        return _error(404, "not-found", f"There is no {request.path}.")

    def open(self, request: Request) -> Stream:
        """Answer a request for a stream."""
        self.requests.append(request)
        if request.path == "jobs/wait":
            return self._wait(request)
        entry = self.jobs.get(request.path.split("/")[1])
        if entry is None or request.headers.get("Accept") != NDJSON:
            return _Frames(404, [_no_job(request.path.split("/")[1]).body], None)
        starts = dict(pair.split(":") for pair in request.query.get("offsets", "").split(",") if pair)
        offsets = {int(rank): int(offset) for rank, offset in starts.items()}
        only = int(request.query["rank"]) if "rank" in request.query else None
        return _Frames(200, self._frames(entry, offsets, only), self._on_hold)

    def _wait(self, request: Request) -> Stream:
        wanted = msgspec.json.decode(request.body or b"", type=requests.WaitRequest).job_ids
        if unknown := [job_id for job_id in wanted if job_id not in self.jobs]:
            return _Frames(404, [_no_job(unknown[0]).body], None)
        return _Frames(200, _ends([self.jobs[job_id] for job_id in dict.fromkeys(wanted)]), self._on_hold)

    def upgrade(self, request: Request) -> tuple[int, bytes, WebSocket | None]:
        """Answer that there are no WebSockets here: a job of the mock takes no input."""
        self.requests.append(request)
        return 404, _error(404, "no-such-job", "Nothing can be typed here.").body, None

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _submit(self, spec: JobSpec, key: str | None) -> requests.Submitted:
        known = self._keys.get(key or "")
        if known is not None:
            return replace(known, state=self.jobs[known.job_id].now)
        array = parse_array(spec.array)
        if array is None:
            answer = requests.Submitted(job_id=self._add(spec).id, state=JobState.QUEUED)
        else:
            array_id = f"ARRA{len(self.jobs):04}"
            ids = tuple(self._add(spec, (array_id, index)).id for index in array.indices)
            answer = requests.Submitted(job_id=ids[0], state=JobState.QUEUED, array_id=array_id, job_ids=ids)
        if key:
            self._keys[key] = answer
        return answer

    def _add(self, spec: JobSpec, array: tuple[str, int] | None = None) -> MockJob:
        entry = MockJob(JobId(f"MOCK{len(self.jobs):04}"), spec, self._play(spec), array)
        self.jobs[entry.id] = entry
        return entry

    def _one(self, job_id: str, way: list[str], request: Request) -> Answer:
        query = request.query
        entries = self.array(job_id) or [entry for entry in (self.jobs.get(job_id),) if entry is not None]
        if not entries:
            return _no_job(job_id)
        entry, ids = entries[0], tuple(entry.id for entry in self.array(job_id))
        if way == ["POST", "cancel"]:
            state = (
                JobState.STOPPING
                if entry.now is JobState.RUNNING
                else entry.now
                if entry.is_over
                else JobState.CANCELLED
            )
            for one in entries:
                if not one.is_over:
                    one.cancelled.set()
            return _json(requests.CancelAnswer(job_id=JobId(job_id), state=state, job_ids=ids), 202)
        if way in (["PATCH"], ["POST", "requeue"]):
            return _ordered(entry, job_id, ids, request.body if way == ["PATCH"] else None)
        if way in (["POST", "rerun"], ["POST", "replace"]):
            return _json(self._submit(_changed(entry, request.body), None), 201)
        if way == ["GET", "explain"]:
            return _json(explanation(entry.play.reason, job_id=entry.id))
        if way == ["GET", "output"]:
            rank, offset = _number(query, "rank", 0), _number(query, "offset", 0)
            data = b"".join(say.data for say in entry.play.output if say.rank == rank)
            offset = max(offset, len(data) - int(query["tail"])) if "tail" in query else offset
            return Answer(status=200, body=data[offset : offset + int(query.get("limit", "1048576"))])
        view = entry.view(entry.now)
        return _json(trace(view) if way == ["GET", "trace"] else view)

    def _list(self, query: dict[str, str]) -> models.JobList:
        wanted = query.get("state", "").split(",")
        if unknown := [name for name in wanted if name not in ("", "active", *JobState)]:
            raise InvalidRequest(
                "unknown-state", f"{unknown[0]!r} is no state: use active, {', '.join(JobState)}."
            )
        views = [
            view
            for view in (
                replace(entry.view(entry.now), failure=None) for entry in reversed(self.jobs.values())
            )
            if (wanted == [""] or view.state in wanted or ("active" in wanted and not view.state.is_final))
            and query.get("user", view.user) == view.user
            and query.get("name", view.name) == view.name
            and query.get("array", view.array_id) == view.array_id
            and ("ids" not in query or view.id in query["ids"].split(","))
            and (
                "notebook" not in query
                or (view.origin is not None and view.origin.notebook == query["notebook"])
            )
        ]
        start, size = int(query.get("cursor", "0")), _number(query, "limit", 100)
        more = str(start + size) if len(views) > start + size else None
        return models.JobList(jobs=tuple(views[start : start + size]), next_cursor=more)

    def _pool(self, what: str) -> Answer:
        if what == "purge":
            over = [entry for entry in self.jobs.values() if entry.now.is_final]
            size = sum(len(say.data) for entry in over for say in entry.play.output)
            return _json(administration.PurgeAnswer(jobs=len(over), output_bytes=size))
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

    def _frames(
        self, entry: MockJob, starts: dict[int, int], only: int | None
    ) -> Iterable[bytes | threading.Event]:
        key = display_key(entry.spec)
        if entry.play.reason or entry.play.waits:
            yield _line(frames.JobFrame(seq=1, job=entry.view(JobState.QUEUED), display_key=key))
        if entry.play.waits:
            yield entry.cancelled
            yield _line(frames.EndFrame(job=entry.view(entry.final)))
            return
        yield _line(frames.JobFrame(seq=2, job=entry.view(JobState.RUNNING), display_key=key))
        reached: dict[int, int] = {}
        for say in entry.play.output:
            offset = reached.get(say.rank, 0)
            reached[say.rank] = offset + len(say.data)
            skip = min(max(starts.get(say.rank, 0) - offset, 0), len(say.data))
            if skip < len(say.data) and only in (None, say.rank):
                yield _line(
                    frames.OutputFrame(
                        rank=say.rank, stream=say.stream, offset=offset + skip, data=say.data[skip:]
                    )
                )
        if entry.play.hold:
            yield entry.cancelled
        yield _line(frames.EndFrame(job=entry.view(entry.final)))


def _ends(entries: list[MockJob]) -> Iterable[bytes | threading.Event]:
    """Yield the progress of jobs, now and whenever one of them ends."""
    left = list(entries)
    while True:
        over = [entry for entry in left if entry.is_over]
        left = [entry for entry in left if entry not in over]
        waiting = sum(entry.now is JobState.QUEUED for entry in left)
        ended = tuple(
            frames.EndedJob(entry.id, entry.final, entry.view(entry.final).exit_code) for entry in over
        )
        yield _line(frames.ProgressFrame(waiting=waiting, running=len(left) - waiting, ended=ended))
        if not left:
            return
        yield left[0].cancelled


def _spec(body: bytes | memoryview | None) -> JobSpec:
    """Return the request, checked as a server checks it."""
    spec = msgspec.json.decode(body or b"", type=JobSpec)
    check(spec)
    return spec


def _number(query: dict[str, str], name: str, default: int) -> int:
    if not (text := query.get(name, str(default))).isdecimal():
        raise InvalidRequest("invalid", f"The parameter {name} is no whole number: see openapi.json.")
    return int(text)


def _ordered(entry: MockJob, job_id: str, ids: tuple[JobId, ...], body: bytes | memoryview | None) -> Answer:
    """Answer a change (with a body) or a requeue: ended jobs stay so, and priority is for waiting ones."""
    state = entry.now
    if state.is_final:
        end = "submit it again" if body is None else "there is nothing to change any more"
        return _error(409, "job-over", f"Job {entry.id} {state.past}: {end}.")
    change = requests.JobChange() if body is None else msgspec.json.decode(body, type=requests.JobChange)
    if state is not JobState.QUEUED and change.priority is not None:
        return _error(409, "job-started", f"Job {entry.id} has started: its priority matters no more.")
    if state is not JobState.QUEUED and change.hold:
        message = f"Job {entry.id} has started: cancel it, or `mgpu requeue {entry.id}` and then hold it."
        return _error(409, "job-started", message)
    return _json(
        requests.OrderAnswer(job_id=JobId(job_id), state=state, job_ids=ids), 202 if body is None else 200
    )


def _no_job(job_id: str) -> Answer:
    return _error(404, "no-such-job", f"There is no job {job_id}: see `mgpu_queue --all`.")


def _changed(entry: MockJob, body: bytes | memoryview | None) -> JobSpec:
    """Return the changed request; the job that it replaces is cancelled."""
    if body is None:
        return entry.spec
    entry.cancelled.set()
    return msgspec.convert(
        msgspec.to_builtins(entry.spec) | msgspec.json.decode(body, type=requests.ReplaceRequest).patch,
        JobSpec,
    )


class _Frames:
    def __init__(
        self, status: int, pieces: Iterable[bytes | threading.Event], on_hold: Callable[[], None] | None
    ) -> None:
        self.status = status
        self._pieces: Iterator[bytes | threading.Event] = iter(pieces)
        self._on_hold = on_hold

    def read(self, timeout_s: float) -> bytes:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                return piece
            if not piece.is_set() and self._on_hold is not None:
                self._on_hold()
            if not piece.wait(min(timeout_s, HOLD_S)):
                self._pieces = itertools.chain((piece,), self._pieces)
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
        memory_bytes=32 << 30,
        gpus=tuple(
            models.Gpu(
                index=index,
                uuid=GpuUuid(f"GPU-{name}-{index}"),
                name="Simulated GPU",
                memory_bytes=80 << 30,
                simulated=True,
            )
            for index in range(gpus)
        ),
    )


def lost(message: str = "The connection broke.") -> ConnectionLost:
    """Return a failure for `MockTransport.failures`."""
    return ConnectionLost("no-answer", message)


def _json(body: msgspec.Struct, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(body))


def _error(status: int, code: str, message: str, details: dict[str, int] | None = None) -> Answer:
    return _json(models.ErrorBody(code=code, message=message, details=details or {}), status)


def _line(frame: frames.JobStreamFrame | frames.ProgressFrame) -> bytes:
    return msgspec.json.encode(frame) + b"\n"
