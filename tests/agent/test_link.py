"""What a connection to the master says when it does not come about: a refusal is one only when the master
says so.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import zmq

from mgpu_agent.link import KeyPair, Link, LinkEvent, Target
from tests.processes import wait_until


def a_key_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public=public.decode(), secret=secret.decode())


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link()
    yield link
    link.close()


def first_event(link: Link) -> LinkEvent:
    return wait_until(lambda: next(iter(link.events()), None), "something happened to the connection")


def test_a_connection_that_breaks_before_the_handshake_was_not_refused(link: Link) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link.open(
            Target(address=f"tcp://127.0.0.1:{server.getsockname()[1]}", server_key=a_key_pair().public),
            a_key_pair(),
        )
        connection, _ = server.accept()
        connection.close()

        assert first_event(link) == LinkEvent(is_up=False, hung_up=True)


def test_a_master_with_another_key_hangs_up(link: Link) -> None:
    keys = a_key_pair()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as master:
        master.curve_server = True
        master.curve_publickey, master.curve_secretkey = keys.public.encode(), keys.secret.encode()
        port = master.bind_to_random_port("tcp://127.0.0.1")
        link.open(Target(address=f"tcp://127.0.0.1:{port}", server_key=a_key_pair().public), a_key_pair())

        assert first_event(link) == LinkEvent(is_up=False, hung_up=True)
