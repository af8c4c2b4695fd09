from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mgpu_agent.protocol import codec
from mgpu_agent.protocol.codec import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    decode_to_agent,
    decode_to_master,
    encode,
)
from mgpu_agent.protocol.errors import RemoteProtocolError
from mgpu_agent.protocol.messages import ToAgent, ToMaster
from mgpu_agent.protocol.model import GpuProcess, ResultFile
from tests.protocol.samples import FACTS, MASTER_EPOCH, SAMPLE, SPEC, STATUS, TO_AGENT, TO_MASTER
from tests.protocol.strategies import values_of

GOLDEN = Path(__file__).with_name("golden.hex")
Decode = Callable[[bytes], tuple[int, object]]
BOTH_WAYS = pytest.mark.parametrize("decode", [decode_to_agent, decode_to_master])


def _refusal(decode: Decode, frame: bytes) -> str | None:
    """Return the code of the one error that a frame may cause, or None when it could be read."""
    try:
        decode(frame)
    except RemoteProtocolError as error:
        return error.code
    return None


def test_golden_bytes() -> None:
    """Bytes on the wire never change for a released message; a new one adds a line. Compared whole, both
    ways.
    """
    lines = dict(line.split() for line in GOLDEN.read_text().splitlines())
    encoded = {name: encode(message, MASTER_EPOCH).hex() for name, message in (TO_AGENT | TO_MASTER).items()}
    decoded = {
        name: (decode_to_agent if name in TO_AGENT else decode_to_master)(bytes.fromhex(golden))
        for name, golden in lines.items()
    }

    assert lines == encoded
    assert decoded == {name: (MASTER_EPOCH, message) for name, message in (TO_AGENT | TO_MASTER).items()}


def test_bytes_of_an_earlier_agent_are_read_with_defaults_for_what_it_does_not_know() -> None:
    lines = dict(line.split() for line in GOLDEN.with_name("golden_earlier.hex").read_text().splitlines())
    sample = replace(SAMPLE, processes=(GpuProcess(pid=1, user="ada", memory_bytes=5),), trouble=None)
    nameless = replace(SAMPLE, processes=(replace(SAMPLE.processes[0], name=""),))
    gpus = (replace(FACTS.gpus[0], mig_parent="", nvlinks={}),)
    facts = replace(FACTS, runs_as="", port=0)
    unbounded = replace(
        SPEC,
        tasks=(replace(SPEC.tasks[0], files=()),),
        container=False,
        cpus=0,
        mem_bytes=0,
        folder_limit_bytes=0,
        results_limit_bytes=0,
    )
    bare = replace(unbounded, inputs="", outputs=(), outputs_limit_bytes=0)
    unmixed = replace(bare, mpi=False)
    plain = replace(unmixed, debug=False, defaults={}, folder="", results=(), hooks=())
    alone = replace(plain, stdin=False, pty=False, rows=24, columns=80, setup="")
    tasks = (replace(STATUS, collects=False, gpu_memory_peak_bytes=None, gpu_utilisation_percent=None),)
    unasked = replace(TO_MASTER["hello"], answers=0)
    expected = {
        "hello": replace(
            unasked,
            tasks=tasks,
            facts=replace(facts, gpus=gpus, address_method=""),
            samples=(),
            prepared=(),
            beat=0.0,
        ),
        "heartbeat": replace(
            TO_MASTER["heartbeat"], samples=(sample,), cpu_percent=None, memory_available_bytes=None, beat=0.0
        ),
        "heartbeat_with_trouble": replace(
            TO_MASTER["heartbeat"],
            samples=(nameless,),
            cpu_percent=None,
            memory_available_bytes=None,
            beat=0.0,
        ),
        "hello_without_beat": replace(
            unasked, tasks=tasks, facts=facts, samples=(nameless,), prepared=(), beat=0.0
        ),
        "heartbeat_without_beat": replace(TO_MASTER["heartbeat"], samples=(nameless,), beat=0.0),
        "hello_without_program": replace(unasked, samples=(nameless,)),
        "heartbeat_without_program": replace(TO_MASTER["heartbeat"], samples=(nameless,)),
        "welcome_without_beat": replace(TO_AGENT["welcome"], beat=0.0),
        "forget_without_ranks": replace(TO_AGENT["forget"], ranks=()),
        "launch_without_lease": replace(TO_AGENT["launch"], spec=replace(alone, lease_s=0.0)),
        "launch_without_stdin": replace(TO_AGENT["launch"], spec=alone),
        "launch_without_defaults": replace(TO_AGENT["launch"], spec=plain),
        "prepare_without_meeting": replace(TO_AGENT["prepare"], spec=plain, meets=False),
        "start_without_spec": replace(TO_AGENT["start"], spec=None),
        "prepared_without_offer": replace(TO_MASTER["prepared"], offer=None, in_scratch=False),
        "prepared_without_directory": replace(TO_MASTER["prepared"], in_scratch=False),
        "launch_without_debug": replace(
            TO_AGENT["launch"], spec=replace(unmixed, debug=False, folder="", results=(), hooks=())
        ),
        "launch_without_mpi": replace(TO_AGENT["launch"], spec=unmixed),
        "launch_without_variables": replace(TO_AGENT["launch"], spec=bare),
        "launch_without_limits": replace(TO_AGENT["launch"], spec=unbounded),
        "ping_without_cell": replace(TO_AGENT["ping"], cell=None),
        "pong_without_cell": replace(TO_MASTER["pong"], cell=None),
        "found_results_without_rank": replace(
            TO_MASTER["found_results"], files=(ResultFile("out/a.pt", 8, "0" * 64, 0o640),)
        ),
        "hello_without_answers": unasked,
        "resync_without_number": replace(TO_AGENT["resync"], number=0),
    }

    def decode(name: str, frame: bytes) -> tuple[int, object]:
        return (decode_to_agent if name.partition("_")[0] in TO_AGENT else decode_to_master)(frame)

    assert {name: decode(name, bytes.fromhex(line)) for name, line in lines.items()} == {
        name: (MASTER_EPOCH, message) for name, message in expected.items()
    }


@pytest.mark.parametrize(("samples", "union"), [(TO_AGENT, ToAgent), (TO_MASTER, ToMaster)])
def test_a_sample_of_every_message(samples: dict[str, msgspec.Struct], union: object) -> None:
    assert {type(message) for message in samples.values()} == set(typing.get_args(union))
    assert [message.__struct_config__.tag for message in samples.values()] == list(samples)


@given(message=values_of(ToAgent), epoch=st.integers(0, 2**63))
def test_round_trip_to_agent(message: ToAgent, epoch: int) -> None:
    assert decode_to_agent(encode(message, epoch)) == (epoch, message)


@given(message=values_of(ToMaster), epoch=st.integers(0, 2**63))
def test_round_trip_to_master(message: ToMaster, epoch: int) -> None:
    assert decode_to_master(memoryview(encode(message, epoch))) == (epoch, message)


@BOTH_WAYS
def test_every_truncation_is_refused(decode: Decode) -> None:
    samples = TO_AGENT if decode is decode_to_agent else TO_MASTER
    for message in samples.values():
        frame = encode(message, MASTER_EPOCH)
        codes = {_refusal(decode, frame[:length]) for length in range(len(frame))}
        assert codes == {"bad-frame"}


@BOTH_WAYS
@given(frame=st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(decode: Decode, frame: bytes) -> None:
    assert _refusal(decode, frame) in {"bad-frame", "protocol-version"}


@BOTH_WAYS
@given(data=st.data())
def test_flipped_bytes_raise_nothing_else(decode: Decode, data: st.DataObject) -> None:
    samples = TO_AGENT if decode is decode_to_agent else TO_MASTER
    frame = bytearray(encode(data.draw(st.sampled_from(list(samples.values()))), MASTER_EPOCH))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    assert _refusal(decode, bytes(frame)) in {None, "bad-frame", "protocol-version"}


@BOTH_WAYS
def test_other_version(decode: Decode) -> None:
    frame = msgspec.msgpack.encode((PROTOCOL_VERSION + 1, 0, {"type": "bye"}))
    with pytest.raises(RemoteProtocolError) as caught:
        decode(frame)
    assert (caught.value.code, caught.value.message) == (
        "protocol-version",
        "The other side speaks protocol 2, this one 1: install the same mgpu-jupyter on both.",
    )


@BOTH_WAYS
def test_frame_over_the_limit(decode: Decode, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_FRAME_BYTES == 32 * 1024 * 1024
    monkeypatch.setattr(codec, "MAX_FRAME_BYTES", 10)
    assert [_refusal(decode, b"\xc0" * size) for size in (10, 11)] == ["bad-frame", "frame-too-large"]


@BOTH_WAYS
@pytest.mark.parametrize(
    "body",
    [
        {"type": "no-such-message"},
        {"type": "output", "key": ["AB12CD34", 1, 1]},
        {"type": 3},
        {},
        [],
        None,
        "bye",
    ],
)
def test_unknown_or_wrong_message(decode: Decode, body: object) -> None:
    assert _refusal(decode, msgspec.msgpack.encode((PROTOCOL_VERSION, 0, body))) == "bad-frame"


@BOTH_WAYS
def test_message_of_the_other_direction(decode: Decode) -> None:
    others = TO_MASTER if decode is decode_to_agent else TO_AGENT
    assert {_refusal(decode, encode(message, 0)) for message in others.values()} == {"bad-frame"}


@BOTH_WAYS
def test_nesting_without_end(decode: Decode) -> None:
    assert _refusal(decode, b"\x93\x01\x00" + b"\x91" * 200_000 + b"\xc0") == "bad-frame"


@BOTH_WAYS
def test_text_that_is_not_utf8(decode: Decode) -> None:
    frame = b"\x93\x01\x00" + b"\x81\xa4type\xa3\xff\xff\xff"
    assert _refusal(decode, frame) == "bad-frame"


def test_new_field_is_ignored_by_an_older_reader() -> None:
    """Wire evolution: a newer sender may say more."""
    frame = msgspec.msgpack.encode(
        (PROTOCOL_VERSION, 4, {"type": "enrolled", "node_id": "n1", "later": {"a": 1}})
    )
    assert decode_to_agent(frame) == (4, TO_AGENT["enrolled"])
