"""Cells in a real kernel: their header, lines of ranks, what ranks display, and how much of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, bash
from tests.e2e.notebook import Notebook, Ran

FIGURE = """%%mgpu_srun --nodes 2 --gpus-per-node 1 --name figure
import os
print("hello from all")
if os.environ["MGPU_NODE_RANK"] == "0":
    import matplotlib.pyplot as plt
    plt.plot([1, 2, 3])
    plt.show()
    print("after the figure")
"""

RICH = """%%mgpu_srun --gpus 1
from IPython.display import HTML, display
print("one")
handle = display(HTML("<b>first</b>"), display_id=True)
print("two")
handle.update(HTML("<b>second</b>"))
6 * 7
"""

COLOURS = re.compile(r"\x1b\[[\d;]*m")
BREAKS = """%%mgpu_srun --nodes 2 --gpus-per-node 1 --name breaks
import os, time
if os.environ["MGPU_NODE_RANK"] == "1":
    1 / 0
time.sleep(60)
"""

CLEARS = """%%mgpu_srun SIZE
from IPython.display import HTML, clear_output, display
print("first", flush=True)
display(HTML("<b>old</b>"))
clear_output(wait=WAIT)
display(HTML("<b>new</b>"))
print("second", flush=True)
"""

FORGED = """%%mgpu_srun --gpus 1
import json
body = json.dumps({"kind": "display", "data": {"text/html": "<script>alert(1)</script>", "text/plain": "x"}})
print("\\x1b_mgpu;0123456789abcdef01234567;" + body + "\\x1b\\\\text\\x1b_mgpu;0123456789abcdef01234567;\\x1b\\\\")
"""  # noqa: E501


def data_of(ran: Ran, kind: str) -> list[dict[str, Any]]:
    """All bundles with this MIME type, in order."""
    return [piece.content["data"] for piece in ran.pieces if kind in piece.content.get("data", {})]


def order(ran: Ran) -> list[str]:
    """What came, in order: text as it is, displays by their richest kind; headers and empty ones left out."""
    found = []
    for piece in ran.pieces:
        if piece.kind == "stream":
            if found and found[-1].endswith("\n") is False and found[-1] not in ("image/png", "text/html"):
                found[-1] += piece.content["text"]
            else:
                found.append(piece.content["text"])
        elif piece.kind == "display_data" and "mgpu" not in piece.content["metadata"]:
            data = piece.content["data"]
            found.append(next((kind for kind in ("image/png", "text/html") if data.get(kind)), "nothing"))
    return found


def test_a_figure_of_rank_0_appears_inline(notebook: Notebook) -> None:
    ran = notebook.run(FIGURE)
    assert ran.error is None
    pictures = [data["image/png"] for data in data_of(ran, "image/png")]
    assert [picture[:11] for picture in pictures] == ["iVBORw0KGgo"]
    text = ran.text()
    assert "│ after the figure\n" in text
    assert "<Figure" not in text
    said = [
        kind if kind in ("image/png", "text/html") else "after" if "after" in kind else "text"
        for kind in order(ran)
    ]
    assert said.index("image/png") < said.index("after")


def test_what_a_rank_displays_appears_in_its_place(notebook: Notebook, two_nodes: Cluster) -> None:
    ran = notebook.run(RICH)
    assert (ran.error, order(ran)) == (None, ["one\n", "text/html", "two\n", "42\n"])
    updates = [
        piece.content["data"].get("text/html") for piece in ran.pieces if piece.kind == "update_display_data"
    ]
    assert "<b>second</b>" in updates
    job = next(iter(two_nodes.client.jobs()))
    said = "one\n<IPython.core.display.HTML object>\ntwo\n<IPython.core.display.HTML object>\n42\n"
    assert (job.output(), job.output_bytes(0).decode()) == (said, said)


@pytest.mark.parametrize("wait", [True, False])
def test_a_rank_clears_the_output_and_the_header_stays(notebook: Notebook, wait: bool) -> None:
    ran = notebook.run(CLEARS.replace("SIZE", "--gpus 1").replace("WAIT", str(wait)))
    assert ran.error is None
    (cleared,) = [number for number, piece in enumerate(ran.pieces) if piece.kind == "clear_output"]
    before, after = Ran(ran.pieces[:cleared]), Ran(ran.pieces[cleared:])
    assert (before.text(), after.text(), order(before), order(after)) == (
        "first\n",
        "second\n",
        ["first\n", "text/html"],
        ["text/html", "second\n"],
    )
    assert [
        piece
        for piece in after.pieces
        if piece.kind == "display_data" and "mgpu" in piece.content["metadata"]
    ] != []


def test_no_rank_clears_what_the_others_said(notebook: Notebook) -> None:
    ran = notebook.run(CLEARS.replace("SIZE", "--nodes 2 --gpus-per-node 1").replace("WAIT", "True"))
    assert (ran.error, [piece for piece in ran.pieces if piece.kind == "clear_output"]) == (None, [])
    shown = [
        (piece.kind, piece.content["data"]["text/html"])
        for piece in ran.pieces
        if "<b>" in piece.content.get("data", {}).get("text/html", "")
    ]
    own = [one for one in shown if one[1] in ("<b>old</b>", "<b>new</b>")]
    assert sorted(own) == [("display_data", "<b>old</b>")] * 2 + [("update_display_data", "<b>new</b>")] * 2


def test_what_was_displayed_is_there_when_somebody_attaches(notebook: Notebook, two_nodes: Cluster) -> None:
    assert notebook.run(FIGURE.replace("--name figure", "--name figure --background --as job")).error is None
    job = next(iter(two_nodes.client.jobs(name="figure"))).wait(60)
    ran = notebook.run(f"%mgpu_attach {job.id}")
    assert (ran.error, [data["image/png"][:11] for data in data_of(ran, "image/png")]) == (
        None,
        ["iVBORw0KGgo"],
    )
    assert "│ after the figure\n" in ran.text()
    last = ran.pieces[-1].content["data"]
    assert last["text/plain"].startswith("Done in ")
    assert [
        word for word in (" on n1, n2, 2 simulated GPUs, exit 0", job.id) if word not in last["text/plain"]
    ] == []
    assert [
        word for word in ("Done in <b>", "mgpu:open-job", "figure") if word not in last["text/html"]
    ] == []


def test_what_a_job_only_passes_on_is_text(notebook: Notebook) -> None:
    ran = notebook.run(FORGED)
    assert (ran.error, ran.text().strip()) == (None, "text")
    assert [data for data in data_of(ran, "text/html") if "alert" in data["text/html"]] == []


def test_the_header_tells_how_it_goes(notebook: Notebook, two_nodes: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    two_nodes.client.submit(
        bash("until [ -e {go} ]; do sleep 0.05; done", go=go), nodes=2, gpus_per_node=4, name="before"
    )
    shown: list[str] = []

    def watch(_: str) -> None:
        """Let the other job end as soon as the cell has shown that it waits."""
        shown.append("")
        if len(shown) > 1:  # the first message is the cell's own text
            go.touch()

    ran = notebook.run("%%mgpu_srun --gpus 2 --name patient\nprint('done')", watch=watch)
    assert (ran.error, ran.text()) == (None, "done\n")
    headers = [piece.content["data"] for piece in ran.pieces if "mgpu" in piece.content.get("metadata", {})]
    lines = [data["text/plain"] for data in headers]
    job = next(iter(two_nodes.client.jobs()))
    assert lines[0].startswith(f"mgpu {job.id} waiting, 1st of 1") or lines[0].startswith(
        f"mgpu {job.id} waiting, 1st in queue"
    )
    assert any(line.startswith(f"mgpu {job.id} running on n") for line in lines)
    assert ("" in lines, lines[-1].startswith("Done in "), lines[-1].endswith(f" · {job.id}")) == (
        True,
        True,
        True,
    )
    assert {kind for data in headers for kind in data} == {"text/plain", "text/html"}
    assert [
        word
        for word in ("Waiting", "Running", "patient", "Stop cancels")
        if not any(word in data["text/html"] for data in headers)
    ] == []


def test_lines_of_ranks(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%mgpu_srun --nodes 2 --gpus-per-node 1\nimport os\nprint('same')\nprint('rank', "
        "os.environ['MGPU_NODE_RANK'])"
    )
    assert ran.error is None
    assert (
        sorted(line.partition("│ ")[2] for line in ran.text().splitlines() if "│ " in line).count("same") == 1
    )
    assert sorted(line[-6:] for line in ran.text().splitlines() if "rank" in line) == ["rank 0", "rank 1"]


def test_a_flood_is_cut_and_the_rest_can_be_had(notebook: Notebook, two_nodes: Cluster) -> None:
    ran = notebook.run("%%mgpu_srun --gpus 1\nfor number in range(100_000):\n    print('line', number)")
    lines = ran.text().splitlines()
    assert (ran.error, lines[4_999], lines[-1], 5_000 < len(lines) < 5_100) == (
        None,
        "line 4999",
        "line 99999",
        True,
    )
    job = next(iter(two_nodes.client.jobs()))
    assert (
        f"95,000 more lines (1016 KiB) are left out here: %mgpu_logs {job.id} shows the whole output."
        in ran.shown()
    )
    assert job.output().count("\n") == 100_000


def test_a_failed_rank_is_shown_as_a_local_error_once(notebook: Notebook) -> None:
    ran = notebook.run(BREAKS)
    assert ran.error is not None
    assert ran.error.startswith("JobFailed: Failed after ")
    page = [data["text/html"] for data in data_of(ran, "text/html") if "Failed" in data["text/html"]][-1]
    words = ("breaks", "rank 1 on n", "ended first, <b>exit 1</b>")
    assert [word for word in words if word not in page] == []
    assert (page.count('<div class="mgpu-row"'), "ZeroDivisionError" in page) == (1, False)
    assert (ran.text(), ran.text("stderr")) == ("", "")
    (error,) = (piece.content for piece in ran.pieces if piece.kind == "error")
    (started,) = (piece.content for piece in ran.pieces if piece.kind == "execute_input")
    drawn = "\n".join(error["traceback"])
    assert "\x1b[" in drawn
    assert COLOURS.sub("", drawn).split("\n") == [
        "-" * 75,
        "ZeroDivisionError                         Traceback (most recent call last)",
        f"Cell In[{started['execution_count']}], line 3",
        "      1 import os, time",
        '      2 if os.environ["MGPU_NODE_RANK"] == "1":',
        "----> 3     1 / 0",
        "      4 time.sleep(60)",
        "",
        "ZeroDivisionError: division by zero",
        "Rank 0: stopped because rank 1 failed.",
    ]


def test_a_failed_command_says_its_last_lines_once(notebook: Notebook) -> None:
    ran = notebook.run("%mgpu_srun --gpus 1 -- bash -c 'echo last words >&2; exit 3'")
    (error,) = (piece.content for piece in ran.pieces if piece.kind == "error")
    said = "\n".join((ran.text(), ran.text("stderr"), ran.shown(), *error["traceback"]))
    assert said.count("last words") == 1
    assert [line[:-1] for line in error["traceback"]] == ["JobFailed: exit code 3 on n"]
