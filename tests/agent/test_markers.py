"""What a marker in an environment is worth: nothing, on a process of a user whom the job does not run as.
Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.gpu.sampler import is_ours
from mgpu_agent.keeper.messages import StopTasks
from mgpu_agent.keeper.trees import marker_value, read_marker
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.run_as.account import Account
from tests.agent.keepers import Conversation, a_key, is_alive, keepers, talk
from tests.agent.master import wait_until

__all__ = ("keepers", "talk")  # fixtures

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv (util-linux)"
)
ANN, BOB = Account("ann", 4711, 4711, (4711,)), Account("bob", 4712, 4712, (4712,))
AS_ANN = ("setpriv", "--reuid=4711", "--clear-groups", "--")


def start_as(talk: Conversation, account: Account, key: AttemptKey, text: str) -> None:
    talk.say(replace(talk.a_start(key, "sh", "-c", text), account=account))


def marker(talk: Conversation, key: AttemptKey) -> str:
    return marker_value(talk.snapshot.ledger_id, key, 0).decode()


@contextmanager
def started(*words: str, mark: str = "") -> Iterator[subprocess.Popen[str]]:
    env = {"PATH": os.environ["PATH"]} | ({"MGPU_TASK": mark} if mark else {})
    process = subprocess.Popen(words, env=env, start_new_session=True, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_of_another_user_with_a_jobs_marker_is_not_the_jobs(talk: Conversation) -> None:
    """Else bob could keep ann's job from being over, or take her signals."""
    ann, bob = a_key(1), a_key(2)
    start_as(talk, ANN, ann, "echo $$; exec sleep 300")
    start_as(talk, BOB, bob, f"MGPU_TASK={marker(talk, ann)} setsid sleep 300 & echo $!; echo $$; wait")
    of_ann = [int(word) for word in talk.wait_spool(ann, 1)]
    of_bob = [int(word) for word in talk.wait_spool(bob, 2)]
    wait_until(lambda: read_marker(of_bob[0]).decode() == marker(talk, ann))
    talk.say(StopTasks(key=ann, grace_s=0.0))
    talk.wait_end(ann)
    assert [is_alive(pid) for pid in (*of_ann, *of_bob)] == [False, True, True]
    talk.say(StopTasks(key=bob, grace_s=0.0))
    talk.wait_end(bob)
    assert [is_alive(pid) for pid in of_bob] == [False, False]


def test_nobody_hides_behind_the_marker_of_another(talk: Conversation) -> None:
    """An orphan of bob's that says it is ann's ends with bob's job, while hers goes on."""
    ann, bob = a_key(1), a_key(2)
    start_as(talk, ANN, ann, "echo $$; exec sleep 300")
    of_ann = [int(word) for word in talk.wait_spool(ann, 1)]
    hide = f"MGPU_TASK={marker(talk, ann)} setsid sh -c 'echo $$; exec sleep 300'"
    start_as(talk, BOB, bob, f"({hide} &); exec sleep 300")
    of_bob = [int(word) for word in talk.wait_spool(bob, 1)]
    os.kill(talk.wait_started(bob).pid, 9)
    talk.wait_end(bob)
    assert [is_alive(pid) for pid in (*of_ann, *of_bob)] == [True, False]


def test_a_session_that_somebody_else_made_is_not_the_jobs(talk: Conversation) -> None:
    """A process of ann's that an administrator started by `su`, with her job's marker, does not take the
    administrator's along.
    """
    ann = a_key(1)
    start_as(talk, ANN, ann, "exec sleep 300")
    talk.wait_started(ann)
    su = " ".join((*AS_ANN, "env", f"MGPU_TASK={marker(talk, ann)}", "sleep", "300"))
    with started("sh", "-c", f"sleep 300 & echo $!; {su} & echo $!; wait") as administrator:
        assert administrator.stdout is not None
        beside, hers = (int(administrator.stdout.readline()) for _ in range(2))
        wait_until(lambda: read_marker(hers).decode() == marker(talk, ann))
        talk.say(StopTasks(key=ann, grace_s=0.0))
        talk.wait_end(ann)
        wait_until(lambda: not is_alive(hers))
        assert [is_alive(pid) for pid in (administrator.pid, beside)] == [True, True]
        os.kill(beside, 9)


def test_a_process_on_a_gpu_is_not_of_a_job_because_it_says_so() -> None:
    mark = "ledger/JOB00001.1.5/0"
    a_sleep = ("sleep", "300")
    with (
        started(*AS_ANN, *a_sleep, mark=mark) as stranger,
        started(*AS_ANN, *a_sleep) as leader,
        started(*a_sleep, mark=mark) as agents,
    ):
        wait_until(
            lambda: all(
                Path(f"/proc/{one.pid}/comm").read_text() == "sleep\n" for one in (stranger, leader, agents)
            )
        )
        found = [is_ours(stranger.pid, b"ledger/", leaders) for leaders in ((), (agents.pid,), (leader.pid,))]
        assert found == [False, False, True]  # the last: its user has a job here
        assert is_ours(agents.pid, b"ledger/", ())
