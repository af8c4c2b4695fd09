"""The buttons of a header that a front end carries out by itself, by commands of JupyterLab that HTML may
name. Pure.

Each is visible only where something handles it: commands of mgpu's own where its extension runs in the page
(it marks the page's body), JupyterLab's where JupyterLab or Notebook 7 shows the output. So a click needs no
kernel, which is busy with the cell.
"""

from __future__ import annotations

import html
import json

from mgpu_agent.protocol.text import as_html
from mgpu_jupyter.api import models
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.style import STYLE

RUN_CELL = "notebook:run-cell"
"""JupyterLab's own: runs the cell whose output was clicked."""
RUN_JOB = "mgpu:run-job-again"

_ICONS = {
    "why": '<circle cx="7" cy="7" r="5.6"/><path d="M5.4 5.6c0-2 3.2-2 3.2 0 0 1.3-1.6 1.3-1.6 2.6M7 '
    '9.6v1.2"/>',
    "cancel": '<path d="M3 3l8 8M11 3l-8 8"/>',
    "open": '<path d="M5.5 3H2.5v8.5H11V8.5M8 2.5h3.5V6M11.2 2.8L6.5 7.5"/>',
    "again": '<path d="M11.4 5A5 5 0 1 0 12 7.6M11.8 2v3.2H8.6"/>',
}


def button(kind: str, word: str, command: str, about: str, **arguments: str) -> str:
    """Return a button for a command; its label is a word or two, `about` is the rest."""
    where = "mgpu-lab" if command.startswith("mgpu:") else "mgpu-jupyter"
    given = html.escape(json.dumps(arguments))
    return (
        f'<button type="button" class="mgpu-act mgpu-act-{kind} {where}" title="{as_html(about)}" '
        f'aria-label="{as_html(about)}" '
        f'data-commandlinker-command="{command}" data-commandlinker-args="{given}">'
        f'<svg viewBox="0 0 14 14" aria-hidden="true">{_ICONS[kind]}</svg><span>{word}</span></button>'
    )


def link(job: models.Job, text: str) -> str:
    """Return text that opens the job's view, and is just text where there is none; `text` is escaped
    already.
    """
    given = html.escape(json.dumps({"id": job.id}))
    return (
        f'<button type="button" class="mgpu-link mgpu-lab" title="Open the job" '
        f'data-commandlinker-command="mgpu:open-job" '
        f'data-commandlinker-args="{given}">{text}</button><span class="mgpu-not-lab">{text}</span>'
    )


def live(job: models.Job, *, cancelling: bool = False) -> list[str]:
    """Return the buttons of a job that is not over; they lie over the header, which is replaced each
    second.
    """
    name = job.name or job.id
    cancel = [button("cancel", "Cancel", "mgpu:cancel-job", f"Cancel {name}", id=job.id)]
    if job.state.is_final:
        return []
    if cancelling or job.state is JobState.STOPPING:
        return [_open(job)]
    if job.state is JobState.QUEUED:
        return [
            button(
                "why",
                "Why",
                "mgpu:explain-job",
                f"Why {name} waits, and what would start it sooner",
                id=job.id,
            ),
            *cancel,
        ]
    return cancel if job.state is JobState.STARTING else [_open(job), *cancel]


def live_html(job: models.Job, *, cancelling: bool = False) -> str:
    """Return them as a row of zero height before the header."""
    shown = "".join(live(job, cancelling=cancelling))
    return f'{STYLE}<div class="mgpu-actions mgpu-commands">{shown}</div>' if shown else ""


def over(job: models.Job, run_again: str) -> str:
    """Return the buttons of a job that did not complete, for its header, which is not replaced any more."""
    log = button("open", "Full log", "mgpu:open-job", "All that it printed", id=job.id, tab="log")
    if not run_again:
        return log
    about, arguments = (
        ("Run this cell again", {})
        if run_again == RUN_CELL
        else ("Submit the job once more", {"id": str(job.id)})
    )
    return log + button("again", "Run again", run_again, about, **arguments)


def _open(job: models.Job) -> str:
    return button(
        "open", "Open", "mgpu:open-job", f"Open {job.name or job.id} beside the notebook", id=job.id
    )
