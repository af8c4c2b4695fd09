"""The reaper: what a keeper leaves when it is killed ends without anybody's help, wherever it hides, and
nothing stays behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from mgpu_agent.keeper.messages import StopTasks
from mgpu_agent.keeper.trees import ProcessTable, Seen
from tests.agent.conftest import Node
from tests.agent.keepers import Conversation, Keepers, a_key, is_alive, keepers, talk
from tests.agent.master import SmallMaster, wait_until

pytestmark = pytest.mark.slow

__all__ = ("keepers", "talk")  # fixtures

SOON_S = 60.0  # the reaper waits one second between TERM and KILL; the rest is for a busy machine

HIDDEN = {
    "a plain child": "sleep 300 & echo $!; echo $$; wait",
    "a session of its own": "setsid sh -c 'echo $$; exec sleep 300' & echo $$; wait",
    "an orphan without environment and session": "(setsid env -i sh -c 'echo $$; exec sleep 300' &) ; echo "
    "$$; exec sleep 300",
    "deaf": "trap '' TERM HUP INT; setsid sh -c 'echo $$; while true; do sleep 1; done' & echo $$; while "
    "true; do sleep 1; done",
    "stopped": "sh -c 'echo $$; kill -STOP $$; sleep 300' & echo $$; wait",
}


def parent_of(pid: int) -> int:
    return psutil.Process(pid).ppid()


@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_killed_keeper_leaves_is_ended_with_no_agent_there(keepers: Keepers, name: str) -> None:
    reaper = keepers.start()
    talk = keepers.talk()
    talk.start(a_key(), "sh", "-c", HIDDEN[name])
    pids = [int(word) for word in talk.wait_spool(a_key(), 2)]
    alive_before = [is_alive(pid) for pid in pids]
    os.kill(talk.snapshot.pid, signal.SIGKILL)

    assert reaper.wait(SOON_S) == 128 + signal.SIGKILL
    assert (alive_before, [is_alive(pid) for pid in pids]) == ([True, True], [False, False])


def test_keeper_and_reaper_share_no_session_and_no_name(keepers: Keepers) -> None:
    reaper = keepers.start("--idle", "300")
    keeper = keepers.talk().snapshot.pid
    words = (
        wait_until(lambda: "mgpu_agent.reaper" in (found := psutil.Process(reaper.pid).cmdline()) and found)
        or []
    )

    assert (parent_of(keeper), os.getsid(keeper), os.getpgid(keeper)) == (reaper.pid, keeper, keeper)
    assert ("mgpu_agent.keeper" in words, "mgpu_agent.keeper" in psutil.Process(keeper).cmdline()) == (
        False,
        True,
    )
    os.killpg(keeper, signal.SIGKILL)
    assert reaper.wait(SOON_S) == 128 + signal.SIGKILL


def test_jobs_go_on_when_the_reaper_alone_is_killed(keepers: Keepers, tmp_path: Path) -> None:
    reaper = keepers.start()
    talk = keepers.talk()
    talk.start(a_key(), "sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 7")
    talk.wait_started(a_key())
    reaper.kill()
    reaper.wait(SOON_S)
    (tmp_path / "go").touch()

    assert talk.wait_end(a_key()).exit_code == 7
    talk.close()
    wait_until(lambda: not is_alive(talk.snapshot.pid))


def test_the_next_keeper_waits_until_all_that_the_last_one_left_is_gone(keepers: Keepers) -> None:
    keepers.start()
    first = keepers.talk()
    first.start(
        a_key(),
        "sh",
        "-c",
        HIDDEN["an orphan without environment and session"].replace("exec sleep", "trap '' TERM; sleep"),
    )
    pids = [int(word) for word in first.wait_spool(a_key(), 2)]
    os.kill(first.snapshot.pid, signal.SIGKILL)
    first.wait_hung_up()
    keepers.start("--lost-reason", "keeper lost")
    (lost,) = keepers.talk().snapshot.tasks

    assert (lost.reason, lost.lost, [is_alive(pid) for pid in pids]) == ("keeper lost", True, [False, False])


def test_agent_and_keeper_killed_together_leave_nothing_running(joined: SmallMaster, node: Node) -> None:
    """By the lease alone they would live for five minutes."""
    fenced = joined.launch("sh", "-c", HIDDEN["deaf"], lease_s=300.0, kill_grace_s=5.0)
    joined.wait(lambda: len(joined.text(fenced).split()) == 2)
    pids = [int(word) for word in joined.text(fenced).split()]
    (keeper,) = node.keepers()
    reaper = psutil.Process(keeper.ppid())
    node.process.kill()
    keeper.kill()
    node.process.wait(60)

    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: not reaper.is_running() or reaper.status() == psutil.STATUS_ZOMBIE)


def test_a_session_that_was_seen_gives_away_what_hides_in_it(talk: Conversation, tmp_path: Path) -> None:
    """The marked process of that session ends at the first TERM; what it leaves has neither parent, mark nor
    the job's own session.
    """
    (tmp_path / "hidden").write_text("trap : TERM; echo $$; while true; do sleep 0.1; done")
    (tmp_path / "marked").write_text(
        "trap 'exit 0' TERM; (env -i sh hidden &); while true; do sleep 0.1; done"
    )
    (tmp_path / "leader").write_text(
        "trap : TERM; setsid sh marked & echo $$; while true; do sleep 0.1; done"
    )
    talk.start(a_key(1), "sleep", "300")  # an adopted orphan could be this one's as well
    talk.start(a_key(2), "sh", "leader", cwd=str(tmp_path))
    pids = [int(word) for word in talk.wait_spool(a_key(2), 2)]
    talk.say(StopTasks(key=a_key(2), grace_s=0.5))
    talk.wait_end(a_key(2))

    assert [is_alive(pid) for pid in pids] == [False, False]
    assert is_alive(talk.wait_started(a_key(1)).pid)


def test_sessions_of_others_and_reused_numbers_say_nothing() -> None:
    ours = subprocess.Popen(["sleep", "60"], start_new_session=True)
    beside = subprocess.Popen(["sleep", "60"])
    try:
        table = ProcessTable.read()
        seen = Seen()
        seen.add([table.processes[beside.pid]])
        assert [process.pid for process in table.members(-1, b"none", seen, ())] == [
            beside.pid
        ]  # and nobody else of this session
        seen.add([table.processes[ours.pid]])
        assert (ours.pid, os.getuid()) in seen.sessions(table)
        seen.processes.clear()
        assert (ours.pid, os.getuid()) not in seen.sessions(table)
    finally:
        for process in (ours, beside):
            process.kill()
            process.wait(60)
