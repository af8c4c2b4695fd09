"""Login lines, where they are kept, and servers that are known by their certificate."""

from __future__ import annotations

import ssl
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest, Unauthorised
from mgpu_jupyter.api import models
from mgpu_jupyter.client import Client, Timeouts
from mgpu_jupyter.client.connecting import pin_of_file
from mgpu_jupyter.client.discovery import Address, Locator, locate
from mgpu_jupyter.client.login import (
    Login,
    forget_login,
    load_login,
    login_path,
    read_line,
    store_login,
    write_line,
)
from mgpu_jupyter.server.certificate import load_certificate, make_certificate, served_names
from tests.client.conftest import publish

PIN = "ab" * 32
LOGIN = Login(url="https://gpu.example.com:8080/", pin=PIN, token="CANARY-TOKEN")
HEALTH = models.Health(status="ok", version="1")


@pytest.fixture
def env(tmp_path: Path, state_dir: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "MGPU_STATE_DIR": str(state_dir)}


# --- lines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", ["{}", "mgpu login {}", "  {}\n", "mgpu login\n{}"])
def test_a_line_is_read_as_it_was_pasted(frame: str) -> None:
    assert read_line(frame.format(write_line(LOGIN))) == LOGIN


def test_every_damage_to_a_line_is_one_sentence() -> None:
    line = write_line(LOGIN)
    damaged = [
        line[:at] + ("A" if line[at] != "A" else "B") + line[at + 1 :]
        for at in range(len("mgpulogin1."), len(line) - 1)
    ]
    for text in (
        *damaged,
        line[:-8],
        line + "AAAA",
        line[: len(line) // 2],
        "mgpulogin1.",
        "mgpulogin1.é",
        "mgpulogin2.abcd",
        "hello",
        "",
    ):
        with pytest.raises(InvalidRequest) as caught:
            read_line(text)
        assert caught.value.code == "bad-login"
        assert "\n" not in caught.value.message
        assert "CANARY" not in caught.value.message


@pytest.mark.parametrize(
    "login",
    [
        Login(url="http://gpu.example.com:8080/", token="t"),
        Login(url="http://127.evil.example/", token="t"),
        Login(url="https://gpu.example.com/", token="t"),
        Login(url="https://gpu.example.com/", pin="short", token="t"),
        Login(url="ftp://127.0.0.1/", token="t"),
        Login(url="http://127.0.0.1:1/", token=""),
    ],
)
def test_a_line_that_would_send_the_token_in_the_open_is_refused(login: Login) -> None:
    with pytest.raises(InvalidRequest):
        read_line(write_line(login))


def test_plain_http_is_for_this_machine() -> None:
    for url in ("http://127.0.0.1:8080/", "http://localhost:1/", "http://[::1]:1/"):
        assert read_line(write_line(Login(url=url, token="t"))).url == url


def test_a_login_hides_its_token() -> None:
    assert "CANARY" not in repr(LOGIN)


# --- the file ---------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_alone(env: dict[str, str]) -> None:
    path = store_login(LOGIN, env)

    assert path == login_path(env)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    assert load_login(env) == LOGIN
    path.chmod(0o644)
    with pytest.raises(InvalidRequest, match=f"chmod 600 {path}"):
        load_login(env)


def test_forgetting(env: dict[str, str]) -> None:
    store_login(LOGIN, env)

    assert forget_login(env) == LOGIN
    assert (load_login(env), forget_login(env)) == (None, None)


def test_a_broken_file_says_what_to_do_and_can_be_forgotten(env: dict[str, str]) -> None:
    store_login(LOGIN, env).write_text("{")

    with pytest.raises(InvalidRequest, match="mgpu logout"):
        load_login(env)
    assert forget_login(env) == Login(url="", token="")
    assert load_login(env) is None


def test_without_a_home_there_is_no_login() -> None:
    assert load_login({}) is None
    assert login_path({"HOME": "/home/ann"}) == Path("/home/ann/.config/mgpu/login.json")
    with pytest.raises(InvalidRequest, match="HOME"):
        store_login(LOGIN, {})


# --- where the client looks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, Address(LOGIN.url, LOGIN.token, PIN)),
        ({"MGPU_MASTER_HOST": "gpu.example.com"}, Address(LOGIN.url, LOGIN.token, PIN)),
        ({"MGPU_URL": LOGIN.url}, Address(LOGIN.url, LOGIN.token, PIN)),
        (
            {"MGPU_URL": "http://127.0.0.1:8888/", "MGPU_TOKEN": "kernel"},
            Address("http://127.0.0.1:8888/", "kernel"),
        ),
        (
            {
                "MGPU_URL": "https://127.0.0.1:8888/",
                "MGPU_TOKEN": "kernel",
                "MGPU_CERTIFICATE_PIN": "cd" * 32,
            },
            Address("https://127.0.0.1:8888/", "kernel", "cd" * 32),
        ),
        ({"MGPU_MASTER_PORT": "7001"}, Address("http://127.0.0.1:7001/", "local")),
    ],
)
def test_a_login_goes_before_a_master_of_this_machine_and_after_the_environment(
    env: dict[str, str], state_dir: Path, extra: dict[str, str], expected: Address
) -> None:
    publish(state_dir, "http://127.0.0.1:7001/", 7001, "local")
    store_login(LOGIN, env)

    assert locate(None, None, env | extra) == expected


def test_a_kernel_whose_server_is_gone_goes_to_the_login_with_the_logins_token(
    env: dict[str, str], state_dir: Path
) -> None:
    """Never to a master that happens to run here, and never with the kernel's own token."""
    publish(state_dir, "http://127.0.0.1:7001/", 7001, "local")
    store_login(LOGIN, env)
    locator = Locator(env=env | {"MGPU_URL": "http://127.0.0.1:8888/", "MGPU_TOKEN": "kernel"})
    locator.address()

    assert locator.look_again()
    assert locator.address() == Address(LOGIN.url, LOGIN.token, PIN)
    assert (locator.look_again(), locator.renew_token()) == (False, False)


# --- pinned certificates ----------------------------------------------------------------------------------


class SecureServer:
    """Answers `health` over TLS and remembers what arrived."""

    def __init__(self, certificate: Path) -> None:
        self.seen: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append(self.headers["Authorization"])
                data = msgspec.json.encode(HEALTH)
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up are the point
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[SecureServer, str]]:
    certificate = load_certificate(tmp_path / "keys", "127.0.0.1")
    server = SecureServer(certificate)
    yield server, pin_of_file(certificate)
    server.stop()


def test_a_server_with_the_pinned_certificate_is_spoken_to(secure: tuple[SecureServer, str]) -> None:
    server, pin = secure
    with Client.of_login(Login(url=server.url, pin=pin, token="secret")) as client:
        assert client.health() == HEALTH

    assert server.seen == ["mgpu secret"]


def test_a_server_with_another_certificate_gets_not_one_byte(secure: tuple[SecureServer, str]) -> None:
    server, _ = secure
    login = Login(url=server.url, pin=PIN, token="secret")
    with (
        Client.of_login(login, timeouts=Timeouts(retry_s=0)) as client,
        pytest.raises(Unauthorised) as caught,
    ):
        client.health()

    assert (caught.value.code, server.seen) == ("wrong-certificate", [])
    assert "\n" not in caught.value.message


def test_a_certificate_is_made_once_and_names_what_is_served(tmp_path: Path) -> None:
    from cryptography import x509

    path = load_certificate(tmp_path / "keys", "192.0.2.7")
    again = load_certificate(tmp_path / "keys", "elsewhere.example")
    names = (
        x509.load_pem_x509_certificate(path.read_bytes())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )

    assert (path, path.read_bytes()) == (again, again.read_bytes())
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    assert str(names.get_values_for_type(x509.IPAddress)[0]) == "192.0.2.7"
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert "127.0.0.1" in served_names("0.0.0.0")
    path.chmod(0o644)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        load_certificate(tmp_path / "keys", "")


def test_two_certificates_have_two_pins(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(make_certificate(("localhost",)))
    assert pin_of_file(tmp_path / "a") != pin_of_file(tmp_path / "b")
    (tmp_path / "empty").write_text("")
    assert pin_of_file(tmp_path / "empty") == ""
