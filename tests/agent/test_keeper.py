"""The keeper with real processes: codes and signals, whole trees, launches that come twice or too late."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from mgpu_agent.keeper.messages import (
    Discarded,
    ForgetTasks,
    Leave,
    RankStart,
    StartRefused,
    StartTasks,
    StopTasks,
)
from tests.agent.keepers import SHORT_S, Conversation, Keepers, a_key, is_alive, keepers, talk
from tests.agent.master import wait_until

__all__ = (
    "keepers",
    "talk",
)  # fixtures


@pytest.mark.parametrize(
    ("script", "exit_code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 255", 255, None),
        ("kill -9 $$", None, 9),
        ("kill -TERM $$", None, 15),
    ],
)
def test_exit_codes_and_signals(
    talk: Conversation, script: str, exit_code: int | None, number: int | None
) -> None:
    talk.start(a_key(), "sh", "-c", f"echo out; echo error >&2; {script}")
    record = talk.wait_end(a_key())

    assert (record.exit_code, record.signal, record.stdout_bytes, record.stderr_bytes) == (
        exit_code,
        number,
        4,
        6,
    )
    assert (talk.spool(a_key()), talk.spool(a_key(), "err")) == ("out\n", "error\n")
    assert record.ended_at is not None
    assert time.time() - 60 < record.started_at <= record.ended_at


def test_what_a_process_finds(talk: Conversation, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; e = os.environ; print(os.getcwd(), e['BASE'], e['RANK'], e['MGPU_TASK'], "
        "os.getsid(0) == os.getpid(),"
        " sys.stdin.read() == '', signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, "
        "signal.pthread_sigmask(signal.SIG_BLOCK, []) == set(),"
        " sorted(os.listdir('/proc/self/fd')))"
    )
    talk.start(a_key(), sys.executable, "-c", program, cwd=str(tmp_path))
    talk.wait_end(a_key())
    marker = f"{talk.snapshot.ledger_id}/{a_key()}/0"

    assert talk.spool(a_key()) == f"{tmp_path} base 0 {marker} True True True True ['0', '1', '2', '3']\n"


@pytest.mark.parametrize(
    ("program", "code", "exit_code"),
    [
        ("no-such-program", "not-found", 127),
        ("/no/such/program", "not-found", 127),
        ("./plain", "not-executable", 126),
        ("plain", "not-executable", 126),
        ("/tmp", "not-executable", 126),
        ("./orphan", "bad-interpreter", 126),
    ],
)
def test_what_cannot_run_is_answered_as_by_a_shell(
    talk: Conversation, tmp_path: Path, program: str, code: str, exit_code: int
) -> None:
    (tmp_path / "plain").write_text("text")
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "orphan").chmod(0o755)
    talk.start(a_key(), program, cwd=str(tmp_path), env={b"PATH": b"/bin:" + os.fsencode(tmp_path)})
    refusal = talk.wait_refused(a_key())

    assert (refusal.code, refusal.exit_code, refusal.fault) == (code, exit_code, "request")
    talk.news.clear()
    talk.start(a_key(), program, cwd=str(tmp_path))
    assert talk.wait_refused(a_key()) == refusal


def test_the_jobs_own_path_counts(talk: Conversation, tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("echo from here\n")  # no #! line: a shell runs it all the same
    program.chmod(0o755)
    talk.start(a_key(), "mine", env={b"PATH": b"/bin:" + os.fsencode(tmp_path)})
    talk.wait_end(a_key())

    assert talk.spool(a_key()) == "from here\n"


def test_a_repeated_launch_starts_nothing(talk: Conversation, tmp_path: Path) -> None:
    start = talk.a_start(a_key(), "sh", "-c", f"echo x >> {tmp_path}/starts; exec sleep 60")
    talk.say(start, start)
    first = talk.wait_started(a_key())
    talk.news.clear()
    talk.say(start)
    again = talk.wait_started(a_key())
    talk.say(StopTasks(key=a_key(), grace_s=5.0))
    talk.wait_end(a_key())
    talk.say(start)
    ended = talk.wait_end(a_key())

    assert (again, ended.signal, (tmp_path / "starts").read_text()) == (first, signal.SIGTERM, "x\n")


def test_late_and_foreign_launches_are_stale(talk: Conversation) -> None:
    talk.start(a_key(1, epoch=7), "true")
    talk.wait_end(a_key(1, epoch=7))
    talk.start(a_key(1, epoch=6), "true")
    foreign = StartTasks(
        key=a_key(2), incarnation="other/ledger", argv=(b"true",), ranks=(RankStart(0, {}),), cwd="/"
    )
    talk.say(foreign, StopTasks(key=a_key(3), grace_s=1.0))
    talk.start(a_key(3), "true")
    talk.say(ForgetTasks(keys=(a_key(1, epoch=7),)))
    talk.start(a_key(1, epoch=7), "true")
    talk.wait_refused(a_key(1, epoch=7))

    refusals = sorted(
        (news.key, news.code, news.fault) for news in talk.news if isinstance(news, StartRefused)
    )
    assert refusals == [
        (a_key(1, epoch=6), "stale", "stale"),
        (a_key(1, epoch=7), "stale", "stale"),
        (a_key(2), "stale", "stale"),
        (a_key(3), "stopped", "stale"),
        (a_key(3), "stopped", "stale"),
    ]


def test_two_attempts_of_one_job_never_overlap(talk: Conversation) -> None:
    talk.start(a_key(1, epoch=5), "sleep", "60")
    talk.wait_started(a_key(1, epoch=5))
    talk.start(a_key(1, epoch=6), "true")

    assert talk.wait_refused(a_key(1, epoch=6)).code == "attempt-alive"


TREES = {
    "a child in the background": ("sleep 300 & echo $!; echo $$; wait", 2),
    "a child in a session of its own": ("setsid sh -c 'echo $$; exec sleep 300' & echo $$; wait", 2),
    "a double fork": ("sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 300\" &'; echo $$; exec sleep 300", 2),
    "one that wiped its environment": (
        "env -i sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 300\" & wait' & echo $$; wait",
        2,
    ),
    "all ignore TERM": (
        "trap '' TERM; setsid sh -c 'echo $$; sleep 300; sleep 300' & echo $$; while true; do sleep 1; done",
        2,
    ),
    "stopped": ("sh -c 'echo $$; kill -STOP $$; sleep 300' & echo $$; wait", 2),
}


@pytest.mark.parametrize("name", TREES)
def test_stop_ends_the_whole_tree(talk: Conversation, name: str) -> None:
    script, processes = TREES[name]
    talk.start(a_key(), "sh", "-c", script)
    pids = [int(word) for word in talk.wait_spool(a_key(), processes)]
    talk.wait_started(a_key())
    alive_before = [is_alive(pid) for pid in pids]
    talk.say(StopTasks(key=a_key(), grace_s=SHORT_S, reason="cancelled"))
    record = talk.wait_end(a_key())

    assert (alive_before, [is_alive(pid) for pid in pids], record.reason) == (
        [True] * processes,
        [False] * processes,
        "cancelled",
    )


@pytest.mark.parametrize(
    "script",
    [
        "sleep 300 & echo $!; exit 4",
        "setsid sh -c 'echo $$; exec sleep 300' & $UNTIL_HEARD; exit 4",
        "trap '' TERM; sh -c 'echo $$; while true; do sleep 1; done' & $UNTIL_HEARD; exit 4",
        "setsid env -i sh -c 'echo $$; exec sleep 300' & $UNTIL_HEARD; exit 4",
    ],
)
def test_a_leader_that_ends_takes_its_leftovers_along(talk: Conversation, script: str) -> None:
    talk.start(
        a_key(), "sh", "-c", script.replace("$UNTIL_HEARD", "until [ -s /proc/$$/fd/1 ]; do sleep 0.01; done")
    )
    (pid,) = (int(word) for word in talk.wait_spool(a_key(), 1))
    record = talk.wait_end(a_key())

    assert (record.exit_code, record.reason, is_alive(pid)) == (4, "", False)


def test_leftovers_of_one_job_spare_the_other(talk: Conversation) -> None:
    talk.start(a_key(1), "sh", "-c", "setsid sh -c 'echo $$; exec sleep 300' & echo $$; exec sleep 300")
    pids = [int(word) for word in talk.wait_spool(a_key(1), 2)]
    talk.start(a_key(2), "sh", "-c", "sleep 300 & exit 0")
    talk.wait_end(a_key(2))

    assert [is_alive(pid) for pid in pids] == [True, True]


def test_ranks_are_told_apart(talk: Conversation) -> None:
    talk.start(a_key(), "sh", "-c", "echo rank $RANK; exit $RANK", ranks=3)
    codes = [talk.wait_end(a_key(), rank).exit_code for rank in range(3)]

    assert (codes, [talk.spool(a_key(), rank=rank) for rank in range(3)]) == (
        [0, 1, 2],
        ["rank 0\n", "rank 1\n", "rank 2\n"],
    )


def test_jobs_outlive_the_agent_and_the_next_one_hears_of_them(keepers: Keepers, tmp_path: Path) -> None:
    keepers.start()
    first = keepers.talk()
    first.start(a_key(1), "sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo done; exit 7")
    first.start(a_key(2), "sh", "-c", "exit 1")
    running = first.wait_started(a_key(1))
    ended = first.wait_end(a_key(2))
    first.close()
    keepers.conversations.remove(first)
    second = keepers.talk()
    (tmp_path / "go").touch()

    assert (second.snapshot.pid, second.snapshot.tasks) == (first.snapshot.pid, (running, ended))
    assert (second.wait_end(a_key(1)).exit_code, second.spool(a_key(1))) == (7, "done\n")


def test_a_killed_keeper_leaves_nothing_running(keepers: Keepers) -> None:
    reaper = keepers.start()
    talk = keepers.talk()
    talk.start(
        a_key(1),
        "sh",
        "-c",
        "setsid sh -c 'echo $$; exec sleep 300' & echo $$; trap '' TERM; while true; do sleep 1; done",
    )
    pids = [int(word) for word in talk.wait_spool(a_key(1), 2)]
    talk.start(a_key(2), "sh", "-c", "exit 5")
    ended = talk.wait_end(a_key(2))
    reaper.kill()
    os.kill(talk.snapshot.pid, signal.SIGKILL)
    talk.wait_hung_up()
    keepers.start("--lost-reason", "keeper lost")
    snapshot = keepers.talk().snapshot
    lost, kept = snapshot.tasks

    assert [is_alive(pid) for pid in pids] == [False, False]
    assert (lost.key, lost.exit_code, lost.signal, lost.reason, lost.lost) == (
        a_key(1),
        None,
        9,
        "keeper lost",
        True,
    )
    assert (kept, snapshot.ledger_id) == (ended, talk.snapshot.ledger_id)


def test_an_idle_keeper_ends_by_itself(keepers: Keepers) -> None:
    alone = keepers.start()
    keepers.talk().close()

    assert alone.wait(60) == 0


def test_a_keeper_ends_at_once_when_told(keepers: Keepers) -> None:
    keeper = keepers.start("--idle", "300")
    talk = keepers.talk()
    talk.start(a_key(), "sleep", "60")
    talk.wait_started(a_key())
    talk.say(StopTasks(key=a_key(), grace_s=5.0), Leave())

    assert keeper.wait(60) == 0


def test_empty_spool_files_are_used_again(talk: Conversation) -> None:
    """Only by a task that comes after a silent one that is forgotten: never after one that wrote, was stopped
    or left a process.
    """
    silent, loud, messy, later = (a_key(number) for number in range(1, 5))
    talk.start(silent, "true")
    talk.start(loud, "echo", "x")
    talk.start(messy, "sh", "-c", "sleep 300 & exit 0")
    stems = {key: talk.wait_end(key).spool for key in (silent, loud, messy)}
    talk.start(later, "true")
    unforgotten = talk.wait_end(later).spool
    talk.say(ForgetTasks(keys=(silent, loud, messy)))
    talk.start(a_key(5), "echo", "next")
    talk.start(a_key(6), "true")
    again = [talk.wait_end(key).spool for key in (a_key(5), a_key(6))]
    discarded = [news.stems for news in talk.news if isinstance(news, Discarded)]

    assert len({*stems.values(), unforgotten}) == 4
    assert (again[0], again[1] in stems.values(), discarded) == (
        stems[silent],
        False,
        [(stems[loud], stems[messy])],
    )
    assert talk.spool(a_key(5)) == "next\n"


def test_one_keeper_per_directory(
    keepers: Keepers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mgpu_agent.keeper import host
    from mgpu_agent.keeper import keeper as module

    keepers.start()
    talk = keepers.talk()
    monkeypatch.setattr(host, "LOCK_WAIT_S", 0.1)
    code = module.keep(keepers.directory, "boot", 0.1, "lost")

    assert (code, capsys.readouterr().err) == (1, f"Another keeper looks after {keepers.directory}.\n")
    talk.close()


def test_a_disk_has_room_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu_agent.keeper import host

    assert (host.has_room(tmp_path), host.has_room(tmp_path / "missing")) == (True, True)
    monkeypatch.setattr(host, "LEAST_ROOM_BYTES", 2**80)
    assert host.has_room(tmp_path) is False


def test_a_stopped_keeper_takes_its_jobs_along(keepers: Keepers) -> None:
    keeper = keepers.start()
    talk = keepers.talk()
    talk.start(a_key(), "sleep", "300")
    pid = talk.wait_started(a_key()).pid
    keeper.terminate()
    record = talk.wait_end(a_key())

    assert (record.signal, record.reason, record.lost, is_alive(pid)) == (
        15,
        "The keeper was stopped.",
        True,
        False,
    )


def test_a_long_path_is_no_trouble(tmp_path: Path) -> None:
    from mgpu_agent.process.keeper_client import KeeperClient

    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True, mode=0o700)
    client = KeeperClient(directory, {}, idle_s=0.1)
    snapshot = client.attach("lost")
    client.put(Leave())
    client.flush()
    client.detach()
    wait_until(lambda: client.reap() or not is_alive(snapshot.pid))
