"""A keeper as a process, and a conversation with it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgpu_agent.channel import Channel
from mgpu_agent.keeper.messages import (
    Attach,
    FromKeeper,
    RankStart,
    Snapshot,
    StartRefused,
    StartTasks,
    TaskChanged,
    TaskRecord,
    ToKeeper,
    from_keeper_decoder,
    incarnation,
)
from mgpu_agent.protocol.ids import AttemptKey, JobId
from tests.agent.master import wait_until

SHORT_S = 0.3


class Conversation:
    """A connection to one keeper, as an agent has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.news: list[FromKeeper] = []
        connection = wait_until(self._try_connect)
        self._channel: Channel[FromKeeper] = Channel(connection, from_keeper_decoder)
        self.say(Attach(environment={b"PATH": os.environb[b"PATH"], b"BASE": b"base"}))
        snapshot = self.wait(lambda: self.news and self.news.pop(0))
        assert isinstance(snapshot, Snapshot)
        self.snapshot = snapshot

    def _try_connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.directory / "keeper.sock"))
        except OSError:
            connection.close()
            return None
        return connection

    def say(self, *messages: ToKeeper) -> None:
        for message in messages:
            self._channel.put(message)
        assert self._channel.flush()

    def wait(self, condition: Callable[[], object], limit_s: float = 40.0) -> object:
        give_up_at = time.monotonic() + limit_s
        while not (value := condition()):
            assert time.monotonic() < give_up_at, f"Waited in vain; heard: {self.news}"
            select.select([self._channel], [], [], 0.05)
            messages = self._channel.receive()
            assert messages is not None, "the keeper hung up"
            self.news += messages
        return value

    def start(
        self,
        key: AttemptKey,
        *argv: str,
        ranks: int = 1,
        cwd: str = "/",
        env: dict[bytes, bytes] | None = None,
    ) -> None:
        self.say(self.a_start(key, *argv, ranks=ranks, cwd=cwd, env=env))

    def a_start(
        self,
        key: AttemptKey,
        *argv: str,
        ranks: int = 1,
        cwd: str = "/",
        env: dict[bytes, bytes] | None = None,
    ) -> StartTasks:
        return StartTasks(
            key=key,
            incarnation=incarnation(self.snapshot.boot_id, self.snapshot.ledger_id),
            argv=tuple(map(os.fsencode, argv)),
            ranks=tuple(RankStart(rank, {b"RANK": b"%d" % rank, **(env or {})}) for rank in range(ranks)),
            cwd=cwd,
        )

    def records(self, key: AttemptKey, rank: int = 0) -> list[TaskRecord]:
        return [
            news.record
            for news in self.news
            if isinstance(news, TaskChanged) and (news.record.key, news.record.rank) == (key, rank)
        ]

    def wait_started(self, key: AttemptKey, rank: int = 0) -> TaskRecord:
        self.wait(lambda: self.records(key, rank))
        return self.records(key, rank)[0]

    def wait_end(self, key: AttemptKey, rank: int = 0) -> TaskRecord:
        self.wait(lambda: [record for record in self.records(key, rank) if record.ended_at is not None])
        return self.records(key, rank)[-1]

    def wait_refused(self, key: AttemptKey) -> StartRefused:
        self.wait(lambda: [news for news in self.news if isinstance(news, StartRefused) and news.key == key])
        return next(news for news in self.news if isinstance(news, StartRefused) and news.key == key)

    def spool(self, key: AttemptKey, suffix: str = "out", rank: int = 0) -> str:
        return (self.directory / "spool" / f"{self.records(key, rank)[-1].spool}.{suffix}").read_text()

    def wait_spool(self, key: AttemptKey, lines: int) -> list[str]:
        """Wait until a running task has written so many words."""
        self.wait_started(key)
        return wait_until(lambda: (found := self.spool(key).split()) and len(found) >= lines and found) or []

    def wait_hung_up(self) -> None:
        wait_until(lambda: self._channel.receive() is None)

    def close(self) -> None:
        self._channel.close()


class Keepers:
    """Starts keepers on one directory and ends what is left of them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700)
        self.directory = directory
        self.running: list[subprocess.Popen[bytes]] = []
        self.conversations: list[Conversation] = []

    def start(self, *arguments: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        words = [
            sys.executable,
            "-m",
            "mgpu_agent.keeper",
            "--dir",
            str(self.directory),
            "--idle",
            "0.2",
            *arguments,
        ]
        keeper = subprocess.Popen(words, pass_fds=pass_fds)
        self.running.append(keeper)
        return keeper

    def talk(self) -> Conversation:
        conversation = Conversation(self.directory)
        self.conversations.append(conversation)
        return conversation

    def close(self) -> None:
        for conversation in self.conversations:
            conversation.close()
        for keeper in self.running:
            if keeper.poll() is None:
                keeper.terminate()
            keeper.wait(60)


@pytest.fixture
def keepers(tmp_path: Path) -> Iterator[Keepers]:
    keepers = Keepers(tmp_path / "node")
    yield keepers
    keepers.close()


@pytest.fixture
def talk(keepers: Keepers) -> Conversation:
    keepers.start()
    return keepers.talk()


def a_key(number: int = 1, epoch: int = 5) -> AttemptKey:
    return AttemptKey(JobId(f"JOB{number:05d}"), 1, epoch)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
