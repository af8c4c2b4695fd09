"""Hooks and ranks that go wrong, by a real keeper: what hangs is ended, what cannot start is said, and
nothing is left running.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.messages import Hook, RankStart, StartRefused
from mgpu_agent.run_as.account import Account
from tests.agent.keepers import Conversation, Keepers, a_key, is_alive, keepers, talk
from tests.agent.master import wait_until
from tests.e2e.people import open_directory

pytestmark = pytest.mark.slow

__all__ = ("keepers", "talk")  # fixtures

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can be another account")
ANN = Account("nobody", 65534, 65534, (65534,), "/nonexistent", "/bin/false")
OWN_AND_ANN = [None, pytest.param(ANN, marks=needs_root)]
TOO_LONG = "true " + "x" * 200_000
"""A command that no kernel takes as one argument."""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory in which every account may write."""
    with open_directory() as path:
        path.chmod(0o777)
        yield path


def hang(pid: Path) -> str:
    """Return a hook that says who it is and never ends by itself."""
    return f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 3600; true"


@pytest.mark.parametrize("account", OWN_AND_ANN)
@pytest.mark.parametrize(("is_sites", "fault"), [(True, "node"), (False, "prolog")])
def test_a_prolog_that_hangs_is_ended_at_its_limit_and_nothing_starts(
    talk: Conversation, shared: Path, account: Account | None, is_sites: bool, fault: str
) -> None:
    pid, ran = shared / "pid", shared / "ran"
    prolog = (Hook(hang(pid), site=is_sites, limit_s=0.5), Hook(f"touch {ran}", site=True))
    talk.say(replace(talk.a_start(a_key(), "touch", str(ran)), account=account, prolog=prolog))
    refused = talk.wait_refused(a_key())
    message = "Its prolog was not over within 0.5 s."
    assert refused == StartRefused(key=a_key(), code="prolog-failed", message=message, fault=fault)
    assert not is_alive(int(pid.read_text()))
    assert not ran.exists()


@pytest.mark.parametrize("account", OWN_AND_ANN)
def test_an_epilog_that_hangs_is_ended_at_its_limit_and_the_next_one_runs(
    talk: Conversation, shared: Path, account: Account | None
) -> None:
    pid = shared / "pid"
    epilog = (Hook(hang(pid), limit_s=0.5), Hook("sleep 0.3; echo tidied by $MGPU_HOOK"))
    talk.say(replace(talk.a_start(a_key(), "true"), account=account, epilog=epilog))
    record = talk.wait_end(a_key())
    assert (record.exit_code, record.signal) == (0, None)
    assert not is_alive(int(pid.read_text()))
    assert talk.spool(a_key()) == "tidied by epilog\n"


@pytest.mark.parametrize("account", OWN_AND_ANN)
@pytest.mark.parametrize(("is_sites", "fault"), [(True, "node"), (False, "prolog")])
def test_a_prolog_that_cannot_be_spawned_refuses_the_launch_and_says_why(
    talk: Conversation, tmp_path: Path, account: Account | None, is_sites: bool, fault: str
) -> None:
    ran = tmp_path / "ran"
    talk.say(
        replace(
            talk.a_start(a_key(), "touch", str(ran)), account=account, prolog=(Hook(TOO_LONG, site=is_sites),)
        )
    )
    refused = talk.wait_refused(a_key())
    told = refused.message.removeprefix("Its prolog could not be started: ")
    assert refused == StartRefused(
        key=a_key(), code="prolog-failed", message=f"Its prolog could not be started: {told}", fault=fault
    )
    assert "too long" in told.lower()
    assert not ran.exists()


@pytest.mark.parametrize("account", OWN_AND_ANN)
def test_after_an_epilog_that_cannot_be_spawned_the_next_one_runs_and_the_attempt_is_over(
    talk: Conversation, account: Account | None
) -> None:
    epilog = (Hook(TOO_LONG), Hook("echo $MGPU_STATE $MGPU_EXIT_CODE"))
    talk.say(replace(talk.a_start(a_key(), "true"), account=account, epilog=epilog))
    assert talk.wait_end(a_key()).exit_code == 0
    assert talk.spool(a_key()) == "completed 0\n"


@pytest.mark.parametrize("account", OWN_AND_ANN)
def test_ranks_that_run_are_ended_when_a_later_one_cannot_start(
    talk: Conversation, account: Account | None
) -> None:
    """The third rank finds no program; the fourth could, and must not run on either."""
    nowhere = {b"PATH": b"/nonexistent"}
    ranks = tuple(
        RankStart(rank, nowhere if rank == 2 else {b"PATH": os.environb[b"PATH"]}) for rank in range(4)
    )
    talk.say(replace(talk.a_start(a_key(), "sleep", "3600"), ranks=ranks, account=account))
    told = "sleep: command not found on this node."
    ends = [talk.wait_end(a_key(), rank) for rank in range(4)]
    assert [(end.exit_code, end.reason) for end in ends[2:3]] == [(127, told)]
    assert [(end.signal, end.exit_code, end.reason) for end in ends[:2]] == [(9, None, told)] * 2
    assert ends[3].reason == told
    pids = [end.pid for end in ends if end.pid]
    assert len(pids) >= 2
    wait_until(lambda: not any(map(is_alive, pids)))
    talk.start(a_key(2), "true")
    assert talk.wait_end(a_key(2)).exit_code == 0, "and the keeper goes on"


def test_of_a_lost_attempt_without_an_epilog_the_next_agent_hears_in_the_snapshot(keepers: Keepers) -> None:
    reaper = keepers.start()
    talk = keepers.talk()
    talk.say(replace(talk.a_start(a_key(), "sleep", "3600"), prolog=(Hook("true"),)))
    talk.wait_started(a_key())
    reaper.kill()
    os.kill(talk.snapshot.pid, signal.SIGKILL)
    talk.wait_hung_up()
    keepers.start()
    again = keepers.talk()
    assert [
        (record.key, record.lost, record.signal, record.ended_at is None) for record in again.snapshot.tasks
    ] == [(a_key(), True, 9, False)]
    assert again.news == []
