"""What root does for a user, by a real keeper and real processes: one test for each promise of
`mgpu_agent.run_as`. Needs root.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.messages import Attach, Hook, StopTasks
from mgpu_agent.protocol.messages import Input
from mgpu_agent.run_as.account import Account, Confinement, login_environment
from mgpu_agent.run_as.cgroups import Cgroups, Share, _bind, why_none
from tests.agent.keepers import Conversation, Keepers, a_key, keepers, talk
from tests.agent.master import wait_until
from tests.e2e.people import open_directory

__all__ = (
    "keepers",
    "talk",
)  # fixtures


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can be another account")
ANN = Account("nobody", 65534, 65534, (65534, 54321), "/nonexistent", "/bin/false")
BOB = Account("bob", 64001, 64001, (64001,), "/", "/bin/sh")


def run(talk: Conversation, *argv: str, account: Account = ANN, number: int = 1, **more: object) -> str:
    """Run a program as an account and return what it said."""
    talk.say(replace(talk.a_start(a_key(number), *argv), account=account, **more))
    record = talk.wait_end(a_key(number))
    assert record.exit_code == 0, (record, talk.spool(a_key(number), "err"))
    return talk.spool(a_key(number))


def helpers_of(talk: Conversation, account: Account) -> list[psutil.Process]:
    """Return the helpers of an account below this keeper."""
    found = psutil.Process(talk.snapshot.pid).children()
    return [one for one in found if "mgpu_helper" in one.cmdline() and one.uids().real == account.uid]


def helper_of(talk: Conversation, account: Account = ANN) -> psutil.Process:
    return wait_until(lambda: helpers_of(talk, account))[0]


# --- each promise --------------------------------------------------------------------------------


@needs_root
def test_ids_groups_capabilities_and_signals_are_those_of_the_account_alone(talk: Conversation) -> None:
    fields = dict(
        line.split(":", 1) for line in run(talk, "cat", "/proc/self/status").splitlines() if ":" in line
    )
    assert (fields["Uid"].split(), fields["Gid"].split()) == (["65534"] * 4, ["65534"] * 4)
    assert sorted(fields["Groups"].split()) == ["54321", "65534"]
    assert {fields[name].strip() for name in ("CapPrm", "CapEff", "CapAmb", "SigBlk")} == {"0" * 16}
    assert not int(fields["SigIgn"], 16) & 0x7FFFFFFF  # the two above are the C library's own
    assert fields["NoNewPrivs"].strip() == "0"


@needs_root
def test_no_descriptor_of_whoever_started_the_keeper_reaches_a_process(
    keepers: Keepers, tmp_path: Path
) -> None:
    """Finding 5: a descriptor 9 on /etc/shadow was read by jobs."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    keepers.start(pass_fds=(descriptor,))
    try:
        talk = keepers.talk()
        for account, number in ((ANN, 1), (None, 2)):
            talk.say(replace(talk.a_start(a_key(number), "ls", "-l", "/proc/self/fd"), account=account))
            talk.wait_end(a_key(number))
            assert "secret" not in talk.spool(a_key(number))
            assert talk.spool(a_key(number)).count(" -> ") == 4  # its own three, and the list itself
        opened = [
            os.readlink(f"/proc/{talk.snapshot.pid}/fd/{name}")
            for name in os.listdir(f"/proc/{talk.snapshot.pid}/fd")
        ]
        assert str(secret) not in opened
    finally:
        os.close(descriptor)


@needs_root
def test_a_process_finds_its_umask_no_core_files_and_the_limits_that_were_set(talk: Conversation) -> None:
    limits = Confinement(limits=(("nofile", 300, 400), ("nproc", 77, 77)))
    talk.say(Attach(environment={b"PATH": b"/usr/bin:/bin"}, confinement=limits))
    said = run(talk, "sh", "-c", "umask; ulimit -S -c; ulimit -S -n; ulimit -H -n; pwd; id -u")
    assert said.split() == ["0022", "0", "300", "400", "/", "65534"]


@needs_root
def test_no_new_privileges_by_setting_and_not_where_a_container_is_started(talk: Conversation) -> None:
    talk.say(Attach(environment={b"PATH": b"/usr/bin:/bin"}, confinement=Confinement(no_new_privs=True)))
    line = ("grep", "NoNewPrivs", "/proc/self/status")
    assert run(talk, *line).split()[1] == "1"
    assert run(talk, *line, number=2, may_gain=True).split()[1] == "0"
    assert len(helpers_of(talk, ANN)) == 2


def test_of_roots_environment_only_what_is_named_reaches_jobs() -> None:
    """Finding 12: an allow-list, so that a new secret of root's is none of theirs."""
    base = {
        b"PATH": b"/bin",
        b"HOME": b"/home/agent",
        b"AWS_SECRET_ACCESS_KEY": b"x",
        b"XDG_RUNTIME_DIR": b"/run/user/0",
        b"LC_ALL": b"C",
    }
    base |= {
        b"LD_PRELOAD": b"/x.so",
        b"PYTHONPATH": b"/lib",
        b"SSH_AUTH_SOCK": b"/x",
        b"NCCL_DEBUG": b"INFO",
        b"https_proxy": b"p",
    }
    assert login_environment(ANN, base) == {
        b"PATH": b"/bin",
        b"LC_ALL": b"C",
        b"NCCL_DEBUG": b"INFO",
        b"https_proxy": b"p",
        b"HOME": b"/nonexistent",
        b"USER": b"nobody",
        b"LOGNAME": b"nobody",
        b"SHELL": b"/bin/false",
    }
    assert login_environment(ANN, {})[b"PATH"].startswith(b"/usr/local/sbin:")


@needs_root
def test_output_files_are_the_accounts_own_and_its_input_and_terminal_work(talk: Conversation) -> None:
    run(talk, "sh", "-c", "echo out; echo err >&2")
    stem = talk.directory / "spool" / talk.records(a_key())[-1].spool
    for end, text in (("out", "out\n"), ("err", "err\n")):
        info = Path(f"{stem}.{end}").stat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode), Path(f"{stem}.{end}").read_text()) == (
            ANN.uid,
            0o600,
            text,
        )
    for number, more in ((2, {"stdin": True}), (3, {"pty": True})):
        talk.say(
            replace(
                talk.a_start(a_key(number), "sh", "-c", "read x; echo got $x; tty; stat -Lc %u /dev/stdin"),
                account=ANN,
                **more,
            )
        )
        talk.wait_started(a_key(number))
        talk.say(Input(key=a_key(number), rank=0, writer="w", offset=0, data=b"this\n"))
        talk.wait_end(a_key(number))
    assert talk.spool(a_key(2)).split("\n")[0] == "got this"
    lines = talk.spool(a_key(3)).replace("\r", "").split("\n")
    assert (lines[1], lines[2].startswith("/dev/pts/"), lines[3]) == ("got this", True, str(ANN.uid))


@needs_root
def test_what_the_account_cannot_run_or_enter_is_not_done_by_root_instead(
    talk: Conversation, tmp_path: Path
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nid -u\n")
    tool.chmod(0o700)
    refusals = {}
    for number, (argv, cwd) in enumerate(
        (((str(tool),), "/"), (("pwd",), str(tmp_path)), (("no-such-program",), "/")), 1
    ):
        talk.say(replace(talk.a_start(a_key(number), *argv, cwd=cwd), account=ANN))
        refused = talk.wait_refused(a_key(number))
        refusals[refused.code] = (refused.fault, refused.exit_code)
    assert refusals == {
        "not-executable": ("request", 126),
        "no-directory": ("job", None),
        "not-found": ("request", 127),
    }


@needs_root
def test_processes_of_the_same_account_cannot_look_into_its_helper(talk: Conversation) -> None:
    """Who could would have its socket, and with it could tell lies about other jobs of the account."""
    talk.say(replace(talk.a_start(a_key(1), "sleep", "60"), account=ANN))
    talk.wait_started(a_key(1))
    pid = helper_of(talk).pid
    try_all = f"cat /proc/{pid}/$f >/dev/null 2>&1 && echo $f; ls /proc/{pid}/$f/ >/dev/null 2>&1 && echo $f/"
    look = f"for f in environ mem maps fd/0 fd root cwd; do {try_all}; done; true"
    assert run(talk, "sh", "-c", look, number=2) == ""


def test_a_machine_with_one_tree_of_control_groups_is_written_to_as_its_kernel_documents(
    tmp_path: Path,
) -> None:
    """Here in plain files: what each of them gets."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "cgroup.procs").touch()
    groups = Cgroups("x", tmp_path, "0::/system\n")
    assert groups.problem() == ""
    place = tmp_path / "mgpu-x"
    assert {(one / "cgroup.subtree_control").read_text() for one in (tmp_path, place)} == {"+cpu +memory"}
    names = {
        "cpu.max": "200000 100000",
        "memory.max": "4096",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cgroup.procs": "",
    }
    (place / "a").mkdir()
    for name in names:
        (place / "a" / name).touch()
    _bind(place / "a", Share(2, 4096))
    assert {name: (place / "a" / name).read_text() for name in names} == names
    for descriptor in groups.enter("a", Share(2, 4096)):
        os.close(descriptor)
    assert (
        Cgroups("x", tmp_path / "none", "0::/\n").problem()
        == "the system has no control groups for memory or processors"
    )


@needs_root
def test_jobs_get_no_more_than_they_asked_for_where_that_is_wanted(talk: Conversation) -> None:
    if problem := why_none():
        pytest.skip(f"needs control groups that root can make: {problem}")
    assert not list(Path("/sys/fs/cgroup").glob(f"**/mgpu-trial-{os.getpid()}"))
    talk.say(Attach(environment={b"PATH": b"/usr/bin:/bin"}, confinement=Confinement(cgroups=True)))
    share = Share(cpus=2, mem_bytes=64 * 2**20)
    said = run(talk, "cat", "/proc/self/cgroup", share=share)
    assert f"/mgpu-{talk.snapshot.ledger_id}/{a_key()}" in said
    hungry = "x = bytearray(300 * 2**20); print(len(x))"
    talk.say(
        replace(
            talk.a_start(a_key(2), sys.executable, "-c", hungry),
            account=Account("root", 0, 0, (0,)),
            share=share,
        )
    )
    assert talk.wait_end(a_key(2)).signal == signal.SIGKILL
    assert "/mgpu-" not in run(
        talk, "cat", "/proc/self/cgroup", number=3
    )  # who asked for nothing is not bound
    assert f"/mgpu-{talk.snapshot.ledger_id}/" not in Path(f"/proc/{helper_of(talk).pid}/cgroup").read_text()
    wait_until(lambda: not list(Path("/sys/fs/cgroup").glob(f"**/mgpu-{talk.snapshot.ledger_id}/JOB*")))


# --- one user's doing ----------------------------------------------------------------------------


@needs_root
def test_a_helper_that_its_user_kills_costs_no_process_its_end(talk: Conversation) -> None:
    with open_directory() as place:
        go = place / "go"
        talk.say(
            replace(
                talk.a_start(a_key(1), "sh", "-c", f"until test -e {go}; do sleep 0.05; done; exit 7"),
                account=ANN,
            )
        )
        started = talk.wait_started(a_key(1))
        helper = helper_of(talk)
        helper.kill()
        wait_until(lambda: psutil.Process(started.pid).ppid() == talk.snapshot.pid)
        go.touch()
        assert talk.wait_end(a_key(1)).exit_code == 7
    assert run(talk, "id", "-u", number=2) == "65534\n"
    assert helper_of(talk).pid != helper.pid


@pytest.mark.slow
@needs_root
def test_a_helper_that_its_user_stops_delays_only_that_user(talk: Conversation) -> None:
    """Were processes started by the keeper itself, a user who stops each child before its exec would stop the
    whole node.
    """
    talk.say(replace(talk.a_start(a_key(1), "sleep", "60"), account=ANN))
    talk.wait_started(a_key(1))
    helper_of(talk).suspend()
    talk.say(replace(talk.a_start(a_key(2), "id", "-u"), account=ANN))
    assert run(talk, "id", "-u", account=BOB, number=3) == f"{BOB.uid}\n"
    assert not talk.records(a_key(2))
    talk.say(StopTasks(key=a_key(1), grace_s=0.0))
    assert talk.wait_end(a_key(1)).signal == signal.SIGKILL
    refused = talk.wait_refused(a_key(2))
    assert (refused.code, refused.fault) == ("no-helper", "job")
    assert refused.message == (
        "The helper of nobody on this node did not answer in time: end what stops or blocks processes of "
        "this user there."
    )
    assert not talk.records(a_key(2))


@needs_root
def test_a_launch_that_is_stopped_before_its_helper_answers_never_starts(talk: Conversation) -> None:
    talk.say(replace(talk.a_start(a_key(1), "sleep", "60"), account=ANN))
    talk.wait_started(a_key(1))
    helper = helper_of(talk)
    helper.suspend()
    talk.say(replace(talk.a_start(a_key(2), "id", "-u"), account=ANN), StopTasks(key=a_key(2), grace_s=0.0))
    run(talk, "true", account=BOB, number=3)  # what came before it was asked for by now
    helper.kill()
    refused = talk.wait_refused(a_key(2))
    assert (refused.code, refused.fault) == ("stopped", "stale")
    assert not talk.records(a_key(2))


@needs_root
def test_helpers_end_with_their_keeper(keepers: Keepers) -> None:
    keepers.start()
    talk = keepers.talk()
    run(talk, "true")
    helper = helper_of(talk)
    talk.close()
    wait_until(lambda: not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE)


# --- hooks ---------------------------------------------------------------------------------------

TRICK = {
    b"PATH": b"/nonexistent",
    b"LD_PRELOAD": b"/no/such.so",
    b"BASH_ENV": b"/no",
    b"IFS": b"x",
    b"ENV": b"/no",
    b"PYTHONPATH": b"/no",
}


@needs_root
def test_hooks_of_the_site_find_nothing_that_the_jobs_user_chose(talk: Conversation, tmp_path: Path) -> None:
    """Finding 1: with PATH or LD_PRELOAD of a job the site's prolog ran programs of the user's as root."""
    seen = tmp_path / "seen"
    site = Hook(f"env > {seen}; pwd >> {seen}; id -u >> {seen}", site=True)
    own = Hook("/usr/bin/id -u; echo $TRICK", site=False)
    start = talk.a_start(a_key(), "true", cwd="/tmp", env={**TRICK, b"TRICK": b"mine", b"MGPU_USER": b"root"})
    start = replace(
        start,
        argv=(b"/bin/true",),
        account=ANN,
        prolog=(site, own),
        epilog=(site,),
        facts={b"MGPU_USER": b"ann"},
    )
    talk.say(start)
    assert talk.wait_end(a_key()).exit_code == 0
    lines = seen.read_text().splitlines()
    assert lines[-2:] == ["/", "0"]
    names = {line.partition("=")[0] for line in lines[:-2]} - {"PWD", "_", "SHLVL", "OLDPWD"}
    assert names == {"PATH", "BASE", "MGPU_USER", "MGPU_HOOK", "MGPU_STATE", "MGPU_EXIT_CODE", "MGPU_TASK"}
    assert "MGPU_USER=ann" in lines
    assert talk.spool(a_key()).split() == ["65534", "mine"]


@needs_root
def test_an_attempt_is_over_only_when_all_of_it_began_and_ended_and_its_epilog_ran_once(
    talk: Conversation, tmp_path: Path
) -> None:
    """Ranks that a helper starts may be over before the next one is."""
    note = tmp_path / "note"
    epilog = Hook(f"echo $MGPU_STATE $MGPU_EXIT_CODE >> {note}", site=True)
    start = replace(talk.a_start(a_key(), "true", ranks=20), account=ANN, epilog=(epilog,))
    talk.say(start)
    assert [talk.wait_end(a_key(), rank).exit_code for rank in range(20)] == [0] * 20
    assert note.read_text() == "completed 0\n"
