"""One suite for everything that carries frames: which key is whose. The real one, and those in memory that
stand for it in tests.
"""

from __future__ import annotations

import pytest
import zmq

from mgpu_jupyter.transport.router import Router
from tests.engines.world import FakeCarrier
from tests.fuzz.master_target import Pipe
from tests.storm.network import MasterSide


def a_router():
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return Router(public_key=public, secret_key=secret)


CARRIERS = {
    "zeromq": a_router,
    "tests of the engine": lambda: FakeCarrier([]),
    "fuzz": Pipe,
    "storm": lambda: MasterSide(None, None),
}


@pytest.fixture(params=CARRIERS)
def carrier(request):
    carrier = CARRIERS[request.param]()
    yield carrier
    carrier.close()


@pytest.fixture
def keys():
    return [zmq.curve_keypair()[0].decode() for _ in range(2)]


def held(carrier, keys, *names):
    return [carrier.holder(key) for key in keys], [carrier.knows(name) for name in names]


def test_a_key_is_bound_to_a_name_until_it_is_forbidden(carrier, keys):
    assert held(carrier, keys, "n1", "n2") == ([None, None], [False, False])
    carrier.allow(keys[0], "n1")
    carrier.allow(keys[1], "n2")
    assert held(carrier, keys, "n1", "n2") == (["n1", "n2"], [True, True])
    carrier.forbid("n1", "it was revoked")
    carrier.forbid("n1", "it was revoked")
    carrier.forbid("nobody", "why not")
    assert held(carrier, keys, "n1", "n2") == ([None, "n2"], [False, True])


def test_a_name_has_one_key_and_the_newer_one_takes_its_place(carrier, keys):
    carrier.allow(keys[0], "n1")
    carrier.allow(keys[1], "n1")
    assert held(carrier, keys, "n1") == ([None, "n1"], [True])
    carrier.allow(keys[0], "n1")
    assert held(carrier, keys, "n1") == (["n1", None], [True])


def test_a_key_that_is_only_remembered_lets_nobody_in(carrier, keys):
    carrier.remember(keys[0], "n1", "this join line has expired")
    assert held(carrier, keys, "n1") == ([None, None], [False])
    carrier.allow(keys[0], "n1")
    assert held(carrier, keys, "n1") == (["n1", None], [True])


@pytest.mark.parametrize("carrier", [name for name in CARRIERS if name != "storm"], indirect=True)
def test_what_is_no_key_is_nobodys(carrier):
    """The storm's nodes have names in place of keys."""
    with pytest.raises(ValueError, match="short"):
        carrier.holder("short")


def test_nothing_came(carrier):
    assert carrier.receive(10) == []
