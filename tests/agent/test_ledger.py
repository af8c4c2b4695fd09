"""The ledger remembers across restarts, tolerates a torn end, and says no to what must not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu_agent.keeper import ledger as ledger_module
from mgpu_agent.keeper.ledger import Ledger, stale
from mgpu_agent.keeper.messages import Hook, Hooks, StartRefused, TaskRecord
from mgpu_agent.keeper.recovery import end_lost_tasks
from mgpu_agent.protocol.failpoints import arm
from mgpu_agent.protocol.ids import AttemptKey, JobId

KEY = AttemptKey(JobId("AAAAAAAA"), 2, 10)
STARTED = TaskRecord(key=KEY, rank=0, cwd="/", pid=42, started_at=1.5)
ENDED = TaskRecord(
    key=KEY,
    rank=0,
    cwd="/",
    pid=42,
    started_at=1.5,
    ended_at=2.5,
    exit_code=3,
    reason="r",
    stdout_bytes=7,
    stderr_bytes=8,
)


def a_ledger(path: Path, boot_id: str = "boot") -> Ledger:
    return Ledger(path / "ledger", boot_id)


def reopened(ledger: Ledger, path: Path, boot_id: str = "boot") -> Ledger:
    ledger.flush()
    ledger.close()
    return a_ledger(path, boot_id)


def note_start(ledger: Ledger, key: AttemptKey = KEY) -> TaskRecord:
    ledger.note_meant(TaskRecord(key=key, rank=0, cwd="/"))
    return ledger.note_begun(key, 0, 42, 1.5, 100.0)


def note_end(ledger: Ledger, key: AttemptKey = KEY) -> TaskRecord:
    return ledger.note_ended(key, 0, ended_at=2.5, exit_code=3, signal=None, reason="r", sizes=(7, 8))


def test_what_was_noted_is_there_after_a_restart(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger_id = ledger.ledger_id
    assert note_start(ledger) == STARTED
    ledger = reopened(ledger, tmp_path)

    assert (ledger.ledger_id, ledger.known(KEY), ledger.unfinished(), ledger.boot_times) == (
        ledger_id,
        [STARTED],
        [STARTED],
        {(KEY, 0): 100.0},
    )
    assert note_end(ledger) == ENDED
    ledger = reopened(ledger, tmp_path)

    assert (ledger.known(KEY), ledger.unfinished(), ledger.boot_times) == ([ENDED], [], {})
    ledger.close()


class NoMachine:
    """Nothing runs, and every spool file has something in it."""

    def end_all(self, ledger: Ledger, lost: list[TaskRecord]) -> None:
        pass

    def sizes(self, stem: str) -> tuple[int, int]:
        return 78, 5


@pytest.mark.parametrize(("boot_id", "sizes"), [("boot", (78, 5)), ("next boot", (0, 0))])
def test_what_lies_in_a_spool_file_after_a_power_cut_may_be_a_later_jobs(
    tmp_path: Path, boot_id: str, sizes: tuple[int, int]
) -> None:
    """The ledger's last lines may be gone with the power: those that say that a file was given to somebody
    else.
    """
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    ledger = reopened(ledger, tmp_path, boot_id)

    end_lost_tasks(ledger, NoMachine(), "keeper lost")

    (record,) = ledger.known(KEY)
    assert (record.lost, record.stdout_bytes, record.stderr_bytes) == (True, *sizes)
    ledger.close()


def test_a_new_boot_is_seen(tmp_path: Path) -> None:
    ledger = reopened(a_ledger(tmp_path), tmp_path, "next boot")

    assert (ledger.last_boot_id, ledger.boot_id) == ("boot", "next boot")
    ledger.close()


@pytest.mark.parametrize("cut", [1, 5, 9, 20])
def test_a_torn_end_is_cut_off(tmp_path: Path, cut: int) -> None:
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    ledger.flush()
    note_end(ledger)
    ledger.flush()
    ledger.close()
    path = tmp_path / "ledger"
    path.write_bytes(path.read_bytes()[:-cut])
    ledger = a_ledger(tmp_path)

    assert ledger.known(KEY) == [STARTED]
    ledger.close()


@pytest.mark.parametrize("junk", [b"\0" * 64, b"\0\0\0\4\xff\xff\xff\xffabcd", b"\x7f\xff\xff\xff\0\0\0\0"])
def test_junk_at_the_end_is_ignored(tmp_path: Path, junk: bytes) -> None:
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    ledger.flush()
    ledger.close()
    with (tmp_path / "ledger").open("ab") as file:
        file.write(junk)
    ledger = a_ledger(tmp_path)

    assert ledger.known(KEY) == [STARTED]
    ledger.close()


def test_an_unreadable_ledger_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(b"nothing of ours")
    ledger = a_ledger(tmp_path)

    assert (len(ledger.ledger_id), ledger.tasks) == (16, {})
    ledger.close()


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_lower_epoch_is_stale(tmp_path: Path, is_forgotten: bool) -> None:
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    if is_forgotten:
        note_end(ledger)
        ledger.note_forgotten([KEY])
    ledger = reopened(ledger, tmp_path)
    older, newer = AttemptKey(KEY.job_id, 1, 9), AttemptKey(KEY.job_id, 3, 11)

    assert ledger.refusal(older) == stale(older, "A newer attempt of job AAAAAAAA is already known here.")
    assert ledger.refusal(newer) is None
    ledger.close()


def test_a_forgotten_attempt_never_starts_again(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    note_end(ledger)
    ledger.note_forgotten([KEY, AttemptKey(JobId("ZZZZZZZZ"), 1, 1)])
    ledger = reopened(ledger, tmp_path)

    assert (ledger.tasks, ledger.refusal(KEY)) == (
        {},
        stale(KEY, f"Attempt {KEY} ended here and was forgotten."),
    )
    ledger.close()


def test_what_runs_cannot_be_forgotten(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    ledger.note_forgotten([KEY])

    assert ledger.known(KEY) == [STARTED]
    ledger.close()


def test_a_tombstone_outlives_a_restart(tmp_path: Path) -> None:
    tombstone = StartRefused(
        key=KEY, code="stopped", message="It was stopped before it started.", fault="stale"
    )
    ledger = a_ledger(tmp_path)
    ledger.note_refused(tombstone)
    ledger = reopened(ledger, tmp_path)

    assert ledger.refusal(KEY) == tombstone
    ledger.close()


def test_it_is_compacted_when_it_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "COMPACT_AT_BYTES", 4096)
    monkeypatch.setattr(ledger_module, "GONE_LIMIT", 5)
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    sizes = []
    for number in range(300):
        key = AttemptKey(JobId(f"J{number:07d}"), 1, 100 + number)
        note_start(ledger, key)
        note_end(ledger, key)
        ledger.note_forgotten([key])
        assert ledger.flush()
        sizes.append((tmp_path / "ledger").stat().st_size)
    ledger_id = ledger.ledger_id
    ledger = reopened(ledger, tmp_path)

    assert max(sizes) < 8192
    assert (ledger.ledger_id, list(ledger.tasks.values()), ledger.boot_times) == (
        ledger_id,
        [STARTED],
        {(KEY, 0): 100.0},
    )
    last = AttemptKey(JobId("J0000299"), 1, 399)
    assert ledger.refusal(last) == stale(last, f"Attempt {last} ended here and was forgotten.")
    ledger.close()


def test_a_full_disk_leaves_no_half_of_a_note(tmp_path: Path) -> None:
    import resource
    import signal

    ledger = a_ledger(tmp_path)
    size = (tmp_path / "ledger").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
    try:
        note_start(ledger)
        took = ledger.flush()
        size_then = (tmp_path / "ledger").stat().st_size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert (took, size_then, ledger.flush()) == (False, size, True)
    ledger = reopened(ledger, tmp_path)
    assert ledger.known(KEY) == [STARTED]
    ledger.close()


def test_a_disk_that_has_no_room_for_a_shorter_ledger_keeps_the_old_one(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger_id = ledger.ledger_id
    note_start(ledger)
    ledger.flush()
    ledger.close()
    with (tmp_path / "ledger").open("ab") as file:
        file.write(b"torn")

    arm("keeper.compact.before=error")
    try:
        ledger = a_ledger(tmp_path, "next boot")
        assert (ledger.ledger_id, ledger.last_boot_id, ledger.known(KEY)) == (ledger_id, "boot", [STARTED])
    finally:
        arm(None)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
    note_end(ledger)
    ledger = reopened(ledger, tmp_path, "next boot")

    assert (ledger.last_boot_id, ledger.known(KEY)) == ("next boot", [ENDED])
    ledger.close()


def test_a_ledger_that_cannot_be_made_shorter_now_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "COMPACT_AT_BYTES", 200)
    ledger = a_ledger(tmp_path)
    arm("keeper.compact.before=error")
    try:
        for _ in range(20):
            note_start(ledger)
            assert ledger.flush()
    finally:
        arm(None)
    assert (tmp_path / "ledger").stat().st_size > 400
    ledger = reopened(ledger, tmp_path)
    assert ledger.known(KEY) == [STARTED]
    ledger.close()


def test_the_environment_for_hooks_is_sealed_in_the_file_and_there_after_a_restart(tmp_path: Path) -> None:
    hooks = Hooks((), (Hook("true"),), {b"HF_TOKEN": b"hf_planted_secret"}, "/")
    ledger = a_ledger(tmp_path)
    note_start(ledger)
    ledger.note_hooked(KEY, hooks)
    for _ in range(2):  # as it was written, and as it was written anew
        ledger = reopened(ledger, tmp_path)
        assert ledger.hooks == {KEY: hooks}
        assert b"hf_planted_secret" not in (tmp_path / "ledger").read_bytes()
    assert (tmp_path / "ledger.key").stat().st_mode & 0o777 == 0o600

    (tmp_path / "ledger.key").unlink()
    assert reopened(ledger, tmp_path).hooks == {KEY: Hooks((), (Hook("true"),), {}, "/")}


def test_a_line_that_an_earlier_keeper_wrote_is_read(tmp_path: Path) -> None:
    hooks = Hooks((), (Hook("true"),), {b"A": b"1"}, "/")
    ledger = a_ledger(tmp_path)
    ledger._buffer += ledger_module._frame(ledger_module._Hooked(KEY, hooks))
    assert reopened(ledger, tmp_path).hooks == {KEY: hooks}
    (tmp_path / "ledger.key").chmod(0o644)
    assert a_ledger(tmp_path).hooks == {KEY: Hooks((), (Hook("true"),), {}, "/")}
    again = a_ledger(tmp_path)
    again.note_hooked(KEY, hooks)
    assert reopened(again, tmp_path).hooks == {KEY: Hooks((), (Hook("true"),), {}, "/")}


def test_the_refusal_of_an_old_attempt_leaves_the_newer_one_the_newest(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    keys = [AttemptKey(KEY.job_id, attempt, epoch) for attempt, epoch in ((1, 5), (2, 7), (3, 10), (4, 11))]
    note_start(ledger, keys[2])
    ledger.note_refused(stale(keys[0], "Too late."))

    assert [ledger.refusal(key) is None for key in keys] == [False, False, True, True]
    note_end(ledger, keys[2])
    ledger.note_forgotten([keys[2]])
    assert [ledger.refusal(key) is None for key in keys] == [False, False, False, True]
