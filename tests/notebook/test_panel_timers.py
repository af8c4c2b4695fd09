"""When the panel draws: not while nobody looks, and one timer for each thing that waits."""

from __future__ import annotations

from mgpu_jupyter.notebook.panel.loop import Loop
from mgpu_jupyter.notebook.panel.pulse import SILENT_BUSY_S, SILENT_S, Pulse
from tests.processes import wait_until


def test_nobody_looks_nothing_is_drawn() -> None:
    now, busy, back = [0.0], [False], []
    pulse = Pulse(lambda: busy[0], lambda: back.append(1), clock=lambda: now[0])
    pulse.ask()
    assert not pulse.is_silent
    now[0] = SILENT_S + 1
    assert pulse.is_silent
    busy[0] = True
    assert not pulse.is_silent
    now[0] = SILENT_BUSY_S + 1
    assert pulse.is_silent
    pulse.widget.value += 1
    assert (pulse.is_silent, back) == (False, [1])


def test_timers_replace_each_other_by_name() -> None:
    called: list[str] = []
    loop = Loop("test", lambda error: called.append(repr(error)))
    loop.later(30.0, "a", lambda: called.append("late"))
    loop.later(0.0, "a", lambda: called.append("a"))
    loop.soon(30.0, "b", lambda: called.append("b"))
    loop.soon(0.0, "b", lambda: called.append("never"))
    loop.start()
    wait_until(lambda: called == ["a"], "the timer that replaced it")
    loop.stop()
    loop.post(lambda: called.append("after the end"))
    assert loop.join(10)
    assert called == ["a"]
