"""The link: who gets in is decided by the key alone, and what comes in carries the name that the key is bound
to.
"""

from __future__ import annotations

import logging
import time

import pytest
import zmq

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_jupyter.transport.router import Router

LIMIT_S = 60.0


def keys():
    return tuple(part.decode() for part in zmq.curve_keypair())


class LinkUnderTest:
    def __init__(self):
        self.public, secret = keys()
        self.router = Router(public_key=self.public, secret_key=secret)
        self.port = self.router.bind("127.0.0.1", 0)
        self.context = zmq.Context()
        self.sockets = []

    def client(self, pair=None, *, server_key=None, routing_id=None, host="127.0.0.1"):
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        if routing_id is not None:
            socket.routing_id = routing_id
        if pair is not None:
            socket.curve_publickey, socket.curve_secretkey = (part.encode() for part in pair)
            socket.curve_serverkey = (server_key or self.public).encode()
        socket.connect(f"tcp://{host}:{self.port}")
        self.sockets.append(socket)
        return socket

    def receive(self, until=lambda messages: messages, limit_s=LIMIT_S):
        """Let the router work until the condition holds or the time is over."""
        messages, end = [], time.monotonic() + limit_s
        while not until(messages) and time.monotonic() < end:
            self.router.wait(0.05)
            messages += self.router.receive(100)
        return messages

    def close(self):
        for socket in self.sockets:
            socket.close()
        self.context.term()
        self.router.close()


@pytest.fixture
def link():
    link = LinkUnderTest()
    yield link
    link.close()


def test_an_enrolled_key_gets_in_under_its_name_and_is_answered(link):
    pair = keys()
    link.router.allow(pair[0], "n1")
    client = link.client(pair)
    client.send_multipart([b"one", b"two"])

    (message,) = link.receive()

    assert (message.user_id, [bytes(frame) for frame in message.frames]) == ("n1", [b"one", b"two"])
    assert link.router.send(message.route, [b"three"])
    assert client.poll(LIMIT_S * 1000)
    assert client.recv_multipart() == [b"three"]


def test_a_connection_that_is_gone_is_told_to_the_sender(link):
    assert not link.router.send(b"\0abcd", [b"x"])


def test_the_end_of_a_connection_is_told_once_and_what_it_sent_before_still_comes(link):
    pair, other = keys(), keys()
    link.router.allow(pair[0], "n1")
    link.router.allow(other[0], "n2")
    client, friend = link.client(pair), link.client(other)
    client.send(b"one")
    friend.send(b"one")
    first = {message.user_id: message.route for message in link.receive(until=lambda got: len(got) == 2)}
    assert link.router.take_ended() == []
    client.send(b"two")
    client.close(linger=60_000)

    ended = []

    def is_told(messages):
        ended.extend(link.router.take_ended())
        return ended and messages

    last = link.receive(until=is_told)
    assert ([(message.user_id, bytes(message.frames[0])) for message in last], ended) == (
        [("n1", b"two")],
        [first["n1"]],
    )
    again = link.client(pair)
    again.send(b"three")
    (message,) = link.receive()
    assert message.route != first["n1"]
    friend.send(b"four")
    link.receive()
    assert link.router.take_ended() == []


def test_a_name_has_one_key_at_a_time(link):
    old, new = keys(), keys()
    link.router.allow(old[0], "n1")
    link.router.allow(new[0], "n1")
    link.client(old).send(b"old")
    link.client(new).send(b"new")

    (message,) = link.receive()

    assert bytes(message.frames[0]) == b"new"


def test_a_key_that_is_taken_off_the_list_is_nobodys_from_its_next_frame_on_and_others_notice_nothing(link):
    pair, other = keys(), keys()
    link.router.allow(pair[0], "n1")
    link.router.allow(other[0], "n2")
    client, friend = link.client(pair), link.client(other)
    client.send(b"before")
    friend.send(b"before")
    assert sorted(
        (message.user_id, message.refusal) for message in link.receive(until=lambda got: len(got) == 2)
    ) == [
        ("n1", ""),
        ("n2", ""),
    ]

    link.router.forbid("n1", "it was stolen")
    link.router.forbid("n1", "a second time changes nothing")
    client.send(b"after")
    friend.send(b"after")

    messages = link.receive(until=lambda got: len(got) == 2)
    assert sorted((message.user_id, message.refusal) for message in messages) == [
        ("n1", "it was stolen"),
        ("n2", ""),
    ]
    assert (link.router.knows("n1"), link.router.knows("n2")) == (False, True)
    assert (link.router.holder(pair[0]), link.router.holder(other[0])) == (None, "n2")


def test_a_key_that_was_replaced_is_refused_on_the_connection_that_it_has(link):
    old, new = keys(), keys()
    link.router.allow(old[0], "n1")
    client = link.client(old)
    client.send(b"one")
    link.receive()
    link.router.allow(new[0], "n1")
    client.send(b"two")

    (message,) = link.receive()
    assert (message.user_id, message.refusal) == ("n1", "the name n1 has another key by now")
    link.router.allow(old[0], "n1")
    client.send(b"three")
    assert [(message.user_id, message.refusal) for message in link.receive()] == [("n1", "")]


def test_the_log_says_why_a_key_that_was_once_good_is_refused(link, caplog):
    pair = keys()
    link.router.remember(pair[0], ":join:x", "this join line was used already")
    link.client(pair).send(b"let me in")

    assert link.receive(until=lambda _: "used already" in caplog.text) == []
    (told,) = link.router.turned_away()
    assert told.startswith("A program at 127.0.0.1 was turned away from the link, since ")
    assert told.endswith(": if it is a node of yours, start its mgpu_node with a line of `mgpu join-token`.")


@pytest.mark.parametrize("text", ["", "short", "k" * 41, "k" * 45, '"' * 40, "ü" * 40])
def test_what_is_no_key_is_named_so(link, text):
    with pytest.raises(ValueError):
        link.router.holder(text)
    with pytest.raises(ValueError):
        link.router.allow(text, "n1")


def test_the_link_can_listen_on_several_addresses_with_one_port(link):
    pair = keys()
    link.router.allow(pair[0], "n1")

    assert link.router.bind("127.0.0.2", link.port) == link.port

    for host in ("127.0.0.1", "127.0.0.2"):
        link.client(pair, host=host).send(host.encode())
        assert [bytes(message.frames[0]) for message in link.receive()] == [host.encode()]


def test_an_address_of_another_machine_is_refused(link):
    with pytest.raises(InvalidRequest) as caught:
        link.router.bind("192.0.2.1", link.port)

    assert caught.value.code == "no-such-address"


REFUSED = {
    "unknown key": (lambda link: link.client(link.stranger), "is not enrolled"),
    "wrong server key": (
        lambda link: link.client(link.good, server_key=keys()[0]),
        "encrypted for another server key",
    ),
    "no CURVE": (lambda link: link.client(None), "did not use CURVE"),
    "own routing id": (lambda link: link.client(link.good, routing_id=b"n2"), "chose its own routing id"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_whoever_does_not_belong_is_refused_and_the_log_says_so_once(link, caplog, case):
    connect, sentence = REFUSED[case]
    link.good, link.stranger = keys(), keys()
    link.router.allow(link.good[0], "n1")
    caplog.set_level(logging.WARNING, "mgpu.link")

    def told(_=None):
        return sum(sentence in record.message for record in caplog.records)

    for _ in range(3):
        connect(link).send(b"let me in")
    messages = link.receive(until=told)
    messages += link.receive(until=lambda _: False, limit_s=0.5)

    assert messages == []
    assert told() == 1
    friend = link.client(keys_of_friend := keys())
    link.router.allow(keys_of_friend[0], "n3")
    friend.send(b"hello")
    assert [message.user_id for message in link.receive()] == ["n3"]


def test_a_port_that_is_taken_is_said_in_a_sentence(link):
    other = Router(public_key=keys()[0], secret_key=keys()[1])

    with pytest.raises(Unavailable) as caught:
        other.bind("127.0.0.1", link.port)

    assert caught.value.code == "link-port"
    other.close()


def test_wake_ends_a_wait(link):
    begun = time.monotonic()
    link.router.wake()
    link.router.wait(LIMIT_S)

    assert time.monotonic() - begun < LIMIT_S / 2
