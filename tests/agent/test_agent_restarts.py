"""Masters, agents and keepers that end and come back, against a real agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu_agent.protocol.messages import Launch
from tests.agent.conftest import Node
from tests.agent.master import SmallMaster, wait_until
from tests.agent.test_agent import GPUS, is_alive

pytestmark = pytest.mark.slow  # a whole node for each test


def test_a_master_that_comes_back_is_greeted_with_all_tasks(joined: SmallMaster, state: Path) -> None:
    running = joined.launch(
        "sh", "-c", "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after; exit 6"
    )
    joined.wait(lambda: joined.text(running) == "before\n")
    ended = joined.launch("echo", "ended")
    final = joined.wait_end(ended)
    joined.stop_listening()
    (state / "go").touch()
    wait_until(
        lambda: any(path.read_text() == "before\nafter\n" for path in (state / "nodes/n1/spool").iterdir())
    )
    joined.epoch = 2
    joined.listen()
    joined.wait(lambda: len(joined.hellos) == 2)
    hello = joined.hellos[-1]

    assert [status.key for status in hello.tasks] == [running, ended]
    assert hello.tasks[1] == final
    assert (joined.wait_end(running).exit_code, joined.text(running)) == (6, "before\nafter\n")


def test_an_older_master_is_not_obeyed(joined: SmallMaster) -> None:
    spec = joined.spec("true")
    joined.say(Launch(spec=spec), epoch=0)
    newer = joined.launch("true")
    joined.wait_end(newer)

    assert (spec.key, 0) not in joined.statuses


def test_a_master_that_lost_its_list_of_nodes_gets_a_new_enrolment(joined: SmallMaster) -> None:
    joined.stop_listening()
    joined.forget_nodes()
    joined.listen()
    joined.wait(lambda: len(joined.hellos) == 2)

    assert joined.order.count("Enrol") == 2


def test_jobs_go_on_when_the_agent_is_killed(joined: SmallMaster, node: Node, state: Path) -> None:
    loop = "echo begin; while [ ! -e go ]; do sleep 0.02; done; seq 1 50000; exit 9"
    key = joined.launch("sh", "-c", loop, gpus=(GPUS[0],))
    joined.wait(lambda: joined.text(key) == "begin\n")
    started = joined.wait_running(key)
    (keeper,) = node.keepers()
    node.kill()
    alive = is_alive(started.pid)
    (state / "go").touch()
    wait_until(lambda: not is_alive(started.pid))
    node.start()
    joined.wait(lambda: len(joined.hellos) == 2)
    (told,) = joined.hellos[-1].tasks
    status = joined.wait_end(key)

    assert (alive, [process.pid for process in node.keepers()]) == (True, [keeper.pid])
    assert (told.pid, told.started_at, status.exit_code, status.lost) == (
        started.pid,
        started.started_at,
        9,
        False,
    )
    assert joined.text(key) == "begin\n" + "".join(f"{n}\n" for n in range(1, 50001))
    assert joined.hellos[0].facts.incarnation == joined.hellos[1].facts.incarnation


def test_a_killed_keeper_is_replaced_and_its_jobs_are_told_as_lost(joined: SmallMaster, node: Node) -> None:
    key = joined.launch("sh", "-c", "echo out; exec sleep 300", gpus=(GPUS[0],))
    joined.wait(lambda: joined.text(key) == "out\n")
    pid = joined.wait_running(key).pid
    (keeper,) = node.keepers()
    keeper.kill()
    status = joined.wait_end(key)
    again = joined.launch("echo", "again", gpus=(GPUS[0],))
    joined.wait_end(again)

    assert (status.exit_code, status.signal, status.reason, status.lost, is_alive(pid)) == (
        None,
        9,
        "keeper lost",
        True,
        False,
    )
    assert joined.text(again) == "again\n"


def test_both_killed_leave_nothing_running_when_the_node_is_offered_again(
    joined: SmallMaster, node: Node
) -> None:
    key = joined.launch("sh", "-c", "setsid sleep 300 & exec sleep 300")
    pid = joined.wait_running(key).pid
    (keeper,) = node.keepers()
    node.process.kill()
    keeper.kill()
    node.process.wait(60)
    node.start()
    joined.wait(lambda: len(joined.hellos) == 2)
    (status,) = joined.hellos[-1].tasks

    assert is_alive(pid) is False
    assert (status.key, status.exit_code, status.signal, status.reason, status.lost) == (
        key,
        None,
        9,
        "agent and keeper were lost",
        True,
    )


def test_an_unforgotten_end_is_told_by_the_next_agent(joined: SmallMaster, node: Node) -> None:
    key = joined.launch("sh", "-c", "exit 4")
    status = joined.wait_end(key)
    code = node.terminate()
    wait_until(lambda: not node.keepers())
    node.start()
    joined.wait(lambda: len(joined.hellos) == 2)

    assert (code, joined.hellos[-1].tasks, len(joined.farewells)) == (0, (status,), 1)


def test_sigterm_leaves_jobs_to_the_keeper(joined: SmallMaster, node: Node) -> None:
    key = joined.launch("sleep", "300")
    pid = joined.wait_running(key).pid
    code = node.terminate()

    assert (code, is_alive(pid), len(node.keepers())) == (0, True, 1)
