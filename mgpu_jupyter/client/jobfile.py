"""Job files: scripts with `#MGPU` and `#SBATCH` lines. Turns text into a checked request, or findings by
line.

A finding is one sentence that says what is wrong, or not supported, and what to do. Reads no file and sends
nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client import flags as table
from mgpu_jupyter.client import slurm
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.parser import HELP_WORDS, Help
from mgpu_jupyter.client.request import Submission, parse, split_command, srun_parser
from mgpu_jupyter.model.job import MAX_SCRIPT_CHARS, JobSpec

PROG = "mgpu_sbatch"
NOT_IN_FILES = table.NOT_IN_FILES | set(HELP_WORDS)
SHELLS = frozenset(("bash", "sh", "zsh", "dash", "ksh"))
_DIRECTIVE = re.compile(r"#(MGPU|SBATCH)(?=\s|$)(.*)")
_NEAR = re.compile(r"#\s*(?:MGPU|SBATCH)\b|#(?:mgpu|sbatch)\b", re.IGNORECASE)
_PYTHON = re.compile(r"python[\d.]*")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence about one line; lines count from 1."""

    line: int
    level: Literal["error", "warning"]
    message: str


class Directive(msgspec.Struct, frozen=True):
    """A line with flags of the job."""

    line: int
    words: tuple[str, ...]
    """As arguments of `mgpu_srun`."""


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a file asks for; without a `submission` there is at least one error."""

    submission: Submission | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        """Return what keeps it from being submitted."""
        return [finding for finding in self.findings if finding.level == "error"]


def read_bytes(data: bytes) -> str | Finding:
    """Return the text of a file, or why it is not text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _error(line, f"Byte {error.start + 1} is not UTF-8: save the file as UTF-8 text.")
    if "\0" in text:
        return _error(
            text.count("\n", 0, text.index("\0")) + 1,
            "There is a NUL character: remove it, a script is text.",
        )
    return text


def read_job_file(
    text: str,
    name: str,
    *,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
    arguments: Sequence[str] = (),
    here: Here | None = None,
) -> JobFile:
    """Return what a file asks for; `flags` override its own, and `arguments` go to the script."""
    here = here or Here.real()
    findings = _shape(text)
    directives = _directives(text, findings)
    if any(finding.level == "error" for finding in findings):
        return JobFile(submission=None, findings=tuple(findings))
    called = "" if _names_job(directives, flags) else _plain(name)
    words: list[str] = ["--name", called] if called else []
    submission: Submission | None = None
    # Parsed again with each line, so that a contradiction is reported at the later line.
    for line, more in [(1, ()), *((one.line, one.words) for one in directives), (1, tuple(flags))]:
        words += more
        try:
            submission = _read(words, text, environ, here)
        except InvalidRequest as error:
            findings.append(_error(line, error.message))
            return JobFile(submission=None, findings=tuple(findings))
    assert submission is not None
    try:
        spec = with_arguments(submission.spec, text, arguments, name)
    except InvalidRequest as error:
        findings.append(_error(1, error.message))
        return JobFile(submission=None, findings=tuple(findings))
    return JobFile(
        submission=replace(submission, spec=spec, background=True),
        findings=tuple(sorted(findings, key=lambda one: one.line)),
    )


def with_arguments(spec: JobSpec, text: str, arguments: Sequence[str], name: str) -> JobSpec:
    """Return the request with arguments for the script, on the command line of its interpreter."""
    if not arguments:
        return spec
    words = interpreter(text)
    program = words[-1].rpartition("/")[2] if words else ""
    if program not in SHELLS and not _PYTHON.fullmatch(program):
        raise InvalidRequest(
            "no-arguments",
            f"{program or 'This interpreter'} cannot be given words for the script: use --env NAME=VALUE.",
        )
    own = (name,) if program in SHELLS else ()
    return replace(spec, script=None, command=(*words, "-c", text, *own, *arguments))


def interpreter(text: str) -> tuple[str, ...]:
    """Return the words of the `#!` line."""
    first = text.partition("\n")[0]
    return tuple(first[2:].split()) if first.startswith("#!") else ()


def _read(words: Sequence[str], text: str, environ: Mapping[str, str], here: Here) -> Submission:
    request = parse([*words, "--background"], cell=text, environ=environ, prog=PROG, here=here)
    assert not isinstance(request, Help)
    return request


def _shape(text: str) -> list[Finding]:
    """Return what is wrong with the file as a script."""
    if not text.strip():
        return [_error(1, "The file is empty: write a script that begins with #!/bin/bash.")]
    if len(text) > MAX_SCRIPT_CHARS:
        return [
            _error(
                1,
                f"The file has over {MAX_SCRIPT_CHARS} characters: let the script read its data from "
                f"another file.",
            )
        ]
    findings = []
    lines = text.split("\n")
    if lines[0].endswith("\r"):
        findings.append(
            _error(
                1,
                "Lines end with CR LF, which no Unix interpreter takes: convert it with  sed -i 's/\\r$//' "
                "FILE",
            )
        )
    elif not lines[0].startswith("#!"):
        findings.append(
            _error(
                1,
                "The first line must name the interpreter: begin the file with #!/bin/bash or "
                "#!/usr/bin/env python3.",
            )
        )
    elif not lines[0][2:].strip().startswith("/"):
        findings.append(
            _error(1, "The interpreter must be a whole path: write #!/bin/bash or #!/usr/bin/env python3.")
        )
    elif not any(line.strip() and not line.lstrip().startswith("#") for line in lines):
        findings.append(_error(len(lines), "There is no command below the directives: write what is to run."))
    return findings


def _directives(text: str, findings: list[Finding]) -> list[Directive]:
    found: list[Directive] = []
    is_body = False
    for number, line in enumerate(text.split("\n"), 1):
        match = _DIRECTIVE.match(line)
        if match is None:
            is_body = is_body or bool(line.strip() and not line.lstrip().startswith("#"))
            if not is_body and number > 1 and _NEAR.match(line):
                findings.append(
                    _warning(
                        number,
                        "This looks like a directive and is a comment: write #MGPU or #SBATCH, and a blank "
                        "after it.",
                    )
                )
        elif is_body:
            findings.append(
                _warning(number, f"#{match[1]} below the first command does not count: move the line up.")
            )
        else:
            try:
                found.append(_directive(number, match[1], match[2], findings))
            except InvalidRequest as error:
                findings.append(_error(number, error.message))
    return found


def _directive(number: int, family: str, rest: str, findings: list[Finding]) -> Directive:
    try:
        words = shlex.split(rest, comments=True)
    except ValueError:
        raise InvalidRequest(
            "bad-directive", "A quotation mark is not closed: close it on the same line."
        ) from None
    if not words:
        raise InvalidRequest("bad-directive", f"#{family} without a flag: write it like #{family} --gpus 1.")
    if family == "SBATCH":
        meant = slurm.translate(words)
        findings += [_warning(number, sentence) for sentence in meant.ignored]
        return Directive(number, tuple(meant.words))
    flags, command = split_command(srun_parser(PROG), words)
    if len(flags) < len(words):
        word = command[0] if command else "--"
        raise InvalidRequest(
            "bad-directive",
            f"{word!r} is no flag: write it like #MGPU --gpus 1; commands go below the directives.",
        )
    for flag in (word.partition("=")[0] for word in flags):
        if flag in NOT_IN_FILES:
            raise InvalidRequest(
                "bad-directive",
                f"{flag} has no meaning in a job file: leave it out, or give it to mgpu_sbatch itself.",
            )
    return Directive(number, tuple(words))


def _names_job(directives: Sequence[Directive], flags: Sequence[str]) -> bool:
    words = [word for one in directives for word in one.words] + list(flags)
    return any(
        word.partition("=")[0] in table.BY_DEST["name"].names or word.startswith("-J") for word in words
    )


def _plain(name: str) -> str:
    return "".join(char for char in name if char.isprintable())[:200]


def _error(line: int, message: str) -> Finding:
    return Finding(line=line, level="error", message=message)


def _warning(line: int, message: str) -> Finding:
    return Finding(line=line, level="warning", message=message)
