"""An agent that is killed is there again at once: the keeper's parent starts another one, which gives way to
who starts the node by hand.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from mgpu_agent.protocol.failpoints import VARIABLE
from tests.agent.conftest import Node
from tests.agent.master import SmallMaster, wait_until

pytestmark = pytest.mark.slow  # a whole node for each test


def again(node: Node, *, instead_of: int = 0) -> psutil.Process:
    """Return the agent that was started in place of a killed one."""
    (agent,) = wait_until(lambda: [one for one in node.started_again() if one.pid != instead_of])  # type: ignore[misc]
    return agent


def test_a_killed_agent_is_started_again_and_its_job_goes_on(
    master: SmallMaster, node: Node, tmp_path: Path
) -> None:
    node.start(restart=True)
    master.wait(lambda: master.hellos)
    job = master.launch("sh", "-c", f"echo on; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 7")
    master.wait(lambda: master.text(job) == "on\n")
    for _ in range(2):
        hellos, killed = (
            len(master.hellos),
            ([one.pid for one in node.started_again()] or [node.process.pid])[0],
        )
        os.kill(killed, signal.SIGKILL)
        master.wait(lambda before=hellos: len(master.hellos) > before)  # type: ignore[misc]
        assert [status.key for status in master.hellos[-1].tasks] == [job]
        assert again(node, instead_of=killed).pid != killed
    (tmp_path / "go").touch()

    assert master.wait_end(job).exit_code == 7
    assert (node.directory / "agent.log").read_text().count("started again") == 2


def test_an_agent_that_is_killed_before_it_met_the_keeper_is_started_again(
    master: SmallMaster, node: Node
) -> None:
    node.start(restart=True)
    master.wait(lambda: master.hellos)
    node.kill()
    first = again(node)
    first.kill()

    assert again(node, instead_of=first.pid).pid != first.pid
    master.wait(lambda: len(master.hellos) > 1)


def test_an_agent_that_is_killed_while_its_keeper_tells_it_something_is_started_again(
    master: SmallMaster, node: Node, tmp_path: Path
) -> None:
    """The keeper finds out by what it sends, not by what it reads."""
    node.start(restart=True, env={VARIABLE: "keeper.report.before=sleep:1"})
    master.wait(lambda: master.hellos)
    master.launch("sh", "-c", f"touch {tmp_path}/runs; sleep 3600")
    wait_until((tmp_path / "runs").exists)
    node.kill()

    assert again(node).pid != node.process.pid
    master.wait(lambda: len(master.hellos) == 2)


def test_an_agent_that_was_told_to_end_stays_away(master: SmallMaster, node: Node) -> None:
    node.start(restart=True)
    master.wait(lambda: master.hellos)

    assert node.terminate() == 0
    wait_until(lambda: not node.keepers())
    assert node.started_again() == []


def test_who_starts_the_node_by_hand_takes_over_and_a_second_one_is_refused(
    master: SmallMaster, node: Node
) -> None:
    node.start(restart=True)
    master.wait(lambda: master.hellos)
    node.kill()
    standing_in = again(node)
    master.wait(lambda: len(master.hellos) == 2)
    by_hand = node.start(restart=True)
    master.wait(lambda: len(master.hellos) == 3)

    assert (standing_in.is_running() and standing_in.status() != psutil.STATUS_ZOMBIE) is False
    assert (node.start(restart=True).wait(60), by_hand.poll()) == (1, None)
    assert "The agent of node n1 is already running.\n" in node.log.read_text()


def test_the_end_of_the_keeper_is_not_that_of_the_agent_which_its_parent_started(
    master: SmallMaster, node: Node
) -> None:
    node.start(restart=True)
    master.wait(lambda: master.hellos)
    node.kill()
    agent = again(node)
    master.wait(lambda: len(master.hellos) == 2)
    (keeper,) = node.keepers()
    job = master.launch("sleep", "3600")
    master.wait_running(job)
    keeper.kill()

    end = master.wait_end(job)
    assert (end.reason, agent.is_running()) == ("keeper lost", True)
    assert wait_until(node.keepers) != [keeper]
