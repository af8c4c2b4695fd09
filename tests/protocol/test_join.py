"""The join line: there and back, and one sentence for every way in which a pasted text can be wrong."""

from __future__ import annotations

import base64
import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.join import CLOCK_MARGIN_S, PREFIX, JoinString, read_join, write_join

JOIN = JoinString(
    addresses=("tcp://192.0.2.1:8790", "tcp://[2001:db8::1]:8790"),
    server_key="s" * 40,
    public_key="p" * 40,
    secret_key="x" * 40,
    expires_at=1_700_000_000.0,
    cluster="lab",
    node_id=NodeId("gpu-1"),
)
LINE = write_join(JOIN)
DAMAGED = (
    "This join line is damaged or cut short: paste all of it, or run `mgpu join-token` on the "
    "master's machine for a new one."
)


def refusal(text: str) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        read_join(text)
    return caught.value.code, caught.value.message


def signed(payload: bytes) -> str:
    """Return a line whose checksum is right, whatever it holds."""
    return PREFIX + base64.urlsafe_b64encode(payload + hashlib.sha256(payload).digest()[:6]).decode().rstrip(
        "="
    )


def test_a_line_says_again_what_it_was_made_of() -> None:
    assert read_join(f"  {LINE}\n") == JOIN
    assert read_join(write_join(replace(JOIN, node_id=None))).node_id is None


def test_the_bytes_of_format_1_never_change() -> None:
    assert LINE == (
        "mgpu1.l5K0dGNwOi8vMTkyLjAuMi4xOjg3OTC4dGNwOi8vWzIwMDE6ZGI4OjoxXTo4Nzkw2Shzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3"
        "Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nz2ShwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBw2Sh4eHh4eHh4eHh4eH"
        "h4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4y0HZVPxAAAAAo2xhYqVncHUtMSNKk8X5nQ"
    )


def test_it_is_one_word_without_secrets_in_its_repr() -> None:
    assert (LINE.split(), repr(JOIN)) == (
        [LINE],
        "JoinString(tcp://192.0.2.1:8790, tcp://[2001:db8::1]:8790, keys hidden)",
    )


@pytest.mark.parametrize(
    "text",
    [
        LINE[:-1],
        LINE[: len(LINE) // 2],
        PREFIX,
        PREFIX + "AAAA",
        PREFIX + "not base64!",
        PREFIX + "ü" * 40,
        LINE[:20] + ("A" if LINE[20] != "A" else "B") + LINE[21:],
        signed(b"\xc1"),
        signed(msgspec.msgpack.encode(["one"])),
        signed(b"\x97\x91\xa1\xff"),
        write_join(replace(JOIN, addresses=())),
        write_join(replace(JOIN, addresses=("ipc:///tmp/x",))),
        write_join(replace(JOIN, secret_key="short")),
        write_join(replace(JOIN, server_key="ü" * 40)),
        write_join(replace(JOIN, node_id=NodeId("../x"))),
    ],
)
def test_what_is_damaged_says_so(text: str) -> None:
    assert refusal(text) == ("join-damaged", DAMAGED)


def test_what_is_no_line_and_what_is_a_newer_one() -> None:
    begins = (
        "A join line begins with mgpu1.: paste all of it, or run `mgpu join-token` on the master's "
        "machine for a new one."
    )
    newer = "This join line is of format 2, newer than this mgpu: install the master's version here."
    assert (refusal("hello"), refusal(""), refusal("mgpu2.AAAA")) == (
        ("join-damaged", begins),
        ("join-damaged", begins),
        ("join-too-new", newer),
    )


def test_an_old_line_is_refused_with_its_time_and_a_clock_that_is_a_little_off_is_forgiven() -> None:
    JOIN.check_not_expired(JOIN.expires_at + CLOCK_MARGIN_S)
    with pytest.raises(InvalidRequest) as caught:
        JOIN.check_not_expired(JOIN.expires_at + CLOCK_MARGIN_S + 1)
    assert (caught.value.code, caught.value.message) == (
        "join-expired",
        (
            "This join line expired on 2023-11-14 22:13 UTC: run `mgpu join-token` on the master's machine "
            "for "
            "a new one."
        ),
    )


@given(
    text=st.text(max_size=200)
    | st.binary(max_size=200).map(lambda data: PREFIX + base64.urlsafe_b64encode(data).decode())
)
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_join(text)
