"""`mgpu rerun`: submits jobs once more, as they were asked for. The server has the request; nothing of it comes here."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.notes import note
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.cli.srun import ShellViewer, report
from mgpu_jupyter.client import watch
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Submit jobs once more, as they were asked for: command, resources, environment, directory. Returns at once."
    result = Parser(prog, f"{prog} JOB… [--attach] [--json]", about, examples=[f"{prog} R4T8W2ZB", f"{prog} R4T8W2ZB --attach"])
    result.add_argument("jobs", nargs="+", metavar="JOB", help="ids of jobs")
    result.add_argument("--attach", action="store_true", help="show the (last) new job to its end; Ctrl-C cancels it")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Submit each once more."""
    with make_client() as client:
        made = [(job_id.upper(), client.rerun(job_id)) for job_id in values.jobs]
        if values.json:
            document({"jobs": [{"of": of, "job_id": job.id} for of, job in made]})
            return 0
        for of, job in made:
            tell(f"Job submitted. ID: {job.id} (again, of {of})", flush=True)
        if not values.attach:
            return 0
        job = made[-1][1]
        viewer = ShellViewer(0, ranks=job.info.nodes_wanted)
        client.caller.on_trouble = note
        outcome = watch.watch(client, job, viewer)
        viewer.close()
        return report(outcome)
