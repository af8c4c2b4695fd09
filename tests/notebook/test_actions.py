"""The buttons of headers: which there are in which state, how widgets of a busy kernel are heard, and what is
asked of ipykernel for it.
"""

from __future__ import annotations

import html
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api.histories import GpuUsage, JobUsage
from mgpu_jupyter.client.mock import Play
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import actions, screen, subshells
from mgpu_jupyter.notebook.header_text import Facts
from mgpu_jupyter.notebook.header_updates import HeaderUpdates, memory_hint
from tests.notebook.conftest import Shell
from tests.notebook.test_header import a_job

BUTTON = re.compile(r'command="([^"]*)" data-commandlinker-args="([^"]*)">.*?<span>([^<]*)</span>')


def buttons(page: str) -> list[tuple[str, str, dict[str, str]]]:
    return [
        (word, command, json.loads(html.unescape(given))) for command, given, word in BUTTON.findall(page)
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (JobState.QUEUED, ["Why mgpu:explain-job", "Cancel mgpu:cancel-job"]),
        (JobState.STARTING, ["Cancel mgpu:cancel-job"]),
        (JobState.RUNNING, ["Open mgpu:open-job", "Cancel mgpu:cancel-job"]),
        (JobState.STOPPING, ["Open mgpu:open-job"]),
        (JobState.FAILED, []),
    ],
)
def test_buttons_of_a_job_that_is_not_over(state: JobState, expected: list[str]) -> None:
    job = replace(a_job(state), name='"><b>')
    page = actions.live_html(job)
    assert [f"{word} {command}" for word, command, _ in buttons(page)] == expected
    assert ({given["id"] for *_, given in buttons(page)} or {job.id}, "<b>" in page) == ({job.id}, False)
    assert [word for word, *_ in buttons(actions.live_html(a_job(JobState.RUNNING), cancelling=True))] == [
        "Open"
    ]


def test_buttons_of_a_job_that_did_not_complete() -> None:
    job = a_job(JobState.FAILED)
    log = ("Full log", "mgpu:open-job", {"id": job.id, "tab": "log"})
    assert buttons(actions.over(job, "")) == [log]
    assert buttons(actions.over(job, actions.RUN_CELL)) == [log, ("Run again", "notebook:run-cell", {})]
    assert buttons(actions.over(job, actions.RUN_JOB)) == [
        log,
        ("Run again", "mgpu:run-job-again", {"id": job.id}),
    ]


def test_what_is_looked_for_in_ipykernel_is_there() -> None:
    """Fails when ipykernel changes what `subshells.py` knows of it: then look whether Cancel is still heard
    without the extension.
    """
    from ipykernel.comm.comm import BaseComm
    from ipykernel.kernelbase import Kernel
    from ipykernel.subshell_manager import SubshellManager

    assert hasattr(Kernel, "_supports_kernel_subshells")
    assert callable(SubshellManager.list_subshell)
    comm = BaseComm(target_name="x", comm_id="x")
    assert comm._reply_subshell_for({}, "where it is sent") == "where it is sent"
    setattr(comm, subshells.ROUTE, None)
    assert comm._reply_subshell_for({}, "where it is sent") is None
    subshells.listen_where_it_is_sent(comm)
    subshells.listen_where_it_is_sent(comm)
    subshells.listen_where_it_is_sent(None)
    assert comm._reply_subshell_for({}, "where it is sent") == "where it is sent"


class FakeDisplays:
    """What is displayed, by its number, as it is now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[dict[str, Any]] = []
        monkeypatch.setattr(screen, "display", self.display)

    def display(self, data: dict[str, Any], **_options: object) -> SimpleNamespace:
        self.shown.append(data)
        number = len(self.shown) - 1
        return SimpleNamespace(update=lambda data, **_options: self.shown.__setitem__(number, data))


def test_widgets_are_seen_as_soon_as_they_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    displays = FakeDisplays(monkeypatch)
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")
    opened: list[str] = []
    kernel = SimpleNamespace(
        _supports_kernel_subshells=True,
        shell_channel_thread=SimpleNamespace(manager=SimpleNamespace(list_subshell=lambda: opened)),
    )
    pressed: list[str] = []
    made = screen.Buttons(kernel, lambda: pressed.append("cancel"), lambda: pressed.append("why"))
    header = screen.RichHeader(made)
    queued = a_job(JobState.QUEUED)
    header.show(Facts(job=queued, now=0.0))
    commands, place, head = displays.shown
    assert ("mgpu:explain-job" in commands["text/html"], place, "mgpu-waiting" in head["text/html"]) == (
        True,
        screen.EMPTY,
        True,
    )
    for _ in range(3):
        header.settle()
    assert (displays.shown[1], header.widgets(queued)) == (screen.EMPTY, 0)
    opened.append("a subshell")
    header.settle()
    assert (
        screen.VIEW in displays.shown[1],
        header.widgets(queued),
        header.widgets(a_job(JobState.RUNNING)),
    ) == (True, 2, 1)
    header.show(Facts(job=queued, now=1.0))
    made._why.click()
    made._cancel.click()
    assert (pressed, made._cancel.disabled) == (["why", "cancel"], True)
    header.again()
    assert (len(displays.shown), screen.VIEW in displays.shown[4]) == (6, True)
    header.show(Facts(job=a_job(JobState.COMPLETED), now=1.0))
    header.end()
    assert [one.get("text/html") for one in displays.shown[3:]] == ["", "", ""]


def test_widgets_that_nobody_hears_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDisplays(monkeypatch)
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")
    monkeypatch.setattr(screen, "SUBSHELL_S", -1.0)
    for kernel in (None, SimpleNamespace(_supports_kernel_subshells=True)):
        assert not subshells.are_supported(kernel)
        assert not subshells.are_open(kernel)
    manager = SimpleNamespace(list_subshell=list)
    made = screen.Buttons(
        SimpleNamespace(
            _supports_kernel_subshells=True, shell_channel_thread=SimpleNamespace(manager=manager)
        ),
        lambda: None,
        lambda: None,
    )
    job = a_job(JobState.RUNNING)
    made.place(job)
    for _ in range(3):
        made.settle()
    assert (made._box, made.count(job)) == (None, 0)


def test_why_at_length_and_cancel(shell: Shell) -> None:
    shell.plays(lambda _: Play(hold=True))
    job = shell.run("%mgpu_srun --background -- x").result
    shown: list[Facts] = []
    header = SimpleNamespace(
        show=shown.append, settle=lambda: None, widgets=lambda _: 0, end=lambda: None, remove=lambda: None
    )
    updates = HeaderUpdates(lambda _: header, is_rich=True, lines_of=lambda *_: ())  # type: ignore[arg-type, return-value]
    updates.why()
    updates.job = job
    updates.changed(a_job(JobState.QUEUED))
    updates.why()
    assert updates.bring_up_to_date()
    assert shown[-1].explained
    updates.cancel()
    assert (updates.cancelling, shell.mock.jobs["MOCK0000"].cancelled.is_set()) == (True, True)
    updates.close()


def test_a_hint_about_memory() -> None:
    def usage(peak: int | None, rank: int | None) -> JobUsage:
        gpu = GpuUsage(
            node=NodeId("n1"), index=0, uuid=GpuUuid("g"), rank=rank, memory_peak_mib=peak, memory_mib=80_000
        )
        return JobUsage(job_id=JobId("K7P2M9QX"), state=JobState.FAILED, attempt=1, asked=1, gpus=(gpu,))

    assert (
        memory_hint(usage(76_000, 3), 3)
        == "A GPU of rank 3 was at 95 % of its memory. Try a smaller batch, or more GPUs."
    )
    assert [memory_hint(one, 3) for one in (None, usage(None, 3), usage(40_000, 3), usage(76_000, 2))] == [
        "",
        "",
        "",
        "",
    ]
