"""The panel in a real kernel on a real cluster: live from another thread, out of the way of cells, ended with
its cell, text elsewhere.
"""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook

WIDGET = "application/vnd.jupyter.widget-view+json"
FIND = """
import threading, time
from ipywidgets.widgets import widget as made

def pieces():
    return [one.value for one in list(made._instances.values()) if type(one).__name__ == "HTML"]

def panels():
    return sum(thread.name == "mgpu-panel" for thread in threading.enumerate())

def until(condition, limit_s=60):
    ends = time.monotonic() + limit_s
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)
    return condition()

def wait_for(*texts):
    return until(lambda: any(text in piece for piece in pieces() for text in texts))
"""
WATCH = """
job = Client().submit(["sleep", "60"], gpus=4, name="<i>seen</i>")
print(wait_for("n1: 4 mine", "n2: 4 mine"))
job.cancel(); job.wait(60)
print(wait_for("n1: 4 free") and wait_for("n2: 4 free"))
"""


def test_the_panel_in_a_kernel(notebook: Notebook, two_nodes: Cluster) -> None:
    opened = notebook.run("%mgpu_panel gpus")
    assert opened.error is None
    (shown,) = [piece for piece in opened.pieces if piece.kind == "display_data"]
    assert WIDGET in shown.content["data"]
    assert shown.content["data"]["text/plain"].startswith(
        "8 of 8 GPUs free. The panel is live where widgets are shown;"
    )

    notebook.run(FIND + "\nfrom mgpu_jupyter import Client")
    # The cell keeps the main thread all the time: the panel changes by its own, and nothing of it gets into
    # this cell's output.
    watched = notebook.run(WATCH)
    assert (watched.error, watched.text()) == (None, "True\nTrue\n")
    assert {piece.kind for piece in watched.pieces} <= {"execute_input", "stream", "comm_msg"}

    # A cell that runs again has one panel, and one that is closed has none.
    again = notebook.run("%mgpu_panel queue\nprint(until(lambda: panels() == 1))")
    assert (again.error, again.text()) == (None, "True\n")
    closed = notebook.run("made.Widget.close_all()\nprint(until(lambda: panels() == 0))")
    assert (closed.error, closed.text()) == (None, "True\n")


def test_the_panel_without_widgets_is_text(notebook: Notebook) -> None:
    notebook.run("import sys; kept = sys.modules.get('ipywidgets'); sys.modules['ipywidgets'] = None")
    queue, gpus = notebook.run("%mgpu_panel"), notebook.run("%mgpu_panel gpus")
    wrong = notebook.run("%mgpu_panel cluster")
    notebook.run("sys.modules.pop('ipywidgets')\nif kept is not None: sys.modules['ipywidgets'] = kept")
    assert queue.text().startswith('The panel needs ipywidgets: run `pip install "mgpu-jupyter[lab]"`')
    assert "--- Queue ---" in queue.text()
    assert "8 of 8 GPUs free (simulated)" in gpus.text()
    assert "There is no tab 'cluster'" in wrong.text("stderr")
