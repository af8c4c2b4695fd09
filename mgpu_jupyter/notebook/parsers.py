"""The flags of each magic, in one place: read when it runs, offered by the Tab key, and shown by `?`. Runs
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from mgpu_jupyter.client import choice
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.request import srun_parser


def srun(prog: str) -> Parser:
    """Return the flags of `%mgpu_srun` and `%%mgpu_srun`."""
    return srun_parser(prog, in_notebook=True)


def queue(prog: str) -> Parser:
    """Return the flags of `%mgpu_queue`."""
    about = "Show running and waiting jobs."
    result = Parser(prog, f"{prog} [--all] [-u USER]", about, examples=[prog, f"{prog} --all -u ann"])
    choice.add_selection(result)
    return result


def nodes(prog: str) -> Parser:
    """Return the flags of `%mgpu_nodes`: none."""
    return Parser(
        prog, prog, "Show the nodes and their GPUs: state, memory, load and who holds each.", examples=[prog]
    )


def explain(prog: str) -> Parser:
    """Return the flags of `%mgpu_explain`."""
    about = "Say why a job waits, what would start it now, and what it was told before."
    result = Parser(prog, f"{prog} JOB", about, examples=[f"{prog} R4T8W2ZB"])
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    return result


def trace(prog: str) -> Parser:
    """Return the flags of `%mgpu_trace`."""
    about = "Show the whole way of a job: when, where, by which process."
    result = Parser(
        prog, f"{prog} JOB [--verify]", about, examples=[f"{prog} R4T8W2ZB", f"{prog} R4T8W2ZB --verify"]
    )
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    result.add_argument(
        "--verify", action="store_true", help="compare what was assigned with what is there now"
    )
    return result


def attach(prog: str) -> Parser:
    """Return the flags of `%mgpu_attach`."""
    about = (
        "Show a job's output from its start and go on live, also after a restart of the kernel or the server."
    )
    more = "The stop button leaves the job; it goes on. Without an id: the jobs of this notebook."
    result = Parser(prog, f"{prog} [JOB] [--rank R]", about, examples=[f"{prog} R4T8W2ZB", prog], more=more)
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job, or of an array or sweep")
    result.add_argument("--rank", type=kinds.count("--rank"), metavar="R", help="only this rank")
    return result


def logs(prog: str) -> Parser:
    """Return the flags of `%mgpu_logs`."""
    examples = [f"{prog} R4T8W2ZB", f"{prog} R4T8W2ZB --rank 1 --tail 20"]
    result = Parser(
        prog, f"{prog} JOB [--rank R] [--tail N]", "Show what a job printed so far.", examples=examples
    )
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    result.add_argument("--rank", type=kinds.count("--rank"), metavar="R", help="only this rank")
    result.add_argument(
        "--tail", type=kinds.count("--tail"), metavar="N", help="only the last N lines (of each rank)"
    )
    return result


def panel(prog: str) -> Parser:
    """Return the arguments of `%mgpu_panel`."""
    about = "Show the cluster live: the queue, every GPU, a form to submit with, one job."
    result = Parser(
        prog,
        f"{prog} [queue|gpus|submit|job ID]",
        about,
        examples=[prog, f"{prog} gpus", f"{prog} job R4T8W2ZB"],
    )
    result.add_argument("tab", nargs="?", metavar="TAB", help="queue (default), gpus, submit or job")
    result.add_argument("job", nargs="?", metavar="JOB", help="with job: id of the job to show")
    return result


PARSERS: dict[str, Callable[[str], Parser]] = {
    "mgpu_srun": srun,
    "mgpu_queue": queue,
    "mgpu_nodes": nodes,
    "mgpu_cancel": choice.cancel_parser,
    "mgpu_explain": explain,
    "mgpu_trace": trace,
    "mgpu_attach": attach,
    "mgpu_logs": logs,
    "mgpu_panel": panel,
}
"""The parsers, by magic."""
OF_ENDED = frozenset(("mgpu_explain", "mgpu_trace", "mgpu_attach", "mgpu_logs", "mgpu_panel"))
"""Magics that accept jobs that are over, too."""
CELL_EXAMPLES = """
  %%mgpu_srun --gpus 2 --name fit             the lines below run as Python on 2 GPUs
  %%mgpu_srun --background --as job           returns at once; then job.wait(), job.output(), job.cancel()
  %%mgpu_srun --sweep lr=0.1,0.01             one job for each value of the variable lr; a table comes back
"""


def doc_of(name: str) -> str:
    """Return the text of `?`: what it does, examples, then all flags."""
    text = PARSERS[name](f"%{name}").format_help()
    usage, _, rest = text.partition("\n\n")
    about, _, flags = rest.partition("\n\n")
    flags, found, examples = flags.rpartition("\nexample")
    shown = f"example{examples}" if found else ""
    cells = f"  in a cell:{CELL_EXAMPLES}" if name == "mgpu_srun" else ""
    first, last = " ".join(about.split()), flags if found else examples
    return f"{first}\n\n{shown.rstrip()}\n{cells}\n{usage}\n\n{last}".rstrip() + "\n"
