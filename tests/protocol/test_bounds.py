"""What one node may tell has bounds, every text and list of it; an honest agent keeps to them whatever its
jobs are called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import replace

from mgpu_agent.protocol import bounds, codec
from mgpu_agent.protocol.errors import RemoteProtocolError
from mgpu_agent.protocol.file_messages import FetchPieces
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.messages import Checked, Heartbeat, Hello, LaunchRefused, Output, Pong, ToMaster
from mgpu_agent.protocol.model import CellPython, GpuInfo, GpuProcess, GpuSample, ProcessSeen
from tests.protocol.samples import FACTS

KEY = AttemptKey(JobId("ABCD1234"), 1, 2)
MESSAGES = inspect.multi_type_info(ToMaster.__args__)


def unbounded(kind: inspect.Type, where: str) -> Iterator[str]:
    """Yield the texts, lists and tables below a type whose length nothing limits."""
    match kind:
        case inspect.StrType() | inspect.BytesType() | inspect.MemoryViewType() | inspect.ByteArrayType():
            if kind.max_length is None:
                yield where
        case inspect.VarTupleType() | inspect.ListType() | inspect.SetType() | inspect.FrozenSetType():
            if kind.max_length is None:
                yield where
            yield from unbounded(kind.item_type, f"{where}[]")
        case inspect.DictType():
            if kind.max_length is None:
                yield where
            yield from unbounded(kind.key_type, f"{where} keys")
            yield from unbounded(kind.value_type, f"{where} values")
        case inspect.UnionType():
            for one in kind.types:
                yield from unbounded(one, where)
        case inspect.StructType():
            for field in kind.fields:
                yield from unbounded(field.type, f"{where}.{field.name}")
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType() | inspect.NoneType():
            pass
        case _:
            yield f"{where}: {kind}, of which this test knows nothing"


def test_every_text_and_list_of_a_node_has_a_bound() -> None:
    """Issue 16, finding 15: a node that told of 100,000 GPUs took the master to 860 MB."""
    assert len(MESSAGES) == 17
    assert [where for kind in MESSAGES for where in unbounded(kind, kind.cls.__name__)] == []


def oversize(kind: inspect.Type) -> Iterator[Any]:
    """Yield values that are one too long for a type, wherever it says how long they may be; plain ones, as
    they are on the wire.
    """
    match kind:
        case inspect.StrType(max_length=int(limit)):
            yield "x" * (limit + 1)
        case inspect.BytesType(max_length=int(limit)) | inspect.MemoryViewType(max_length=int(limit)):
            yield b"x" * (limit + 1)
        case inspect.VarTupleType(item_type=item, max_length=int(limit)):
            yield [plain(item)] * (limit + 1)
            yield from ([bad] for bad in oversize(item))
        case inspect.DictType(key_type=key, value_type=value, max_length=int(limit)):
            yield {str(number): plain(value) for number in range(limit + 1)}
            yield from ({bad: plain(value)} for bad in oversize(key))
            yield from ({"k": bad} for bad in oversize(value))
        case inspect.UnionType(types=kinds):
            yield from (bad for one in kinds for bad in oversize(one))
        case inspect.StructType(fields=fields, array_like=is_list):
            whole = {field.encode_name: plain(field.type) for field in fields}
            for field in fields:
                for bad in oversize(field.type):
                    made = {**whole, field.encode_name: bad}
                    yield list(made.values()) if is_list else made


def plain(kind: inspect.Type) -> Any:
    match kind:
        case inspect.StrType():
            return "x"
        case inspect.BytesType() | inspect.MemoryViewType():
            return b"x"
        case inspect.VarTupleType():
            return []
        case inspect.DictType():
            return {}
        case inspect.UnionType(types=kinds):
            return plain(kinds[0])
        case inspect.StructType(fields=fields, array_like=is_list):
            made = {field.encode_name: plain(field.type) for field in fields}
            return list(made.values()) if is_list else made
        case inspect.BoolType():
            return False
        case inspect.NoneType():
            return None
    return 1


def test_what_is_one_too_long_anywhere_is_refused() -> None:
    count = 0
    for kind in MESSAGES:
        whole = {"type": kind.tag, **plain(kind)}
        codec.decode_to_master(msgspec.msgpack.encode((codec.PROTOCOL_VERSION, 0, whole)))
        for bad in oversize(kind):
            frame = msgspec.msgpack.encode((codec.PROTOCOL_VERSION, 0, {"type": kind.tag, **bad}))
            with pytest.raises(RemoteProtocolError) as refusal:
                codec.decode_to_master(frame)
            assert refusal.value.code in (codec.OVER_BOUNDS, "frame-too-large")
            count += 1
    assert count > 100


def test_a_large_frame_is_a_list_of_all_tasks_or_files() -> None:
    many = tuple(GpuProcess(pid=number, name="x" * 256) for number in range(bounds.PROCESSES_PER_GPU))
    beat = Heartbeat(
        at=1.0, samples=tuple(GpuSample(uuid=GpuUuid(str(number)), processes=many) for number in range(40))
    )
    with pytest.raises(RemoteProtocolError, match=r"A Heartbeat of .* bytes is over the limit") as refusal:
        codec.decode_to_master(codec.encode(beat, 0))
    assert refusal.value.code == codec.OVER_BOUNDS
    hello = Hello(node_id=NodeId("n1"), facts=FACTS, samples=beat.samples)
    assert codec.decode_to_master(codec.encode(hello, 0)) == (0, hello)


def test_an_agent_keeps_to_the_bounds_whatever_its_jobs_are_called() -> None:
    """A user's words must not have their node refused."""
    long = "x" * 100_000
    gpu = GpuInfo(
        index=0,
        uuid=GpuUuid("G"),
        name=long,
        memory_bytes=1,
        nvlinks={GpuUuid(str(number)): 1 for number in range(100)},
    )
    said: list[ToMaster] = [
        LaunchRefused(key=KEY, code="no-program", message=f"There is no {long}."),
        Hello(node_id=NodeId("n1"), facts=replace(FACTS, gpus=(gpu,) * 2_000, labels={long: long})),
        Pong(
            number=1,
            node_id=NodeId("n1"),
            host="h",
            address="a",
            agent_version="1",
            python="p",
            pid=1,
            at=1.0,
            processes=(ProcessSeen(rank=0, pid=1, alive=True, job_id=long, ports=(long,)),),
            cell=CellPython(path=long),
        ),
        FetchPieces(key=KEY, digests=("a",) * 5_000),
    ]
    heard = [codec.decode_to_master(codec.encode_to_master(message, 7)) for message in said]
    assert [(epoch, type(message)) for epoch, message in heard] == [(7, type(message)) for message in said]
    refused, hello, pong, fetch = (message for _, message in heard)
    assert isinstance(refused, LaunchRefused)
    assert (len(refused.message), refused.message[-2:]) == (32_768, "x…")
    assert isinstance(hello, Hello)
    assert (len(hello.facts.gpus), len(hello.facts.gpus[0].nvlinks)) == (1_024, 64)
    assert isinstance(pong, Pong)
    assert (pong.cell or CellPython()).path == "x" * 32_767 + "…"
    assert isinstance(fetch, FetchPieces)
    assert len(fetch.digests) == 1_024


def test_what_fits_is_sent_as_it_is() -> None:
    out = Output(key=KEY, rank=0, stream=1, offset=0, data=b"x")
    well = Checked()
    huge = Heartbeat(at=1.0, load=float("inf"))
    assert [codec.encode_to_master(one, 3) for one in (out, well, huge)] == [
        codec.encode(one, 3) for one in (out, well, huge)
    ]
