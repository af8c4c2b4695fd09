"""An agent that joins by a line: what it keeps, what it shows to nobody, whom it stays with, and what it
refuses to start on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from mgpu_agent.cli import without_line
from mgpu_agent.config import AgentConfig
from mgpu_agent.identity import Identity, SavedEnrolment
from mgpu_agent.link import KeyPair, Target
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.join import JoinString
from mgpu_agent.protocol.messages import Refuse
from mgpu_agent.whereabouts import Whereabouts, find_master
from tests.agent.conftest import Node
from tests.agent.master import SmallMaster, wait_until

pytestmark = pytest.mark.slow  # a whole node for each test


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[SmallMaster]:
    """A master whose runtime file is in another state directory, as on another machine."""
    state = tmp_path / "elsewhere"
    state.mkdir(mode=0o700)
    master = SmallMaster(state)
    yield master
    master.close()


def enrolment(node: Node) -> SavedEnrolment:
    return msgspec.json.decode((node.directory / "enrolment.json").read_bytes(), type=SavedEnrolment)


def test_a_line_enrols_once_is_shown_to_nobody_and_is_not_needed_again(
    elsewhere: SmallMaster, node: Node
) -> None:
    line = elsewhere.join_line(node_id="n1")
    process = node.start("--join", line)
    elsewhere.wait(lambda: elsewhere.hellos)

    kept = enrolment(node)
    assert line not in psutil.Process(process.pid).cmdline()
    assert (kept.is_joined, kept.addresses, kept.link_public_key) == (
        True,
        (kept.link_address,),
        elsewhere.public_key,
    )
    modes = {path.name: path.stat().st_mode & 0o777 for path in (node.directory / "keys").iterdir()}
    assert modes == {"node.json": 0o600, "jobs": 0o600}
    facts = elsewhere.hellos[0].facts
    assert (facts.address, facts.address_method) == ("127.0.0.1", "way-to-master")
    assert "found_by=way-to-master (its end of the way to the master)" in node.log.read_text()
    node.terminate()

    node.start()
    elsewhere.wait(lambda: len(elsewhere.hellos) == 2)
    assert elsewhere.order.count("Enrol") == 1


def test_each_address_is_tried_until_one_answers(elsewhere: SmallMaster, node: Node) -> None:
    node.start("--join", elsewhere.join_line("tcp://127.0.0.1:9"), "--host", "192.0.2.8")
    elsewhere.wait(lambda: elsewhere.hellos)

    facts = elsewhere.hellos[0].facts
    assert len(enrolment(node).addresses) == 2
    assert (facts.address, facts.address_method) == ("192.0.2.8", "given")


def test_a_revoked_agent_ends_its_jobs_and_says_why(elsewhere: SmallMaster, node: Node) -> None:
    process = node.start("--join", elsewhere.join_line())
    elsewhere.wait(lambda: elsewhere.hellos)
    task = elsewhere.wait_running(elsewhere.launch("sleep", "60"))

    elsewhere.say(Refuse(code="revoked", message="Node n1 is not part of this cluster any more."))

    wait_until(lambda: process.poll() is not None)
    wait_until(lambda: not psutil.pid_exists(task.pid))
    assert process.returncode == 1
    assert node.log.read_text().splitlines()[-1] == "Node n1 is not part of this cluster any more."


def test_a_line_that_is_refused_is_one_sentence_and_is_not_kept(elsewhere: SmallMaster, node: Node) -> None:
    elsewhere.allowed.clear()
    process = node.start("--join", elsewhere.join_line())
    elsewhere.wait(lambda: process.poll() is not None)

    said = node.log.read_text().splitlines()
    assert said[-1].startswith(
        "The master refused this join line: it was used already, has expired, or is not this master's;"
    )
    assert (process.returncode, {path.name for path in (node.directory / "keys").iterdir()}) == (
        1,
        {"node.json", "jobs"},
    )


def run_node(state: Path, *words: str, stdin: str = "") -> tuple[int, str]:
    command = [sys.executable, "-m", "mgpu_agent.cli", "--state-dir", str(state), "--fake-gpus", "1", *words]
    run = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    return run.returncode, run.stderr


def test_wrong_lines_get_one_sentence(elsewhere: SmallMaster, state: Path) -> None:
    line = elsewhere.join_line(node_id="n1")

    wrong = (1, "This join line is for n1, not for n2: use that --node-id.\n")
    assert run_node(state, "--node-id", "n2", "--join", line) == wrong
    assert run_node(state, "--node-id", "n2", "--join", "-", stdin=f"{line}\n") == wrong
    assert run_node(state, "--join", line[:-3])[1].startswith("This join line is damaged or cut short")
    assert not (state / "nodes").exists()


def test_a_line_for_an_agent_that_runs_already_is_not_used(
    joined: SmallMaster, node: Node, state: Path
) -> None:
    sentence = "The agent of node n1 is already running. Stop it first, then run the line again.\n"
    assert run_node(state, "--join", joined.join_line(node_id="n1")) == (1, sentence)


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (["--join", "X", "--fake-gpus", "2"], ["--fake-gpus", "2"]),
        (["--join=X", "--node-id", "n1", "--verbose"], ["--verbose"]),
        (["--rack", "r", "--node-id=n1", "--join", "X"], ["--rack", "r"]),
        (["--join", "--node-id"], []),
    ],
)
def test_the_line_leaves_the_command_line(words: list[str], plain: list[str]) -> None:
    assert without_line(words) == plain


# --- where the master is ------------------------------------------------------------------------------

JOIN = JoinString(("tcp://a:1", "tcp://b:1"), "s" * 40, "p" * 40, "x" * 40, 1.0)
JOINED_BEFORE = SavedEnrolment(
    link_address="tcp://b:1", link_public_key="s" * 40, addresses=("tcp://b:1",), is_joined=True
)


def config(state: Path, **changes: object) -> AgentConfig:
    return AgentConfig(**{"node_id": NodeId("n1"), "state": state, **changes})  # type: ignore[arg-type]


def test_a_line_goes_before_all_and_a_node_that_joined_stays_with_its_master(
    master: SmallMaster, state: Path
) -> None:
    """Although a master of the same user runs on this very machine."""
    by_line = Whereabouts(
        Target("tcp://a:1", "s" * 40),
        enrol_keys=KeyPair("p" * 40, "x" * 40),
        addresses=("tcp://a:1", "tcp://b:1"),
        is_joined=True,
    )
    as_before = Whereabouts(Target("tcp://b:1", "s" * 40), addresses=("tcp://b:1",), is_joined=True)

    assert find_master(config(state), JOINED_BEFORE, JOIN) == by_line
    assert [by_line.target_at(number).address for number in range(3)] == [
        "tcp://a:1",
        "tcp://b:1",
        "tcp://a:1",
    ]
    assert find_master(config(state), JOINED_BEFORE) == as_before
    assert find_master(config(state, master_host="far.example", master_port=8080), JOINED_BEFORE) == as_before
    named = find_master(config(state, master_port=master.port), JOINED_BEFORE)
    assert named is not None
    assert (named.target.server_key, named.is_joined) == (master.public_key, False)


# --- files that others can read ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mode", "fix"),
    [
        (".", 0o755, 700),
        ("nodes", 0o755, 700),
        ("nodes/n1", 0o750, 700),
        ("nodes/n1/keys", 0o711, 700),
        ("nodes/n1/spool", 0o755, 700),
        ("nodes/n1/keys/node.json", 0o644, 600),
        ("nodes/n1/enrolment.json", 0o640, 600),
        ("nodes/n1/ledger", 0o644, 600),
    ],
)
def test_an_agent_refuses_to_start_on_what_others_can_read(
    state: Path, name: str, mode: int, fix: int
) -> None:
    directory = state / "nodes" / "n1"
    (directory / "spool").mkdir(parents=True)
    Identity(directory).save(SavedEnrolment(link_address="tcp://127.0.0.1:9", link_public_key="s" * 40))
    (directory / "ledger").touch()
    for path in (state, *state.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    path = state if name == "." else state / name
    path.chmod(mode)

    code, said = run_node(state, "--node-id", "n1")

    assert (code, said.count("\n"), said.endswith(f"you alone: run  chmod {fix} {path}\n")) == (1, 1, True)


@pytest.mark.parametrize(
    ("name", "mode", "fix"), [(".", 0o755, 700), ("spool", 0o711, 700), ("ledger", 0o644, 600)]
)
def test_a_keeper_refuses_to_start_on_what_others_can_read(
    tmp_path: Path, name: str, mode: int, fix: int
) -> None:
    directory = tmp_path / "n1"
    (directory / "spool").mkdir(parents=True)
    (directory / "ledger").touch()
    for path in (directory, *directory.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
    path = directory if name == "." else directory / name
    path.chmod(mode)

    command = [sys.executable, "-m", "mgpu_agent.keeper", "--dir", str(directory)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (
        run.returncode,
        run.stderr.count("\n"),
        run.stderr.endswith(f"you alone: run  chmod {fix} {path}\n"),
    ) == (1, 1, True)
