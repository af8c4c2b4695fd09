"""`mgpu_sbatch`: submits a job file and returns at once. What its lines mean is told by `client/jobfile.py`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.show import document, show_help
from mgpu_jupyter.cli.where import point_at
from mgpu_jupyter.client import slurm
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.jobfile import Finding, read_bytes, read_job_file
from mgpu_jupyter.client.parser import HELP_WORDS, Parser
from mgpu_jupyter.client.reasons import WOULD_WAIT_EXIT, as_lines
from mgpu_jupyter.client.request import Submission, srun_parser

STDIN = "-"
BAD_FILE_EXIT = 2


class Line(msgspec.Struct):
    """What the command line says beside the file."""

    flags: list[str] = []
    file: str = STDIN
    arguments: list[str] = []
    wrap: str | None = None
    parsable: bool = False
    test_only: bool = False


def parser(prog: str) -> Parser:
    """Return the flags: those of `mgpu_srun`, and a few of sbatch."""
    result = srun_parser(prog)
    result.usage = f"{prog} [flags] FILE [ARGUMENTS…]"
    result.description = "Submit a job file, a script with #MGPU or #SBATCH lines above its first command, and return at once."
    result.epilog = "\n".join(
        [
            "Flags here go before those of the file. Of sbatch's own flags those that mean something here are taken too;",
            "`mgpu validate FILE` says what of a file is honoured.",
            "",
            "examples:",
            f"  {prog} job.sh",
            f"  {prog} --gpus 2 --name sweep job.sh 0.1 0.01",
            f'  {prog} --gpus 1 --wrap "python train.py"',
            "",
        ]
    )
    group = result.add_argument_group("as sbatch has them").add_argument
    group("--wrap", metavar="CMD", help="a command line for bash in place of a file")
    group("--parsable", action="store_true", help="print the id of the job and nothing else")
    group("--test-only", action="store_true", help="the same as --dry-run")
    return result


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Submit; return 0, or 2 for a file that is not right."""
    if _wants_help(argv):
        return show_help(parser("mgpu_sbatch").format_help())
    line = read_line(argv)
    name, data = _source(line)
    text = read_bytes(data)
    found = [text] if isinstance(text, Finding) else None
    job_file = (
        None if isinstance(text, Finding) else read_job_file(text, name, flags=line.flags, arguments=line.arguments, environ=os.environ)
    )
    for finding in found or (job_file.findings if job_file else ()):
        tell(sentence(name, finding), file=sys.stderr)
    if job_file is None or job_file.submission is None:
        return BAD_FILE_EXIT
    return _submit(job_file.submission, line, make_client)


def sentence(name: str, finding: Finding) -> str:
    """Return a finding as compilers print theirs."""
    return f"{name}:{finding.line}: {'' if finding.level == 'error' else 'warning: '}{finding.message}"


def read_line(argv: Sequence[str]) -> Line:
    """Take the command line apart: flags, file, words for the script; flags of sbatch become ours."""
    reader = parser("mgpu_sbatch")
    line = Line([], STDIN, [])
    left = list(argv)
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        if not word.startswith("-") or word == STDIN:
            line.file, line.arguments = word, left
            break
        if flag == "--wrap":
            line.wrap = value if equals else (left.pop(0) if left else "")
        elif word in ("--parsable", "--test-only"):
            setattr(line, word[2:].replace("-", "_"), True)
        elif (takes := reader.takes_value(flag)) is not None:
            line.flags += [word, left.pop(0)] if takes and not equals and left else [word]
        elif len(word) > 2 and word[1] != "-" and reader.takes_value(word[:2]):
            line.flags.append(word)
        else:
            _take_of_sbatch(reader, line, word, left)
    return line


def _take_of_sbatch(reader: Parser, line: Line, word: str, left: list[str]) -> None:
    flag = word.partition("=")[0]
    if not slurm.is_known(flag):
        reader.refuse(word)
    words = [word] if "=" in word or flag in slurm.SWITCHES or not left else [word, left.pop(0)]
    meant = slurm.translate(words)
    line.flags += meant.words
    for text in meant.ignored:
        tell(f"warning: {text.removeprefix('#SBATCH ')}", file=sys.stderr)


def _wants_help(argv: Sequence[str]) -> bool:
    return bool(argv) and argv[0] in HELP_WORDS


def _source(line: Line) -> tuple[str, bytes]:
    """Return the name and the bytes of what is to run."""
    if line.wrap is not None:
        if not line.wrap.strip():
            raise InvalidRequest("no-command", '--wrap is empty: write the command line, as in --wrap "python train.py".')
        return "wrap", f"#!/bin/bash\n{line.wrap}\n".encode()
    if line.file == STDIN:
        if sys.stdin.isatty():
            raise InvalidRequest("usage", "Name the job file, as in `mgpu_sbatch job.sh`.")
        return "stdin", sys.stdin.buffer.read()
    return Path(line.file).name, read_file(line.file)


def read_file(path: str) -> bytes:
    """Return what is in a file, or say why it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest("no-file", f"{path} cannot be read ({error.strerror}): name a job file that is there.") from None


def _submit(request: Submission, line: Line, make_client: Callable[[], Client]) -> int:
    point_at(request.master_host, request.master_port)
    with make_client() as client:
        if request.dry_run or line.test_only:
            told = client.dry_run_spec(request.spec)
            document(told) if request.json else tell(*as_lines(told, time.time()))
            return 0 if told.verdict == "now" else WOULD_WAIT_EXIT
        job = client.submit_spec(request.spec)
    ids = [one.id for one in job.jobs] if isinstance(job, JobArray) else []
    if request.json:
        more = {"array_id": job.id, "job_ids": ids} if ids else {}
        document({"job_id": ids[0] if ids else job.id, "state": "queued", **more})
    else:
        tell(job.id if line.parsable else f"Submitted batch job {job.id}")
    return 0
