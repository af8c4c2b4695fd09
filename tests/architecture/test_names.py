"""One word, one meaning: names of files and classes that repeat have a reason, words that nobody understood
stay away, the glossary is short.

A name that stands in two places makes every reader ask which is meant. On failure: rename one, or add it here
with a reason. Private classes (`_Name`) are their module's own business.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("mgpu_agent", "mgpu_jupyter")

FILES = {
    "attempts.py": "the attempts of each pure machine",
    "client.py": "the client, and its options on the command line",
    "cluster_file.py": "values of the file, and who reads it",
    "commands.py": "the commands of each pure machine",
    "completion.py": "what can be completed, and the shell's part of it",
    "display.py": "both ends of one key",
    "doctor.py": "the checks, and their command",
    "errors.py": "errors themselves, and how each front end shows them",
    "events.py": "the events of each pure machine, and those of the live stream",
    "files.py": "files of jobs at each stop between user and node",
    "follow.py": "output that is followed, from either side of the API",
    "front.py": "where one front end differs from the others",
    "host.py": "the machine under a keeper; a program whose name jobs see",
    "job.py": "a request as a value, and a job in the hands of a user",
    "job_orders.py": "orders about jobs: what the scheduler makes of them, and their commands",
    "launch.py": "what is launched; a program whose name jobs see",
    "link.py": "the two ends of the link",
    "live.py": "the live view, from either side of the API",
    "login.py": "the login, and its command",
    "machine.py": "one for each pure machine",
    "master.py": "the master, and its command",
    "meeting.py": "values of a meeting, and what the scheduler makes of them",
    "messages.py": "one for each of the two protocols",
    "model.py": "values of the wire, and those of the scheduler",
    "nodes.py": "nodes, and their commands",
    "orders.py": "orders, and who gives them",
    "output.py": "output, from node to reader",
    "parts.py": "the parts of an agent, and those of a panel",
    "pieces.py": "pieces at both ends of their way",
    "ports.py": "what a core needs of the outside, one for each core",
    "queue.py": "the queue, and its command",
    "ranks.py": "ranks of an attempt, and how they are shown",
    "readings.py": "readings, from node to reader",
    "requests.py": "what a helper is asked, and what the API is asked",
    "results.py": "results at each stop between node and user",
    "sweep.py": "both ends of one list of values",
    "tables.py": "tables in a terminal, and tables in a notebook",
    "traces.py": "the trace of one job, and traces of clusters: both are words of the trade",
    "words.py": "pieces of sentences, of client and of scheduler",
}
"""Names of files that stand in several folders, and why."""

CLASSES = {
    "Account": "of the operating system, and of those who pay: both are words of the trade",
    "Answer": "what a transport returns, and what a table shows",
    "Check": "a message of the wire, and a line of a trace",
    "Entry": "one row of its own list: of a folder, of a queue, of a pretended queue",
    "ExpectedNode": "in the cluster's file, and in an answer",
    "GpuProcess": "on the wire, and in an answer",
    "Health": "settings, and an answer about it",
    "Host": "the machine under a keeper, and what shows a panel",
    "Job": "of the scheduler, in an answer, and in the hands of a user",
    "KeyPair": "one on each end of the link, which share only the protocol",
    "Leave": "the same word in both protocols",
    "Live": "the live view, from either side of the API",
    "Load": "of a node, and how a header shows it",
    "Mirror": "of the queue, in client and panel",
    "Node": "of the scheduler, and in an answer",
    "NodeOrders": "of the scheduler, and in an answer",
    "Place": "of a step, and in a line that is completed",
    "Placement": "of the scheduler, and in an answer",
    "Queue": "the queue, and a table of it",
    "Reader": "of what is kept, of the live stream, and of a panel",
    "Say": "of the agent's core, and of a pretended job",
    "Seen": "processes, and what a panel shows",
    "Slot": "a node that may be taken, and a row that may be filled",
    "Stdin": "of a process, and of a terminal",
    "Waiting": "jobs that wait, as they are explained and as they are shown",
    "Waits": "times, as a history, in a header, and towards another master",
    "Wanted": "what is asked for, of a place, a panel and a stream",
}
"""Names of classes that stand in several modules, and why."""

BANNED = (
    *("desk", "family", "warden", "disguise", "tidying", "knocking", "patience", "post_office"),
    *("waiting_room", "doors", "door", "typing_in", "luggage", "take_place", "above"),
)
"""Words that readers had to be told the meaning of."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the product."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_names_of_files_that_repeat_have_a_reason() -> None:
    places = defaultdict(list)
    for path, _ in modules():
        places[Path(path).name].append(path)
    repeated = {name: where for name, where in places.items() if len(where) > 1 and not name.startswith("__")}
    assert repeated.keys() == FILES.keys()


def test_names_of_classes_that_repeat_have_a_reason() -> None:
    places = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    assert repeated.keys() == CLASSES.keys()


def test_reasons_are_short() -> None:
    assert [why for why in (FILES | CLASSES).values() if not 5 < len(why) <= 90] == []


def test_words_that_nobody_understood_name_nothing() -> None:
    found = []
    for path, tree in modules():
        defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        names = [Path(path).stem, *(node.name for node in ast.walk(tree) if isinstance(node, defined))]
        found += [f"{path}: {name}" for name in names if name.strip("_").lower() in BANNED]
    assert found == []


def test_the_glossary_is_short_and_its_words_are_those_of_the_code() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Glossary\n")[2]
    words = re.findall(r"^\| (\w+) \| .+ \|$", text, re.MULTILINE)[1:]
    sources = "\n".join(path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    assert words == sorted(set(words), key=str.lower)
    assert 20 < len(words) <= 40
    assert [word for word in words if not re.search(rf"(?i)(?<![a-z]){word}s?(?![a-z])", sources)] == []
