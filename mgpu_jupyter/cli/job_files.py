"""Commands about job files: `mgpu sbatch` submits one and returns, `mgpu validate` prints what is wrong.

The meaning of a file's lines is in `client/jobfile.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, Unauthorised, Unavailable
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.cli.command import Command, MakeClient, add_json, point_at
from mgpu_jupyter.cli.show import document, show_help
from mgpu_jupyter.client import slurm
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.jobfile import SHELLS, Finding, interpreter, read_bytes, read_job_file
from mgpu_jupyter.client.parser import HELP_WORDS, Parser
from mgpu_jupyter.client.reasons import WOULD_WAIT_EXIT, as_lines
from mgpu_jupyter.client.request import Submission, srun_parser
from mgpu_jupyter.model.job import JobSpec

STDIN = "-"
BAD_FILE_EXIT = 2

CHECK_S = 10.0
_SYNTAX = re.compile(r".*?: line (\d+): (.*)")


class BatchLine(msgspec.Struct):
    """The command line, apart from the file."""

    flags: list[str] = []
    file: str = STDIN
    arguments: list[str] = []
    wrap: str | None = None
    parsable: bool = False
    test_only: bool = False


def _sbatch_parser(prog: str) -> Parser:
    """Return the flags: those of `mgpu_srun`, and a few of sbatch."""
    result = srun_parser(prog)
    result.usage = f"{prog} [flags] FILE [ARGUMENTS…]"
    result.description = (
        "Submit a job file, a script with #MGPU or #SBATCH lines above its first command, and return at once."
    )
    result.epilog = "\n".join(
        [
            (
                "Flags here go before those of the file. Of sbatch's own flags those that mean something "
                "here "
                "are taken too;"
            ),
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


def _sbatch(argv: Sequence[str], make_client: MakeClient) -> int:
    """Submit; return 0, or 2 for a file with errors."""
    if _wants_help(argv):
        return show_help(_sbatch_parser("mgpu_sbatch").format_help())
    line = read_line(argv)
    name, data = _source(line)
    text = read_bytes(data)
    found = [text] if isinstance(text, Finding) else None
    job_file = (
        None
        if isinstance(text, Finding)
        else read_job_file(text, name, flags=line.flags, arguments=line.arguments, environ=os.environ)
    )
    for finding in found or (job_file.findings if job_file else ()):
        tell(sentence(name, finding), file=sys.stderr)
    if job_file is None or job_file.submission is None:
        return BAD_FILE_EXIT
    return _submit(job_file.submission, line, make_client)


def sentence(name: str, finding: Finding) -> str:
    """Return a finding in the format of compilers."""
    return f"{name}:{finding.line}: {'' if finding.level == 'error' else 'warning: '}{finding.message}"


def read_line(argv: Sequence[str]) -> BatchLine:
    """Split the command line: flags, file, words for the script; flags of sbatch become ours."""
    reader = _sbatch_parser("mgpu_sbatch")
    line = BatchLine([], STDIN, [])
    left = list(argv)
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        if not word.startswith("-") or word == STDIN:
            line.file, line.arguments = word, left
            break
        if flag == "--wrap":
            line.wrap = value if equals else (left.pop(0) if left else "")
        elif word == "--parsable":
            line.parsable = True
        elif word == "--test-only":
            line.test_only = True
        elif flag in ("--ntasks", "-n"):  # of a script sbatch means room for what it starts, not copies
            _take_of_sbatch(reader, line, word, left)
        elif (takes := reader.takes_value(flag)) is not None:
            line.flags += [word, left.pop(0)] if takes and not equals and left else [word]
        elif len(word) > 2 and word[1] != "-" and reader.takes_value(word[:2]):
            line.flags.append(word)
        else:
            _take_of_sbatch(reader, line, word, left)
    return line


def _take_of_sbatch(reader: Parser, line: BatchLine, word: str, left: list[str]) -> None:
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


def _source(line: BatchLine) -> tuple[str, bytes]:
    """Return the name and the bytes of the script."""
    if line.wrap is not None:
        if not line.wrap.strip():
            raise InvalidRequest(
                "no-command", '--wrap is empty: write the command line, as in --wrap "python train.py".'
            )
        return "wrap", f"#!/bin/bash\n{line.wrap}\n".encode()
    if line.file == STDIN:
        if sys.stdin.isatty():
            raise InvalidRequest("usage", "Name the job file, as in `mgpu_sbatch job.sh`.")
        return "stdin", sys.stdin.buffer.read()
    return Path(line.file).name, read_file(line.file)


def read_file(path: str) -> bytes:
    """Return the content of a file, or raise why it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest(
            "no-file", f"{path} cannot be read ({error.strerror}): name a job file that is there."
        ) from None


def _submit(request: Submission, line: BatchLine, make_client: MakeClient) -> int:
    point_at(request.master_host, request.master_port, prefix="--master-")
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


def _validate_parser(prog: str) -> Parser:
    """Return the flags."""
    about = (
        "Check a job file: directives, resources, interpreter or image. Exits with 0 if it can be "
        "submitted, else with 1."
    )
    result = Parser(prog, f"{prog} FILE [--offline] [--json]", about, examples=[f"{prog} job.sh"])
    result.add_argument("file", nargs="?", metavar="FILE", help="the job file")
    result.add_argument(
        "--offline", action="store_true", help="do not ask a master whether a node could run it"
    )
    add_json(result)
    return result


def _validate(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Check one file; return 1 if it has errors."""
    if not values.file:
        raise InvalidRequest("usage", "Name the job file, as in `mgpu validate job.sh`.")
    findings, spec = findings_of(values.file)
    asked = ""
    if spec is not None and not values.offline:
        asked = _ask_master(spec, findings, make_client)
    bad = any(finding.level == "error" for finding in findings)
    if values.json:
        document({"file": values.file, "ok": not bad, "findings": findings, "cluster": asked})
        return int(bad)
    for finding in findings:
        tell(sentence(values.file, finding))
    if not bad:
        tell(f"{values.file}: can be submitted{f'; {asked}' if asked else ''}")
    return int(bad)


def findings_of(path: str) -> tuple[list[Finding], JobSpec | None]:
    """Return the findings about a file, and the request if it is one."""
    text = read_bytes(read_file(path))
    if isinstance(text, Finding):
        return [text], None
    job_file = read_job_file(text, Path(path).name, environ=os.environ)
    findings = [*job_file.findings, *_interpreter(text), *_syntax(text, path)]
    return sorted(
        findings, key=lambda one: one.line
    ), None if job_file.submission is None else job_file.submission.spec


def _interpreter(text: str) -> list[Finding]:
    words = interpreter(text)
    if not words or not words[0].startswith("/"):
        return []
    by_env = words[0].endswith("/env")
    wanted = (
        next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        if by_env
        else words[0]
    )
    if not wanted:
        return [
            Finding(
                line=1, level="error", message="env names no program: write it like #!/usr/bin/env python3."
            )
        ]
    if shutil.which(wanted) is None:
        text = f"{wanted} is not on this machine: it must be on the nodes where this runs."
        return [Finding(line=1, level="warning", message=text)]
    return []


def _syntax(text: str, path: str) -> list[Finding]:
    """Ask the shell whether it can parse the script; nothing of it is run."""
    words = interpreter(text)
    program = words[-1].rpartition("/")[2] if words else ""
    shell = shutil.which(program) if program in SHELLS else None
    if shell is None:
        return []
    try:
        done = subprocess.run(
            [shell, "-n", path],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode == 0:
        return []
    found = [match for line in done.stderr.splitlines() if (match := _SYNTAX.match(line))]
    if not found:
        return [Finding(line=1, level="error", message=f"{program} cannot read it: run  {program} -n {path}")]
    number, what = int(found[0][1]), printable(found[0][2]).rstrip(".")
    return [
        Finding(
            line=min(number, text.count("\n") + 1),
            level="error",
            message=f"{program} cannot read it: {what}; mend the line.",
        )
    ]


def _ask_master(spec: JobSpec, findings: list[Finding], make_client: MakeClient) -> str:
    """Ask whether it could run here; a missing master is no error."""
    try:
        with make_client() as client:
            told = client.dry_run_spec(spec)
    except (Unavailable, Unauthorised):
        return "no master was asked whether a node could run it"
    except MgpuError as error:
        findings.append(Finding(line=1, level="error", message=error.message))
        return ""
    if told.verdict == "never":
        findings.append(Finding(line=1, level="error", message=printable(told.text)))
        return ""
    return printable(told.text)


COMMANDS = {
    "sbatch": Command(_sbatch_parser, main=_sbatch),
    "validate": Command(_validate_parser, _validate),
}
