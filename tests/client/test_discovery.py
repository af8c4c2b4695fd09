"""Where `Client()` looks for the server, in which order, and what it says when there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, Unauthorised, Unavailable
from mgpu_jupyter.api import models
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.discovery import Address, Locator, locate
from tests.client.conftest import QUICK, Scripted, answer, free_port, publish

Start = Callable[..., Scripted]
HEALTH = models.Health(status="ok", version="1")


@pytest.mark.parametrize(
    ("url", "token", "env", "expected"),
    [
        (
            "http://h:1/a",
            "arg",
            {"MGPU_URL": "http://other/", "MGPU_TOKEN": "env"},
            Address("http://h:1/a/", "arg"),
        ),
        (None, None, {"MGPU_URL": "https://h/base/", "MGPU_TOKEN": "env"}, Address("https://h/base/", "env")),
        (None, None, {"MGPU_URL": "http://127.0.0.1:7001"}, Address("http://127.0.0.1:7001/", "token-7001")),
        (None, None, {"MGPU_MASTER_PORT": "7001"}, Address("http://127.0.0.1:7001/x/", "token-7001")),
        (
            None,
            None,
            {"MGPU_MASTER_HOST": "localhost", "MGPU_MASTER_PORT": "7001"},
            Address("http://127.0.0.1:7001/x/", "token-7001"),
        ),
        (None, None, {"MGPU_MASTER_HOST": "far", "MGPU_TOKEN": "env"}, Address("http://far:8080/", "env")),
        (None, None, {}, Address("http://127.0.0.1:7002/", "token-7002")),
        (None, None, {"MGPU_TOKEN": "env"}, Address("http://127.0.0.1:7002/", "env")),
    ],
)
def test_order(
    state_dir: Path, url: str | None, token: str | None, env: dict[str, str], expected: Address
) -> None:
    publish(state_dir, "http://127.0.0.1:7001/x/", 7001, "token-7001", started_at=1)
    publish(state_dir, "http://127.0.0.1:7002/", 7002, "token-7002", started_at=2)

    assert locate(url, token, {"MGPU_STATE_DIR": str(state_dir), **env}) == expected


@pytest.mark.parametrize(
    ("env", "kind", "code"),
    [
        ({}, Unavailable, "no-master"),
        ({"MGPU_MASTER_PORT": "7001"}, Unavailable, "no-master"),
        ({"MGPU_MASTER_HOST": "far"}, Unauthorised, "no-token"),
        ({"MGPU_MASTER_PORT": "http"}, InvalidRequest, "bad-port"),
        ({"MGPU_URL": "localhost:8888"}, InvalidRequest, "bad-url"),
        ({"MGPU_URL": "http://h:port/"}, InvalidRequest, "bad-url"),
    ],
)
def test_nothing_found_is_one_sentence(
    state_dir: Path, env: dict[str, str], kind: type[MgpuError], code: str
) -> None:
    with pytest.raises(kind) as caught:
        Client(env={"MGPU_STATE_DIR": str(state_dir), **env}).health()

    assert caught.value.code == code
    assert "\n" not in caught.value.message


def test_a_server_that_moved_is_found_again_and_keeps_the_token(scripted: Start, state_dir: Path) -> None:
    server = scripted(answer(200, HEALTH))
    publish(state_dir, server.url, server.port, "of the file")
    env = {
        "MGPU_STATE_DIR": str(state_dir),
        "MGPU_URL": f"http://127.0.0.1:{free_port()}/",
        "MGPU_TOKEN": "of the kernel",
    }
    with Client(env=env, timeouts=QUICK) as client:
        assert client.health() == HEALTH

    assert [seen.headers["Authorization"] for seen in server.seen] == ["mgpu of the kernel"]


def test_a_token_that_is_refused_is_replaced_by_the_runtime_files(scripted: Start, state_dir: Path) -> None:
    refused = answer(401, models.ErrorBody(code="bad-token", message="Log in."))
    server = scripted(refused, answer(200, HEALTH))
    publish(state_dir, server.url, server.port, "new")
    with Client(
        env={"MGPU_STATE_DIR": str(state_dir), "MGPU_URL": server.url, "MGPU_TOKEN": "old"}, timeouts=QUICK
    ) as client:
        assert client.health() == HEALTH

    assert [seen.headers["Authorization"] for seen in server.seen] == ["mgpu old", "mgpu new"]


@pytest.mark.parametrize("url", ["http://cluster.example:8080/", None])
def test_a_server_elsewhere_is_never_replaced_by_one_found_here(state_dir: Path, url: str | None) -> None:
    """Otherwise a job for the cluster would run on a laptop."""
    publish(state_dir, "http://127.0.0.1:7001/", 7001, "t")
    env = {"MGPU_STATE_DIR": str(state_dir), "MGPU_URL": "http://cluster.example:8080/", "MGPU_TOKEN": "x"}
    locator = Locator(url, None, env)
    locator.address()

    assert (locator.look_again(), locator.renew_token(), locator.address().url) == (
        False,
        False,
        "http://cluster.example:8080/",
    )


def test_an_address_hides_its_token() -> None:
    assert "secret" not in repr(Address("http://h/", "secret"))
