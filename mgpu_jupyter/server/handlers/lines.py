"""A line of flags becomes a request, for front ends without Python. Submits nothing, and knows nothing of this server's own process:
no variable, directory or host of it enters a request.
"""

from __future__ import annotations

import asyncio
import re
import time

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api import lines
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.line import read_line
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.request import Submission, parse
from mgpu_jupyter.server.handlers.base import Guarded

PROG = "mgpu_srun"
_PROG = re.compile(rf"\s*(%{{0,2}}{PROG})(?=\s|$)")


class ParseHandler(Guarded):
    """What a line means."""

    path = "jobs/parse"

    async def post(self) -> None:
        """Read a line as the magics do."""
        body = self.read_body(lines.LineRequest)
        asked = await asyncio.to_thread(submission_of, body.line, body.cell)  # long ones take half a second
        self.answer(lines.LineAnswer(spec=asked.spec, inputs=asked.inputs, background=asked.background))


def submission_of(line: str, cell: str | None) -> Submission:
    """Return what a line asks for, seen from no machine in particular; times of day are those of this server's clock."""
    found = _PROG.match(line)
    rest, prog = (line[found.end() :], found[1]) if found else (line, PROG)
    here = Here(cwd="", now=time.time(), host="", has_kernel=False)
    asked = parse(read_line(rest), cell=cell, environ={}, prog=prog, in_notebook=True, here=here)
    if isinstance(asked, Help):
        raise InvalidRequest("usage", "Take --help out: a line that is to be submitted cannot ask for help.")
    if asked.spec.sync:
        raise InvalidRequest("no-folder", "--sync sends a folder of the machine that you sit at: use mgpu_srun there, or a notebook.")
    return asked
