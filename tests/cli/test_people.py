"""`mgpu user`, `mgpu login`, `mgpu logout`: what they print, and that secrets leave `ps`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from mgpu_jupyter.api import administration
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.login import Login, load_login, store_login, write_line
from mgpu_jupyter.client.transport import Answer, Request, Stream

Captured = pytest.CaptureFixture[str]
ANN = administration.User(name="ann", role="user", created_at=1.0)
LOGIN = Login(url="http://127.0.0.1:1/", token="CANARY")


class Table:
    """Answers by method and path, and remembers the bodies."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.bodies: list[bytes | None] = []

    def send(self, request: Request) -> Answer:
        self.bodies.append(request.body)
        return Answer(status=200, body=msgspec.json.encode(self.answers[f"{request.method} {request.path}"]))

    def open(self, request: Request) -> Stream:
        raise AssertionError("nothing is followed here")

    def close(self) -> None:
        pass


def run(words: list[str], **answers: object) -> tuple[int, Table]:
    table = Table(**answers)
    return entry.mgpu(words, lambda: Client(transport=table)), table


def test_adding_prints_one_line_to_paste(capsys: Captured) -> None:
    code, table = run(
        ["user", "add", "ann", "--ttl", "30d"],
        **{"POST users": administration.NewLogin(user=ANN, line="mgpulogin1.x")},
    )

    assert (code, capsys.readouterr().out) == (0, "mgpu login mgpulogin1.x\n")
    assert table.bodies == [b'{"name":"ann","role":"user","ttl_s":2592000.0}']


def test_listing(capsys: Captured) -> None:
    old = administration.User(name="bob", role="admin", created_at=1.0, expires_at=1.0)
    then = time.strftime("%Y-%m-%d %H:%M", time.localtime(1.0))
    code, _ = run(["user", "list"], **{"GET users": administration.UserList(users=(ANN, old))})

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "ann | user | until removed",
        f"bob | admin | expired on {then}",
    ]
    assert run(["user", "list"], **{"GET users": administration.UserList(users=())})[0] == 0
    assert capsys.readouterr().out.startswith("No users yet")


def test_removing(capsys: Captured) -> None:
    assert run(["user", "remove", "ann"], **{"DELETE users/ann": ANN})[0] == 0
    assert capsys.readouterr().out.startswith("ann is removed")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["user"], "Say what to do"),
        (["user", "give", "ann"], "Say what to do"),
        (["user", "add"], "Name the user"),
        (["user", "add", "ann", "--ttl", "soon"], "write a time like"),
        (["user", "add", "../x"], "cannot be a user's name"),
        (["login"], "Paste the line"),
        (["login", "CANARY"], "That is no login line"),
        (["login", "mgpulogin1.CANARY"], "damaged"),
        (["login", "mgpulogin1.a", "CANARY"], "more than one line"),
        (["login", "--CANARY"], "more than one line"),
    ],
)
def test_what_is_wrong_is_one_sentence_without_the_secret(
    capsys: Captured, words: list[str], sentence: str
) -> None:
    code, _ = run(words)
    out, err = capsys.readouterr()

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert "CANARY" not in err


def test_a_login_that_does_not_work_is_not_kept(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert run(["login", write_line(LOGIN)])[0] == 1
    assert "does not answer" in capsys.readouterr().err
    assert load_login(os.environ) is None


def test_logging_out(capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    store_login(LOGIN, os.environ)

    assert (run(["logout"])[0], run(["logout"])[0]) == (0, 0)
    assert capsys.readouterr().out.splitlines() == [
        "The login to http://127.0.0.1:1/ is forgotten.",
        "There was no login.",
    ]


def test_words_are_wiped_from_ps_and_kept_in_the_program() -> None:
    code = (
        "import sys; from pathlib import Path; from mgpu_jupyter.cli.command import wipe_from_ps\n"
        "wipe_from_ps(sys.argv[1:2]); print(sys.argv[1], 'CAN' 'ARY' in "
        "Path('/proc/self/cmdline').read_text(), 'plain' in sys.argv)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "K=CANARY", "plain"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "K=CANARY False True\n"
