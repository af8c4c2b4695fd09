"""`mgpu validate`: says line by line what is wrong with a job file, what is not honoured, and whether it could ever run here."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, Unauthorised, Unavailable
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.cli.sbatch import read_file, sentence
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.jobfile import SHELLS, Finding, interpreter, read_bytes, read_job_file
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.model.job import JobSpec

CHECK_S = 10.0
_SYNTAX = re.compile(r".*?: line (\d+): (.*)")


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Check a job file: directives, resources, interpreter or image. Exits with 0 if it can be submitted, else with 1."
    result = Parser(prog, f"{prog} FILE [--offline] [--json]", about, examples=[f"{prog} job.sh"])
    result.add_argument("file", nargs="?", metavar="FILE", help="the job file")
    result.add_argument("--offline", action="store_true", help="do not ask a master whether a node could run it")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Check one file; return 1 if it is not right."""
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
    """Return what there is to say about a file, and the request if it is one."""
    text = read_bytes(read_file(path))
    if isinstance(text, Finding):
        return [text], None
    job_file = read_job_file(text, Path(path).name, environ=os.environ)
    findings = [*job_file.findings, *_interpreter(text), *_syntax(text, path)]
    return sorted(findings, key=lambda one: one.line), None if job_file.submission is None else job_file.submission.spec


def _interpreter(text: str) -> list[Finding]:
    words = interpreter(text)
    if not words or not words[0].startswith("/"):
        return []
    by_env = words[0].endswith("/env")
    wanted = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "") if by_env else words[0]
    if not wanted:
        return [Finding(line=1, level="error", message="env names no program: write it like #!/usr/bin/env python3.")]
    if shutil.which(wanted) is None:
        text = f"{wanted} is not on this machine: it must be on the nodes where this runs."
        return [Finding(line=1, level="warning", message=text)]
    return []


def _syntax(text: str, path: str) -> list[Finding]:
    """Ask the shell whether it could read the script; nothing of it is run."""
    words = interpreter(text)
    program = words[-1].rpartition("/")[2] if words else ""
    shell = shutil.which(program) if program in SHELLS else None
    if shell is None:
        return []
    try:
        done = subprocess.run([shell, "-n", path], capture_output=True, text=True, errors="replace", timeout=CHECK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode == 0:
        return []
    found = [match for line in done.stderr.splitlines() if (match := _SYNTAX.match(line))]
    if not found:
        return [Finding(line=1, level="error", message=f"{program} cannot read it: run  {program} -n {path}")]
    number, what = int(found[0][1]), printable(found[0][2]).rstrip(".")
    return [Finding(line=min(number, text.count("\n") + 1), level="error", message=f"{program} cannot read it: {what}; mend the line.")]


def _ask_master(spec: JobSpec, findings: list[Finding], make_client: Callable[[], Client]) -> str:
    """Ask whether it could run here; no master is no error."""
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
