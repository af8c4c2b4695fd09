"""Which flags each command has: as the reference lists them, and as they are read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.cli import client as earlier
from mgpu_jupyter.cli import job_files
from mgpu_jupyter.cli.command import point_at, seconds
from mgpu_jupyter.cli.job_files import BatchLine, read_line
from mgpu_jupyter.cli.main import COMMANDS, PROGRAMS, command_of
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.request import srun_parser

PAGE = Path(__file__).parents[2] / "mgpu_jupyter/docs/reference/commands.md"
SECTIONS = {
    part.partition("\n")[0].lstrip("# "): part
    for part in re.split(r"^##+ (?=mgpu[ _])", PAGE.read_text(), flags=re.MULTILINE)[1:]
}


def listed(section: str) -> list[str]:
    """Return the flags and words of a command, in the order of its table in the reference."""
    rows = re.findall(r"^\| (`.*?`) \| ", SECTIONS[section], re.MULTILINE)
    return [re.sub(r"[ `].*", "", part.strip("` ")) for row in rows for part in row.split(", ")]


def of_parser(parser: Parser, *, without: set[str] = set()) -> list[str]:  # noqa: B006 - never changed
    found: list[str] = []
    for action in parser.actions[1:]:
        if action.option_strings:
            found += [name for name in action.option_strings if name not in without]
        else:
            found.append(str(action.metavar or action.dest.upper()))
    return found


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("srun", "sbatch")])
def test_a_command_has_the_flags_of_the_reference(name: str) -> None:
    assert sorted(of_parser(command_of(name).parser(f"mgpu {name}"))) == sorted(listed(f"mgpu {name}"))


def test_those_that_take_requests() -> None:
    requests = set(srun_parser("x").flag_names())
    parser = command_of("sbatch").parser("mgpu sbatch")
    assert (
        of_parser(parser, without=requests)
        == listed("mgpu sbatch")
        == ["--wrap", "--parsable", "--test-only"]
    )
    assert command_of("srun").parser("mgpu srun").flag_names() == srun_parser("x").flag_names()


@pytest.mark.parametrize("action", earlier.ACTIONS)
def test_the_earlier_client(action: str) -> None:
    found = of_parser(earlier.parser_of_action("mgpu client", action))
    assert sorted(found) == sorted(listed(f"mgpu client {action}"))


def test_every_program_is_a_command() -> None:
    assert set(PROGRAMS.values()) <= set(COMMANDS)


def values(name: str, line: str) -> dict[str, Any]:
    read = command_of(name).parser(f"mgpu {name}").read(line.split())
    assert not isinstance(read, Help)
    return {key: value for key, value in vars(read).items() if value and key != "help"}


@pytest.mark.parametrize(
    ("name", "line", "found"),
    [
        ("queue", "--all --start --json", {"all": True, "start": True, "json": True}),
        ("queue", "-l --noheader --watch --me", {"long": True, "noheader": True, "watch": True, "me": True}),
        ("queue", "-S -M -o x -u a -j b", {"sort": "-M", "format": "x", "user": "a", "jobs": "b"}),
        ("queue", "-t R -p g -w n -n m", {"states": "R", "partition": "g", "nodelist": "n", "name": "m"}),
        ("queue", "--host h --port 1", {"host": "h", "port": "1"}),
        ("cancel", "A B", {"jobs": ["A", "B"]}),
        ("cancel", "--all -u a --name n --json", {"all": True, "user": "a", "name": "n", "json": True}),
        ("update", "A --priority 3 -t 01:00:00", {"jobs": ["A"], "priority": 3, "time": 3600.0}),
        ("update", "A B --time-limit 90", {"jobs": ["A", "B"], "time_limit": 90.0}),
        ("rerun", "A --attach", {"jobs": ["A"], "attach": True}),
        ("purge", "", {"older_than": "30d"}),
        ("purge", "--older-than 7d --all --dry-run", {"older_than": "7d", "all": True, "dry_run": True}),
        ("logs", "A --rank 1 -f", {"job": "A", "rank": 1, "follow": True}),
        ("attach", "A --rank 1", {"job": "A", "rank": 1}),
        ("trace", "A --verify", {"job": "A", "verify": True}),
        ("results", "A --to d --json", {"job": "A", "to": "d", "json": True}),
        ("node", "drain n --reason r", {"action": "drain", "node_id": "n", "reason": "r"}),
        ("node", "label n a=1 b-", {"action": "label", "node_id": "n", "labels": ["a=1", "b-"]}),
        (
            "node",
            "allow n --user a --user b --account c --only",
            {"action": "allow", "node_id": "n", "user": ["a", "b"], "account": ["c"], "only": True},
        ),
        ("node", "allow n --everybody", {"action": "allow", "node_id": "n", "everybody": True}),
        ("join-token", "", {"ttl": "1h"}),
        (
            "join-token",
            "--node-id n --listen a --listen b",
            {"ttl": "1h", "node_id": "n", "listen": ["a", "b"]},
        ),
        ("user", "add ann --admin --ttl 1d", {"action": "add", "name": "ann", "admin": True, "ttl": "1d"}),
        ("validate", "f --offline", {"file": "f", "offline": True}),
    ],
)
def test_a_line_is_read(name: str, line: str, found: dict[str, Any]) -> None:
    assert values(name, line) == found


def test_the_program_of_before_always_verifies() -> None:
    trace = command_of("trace")
    assert vars(trace.parser("debug_job_tracking").read(["A"]))["verify"] is True  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("job.sh", {"file": "job.sh"}),
        ("", {}),
        ("-", {}),
        (
            "--gpus 2 job.sh 0.1 --x",
            {"flags": ["--gpus", "2"], "file": "job.sh", "arguments": ["0.1", "--x"]},
        ),
        ("--gpus=2 --parsable job.sh", {"flags": ["--gpus=2"], "parsable": True, "file": "job.sh"}),
        ("--test-only --exclusive job.sh", {"test_only": True, "flags": ["--exclusive"], "file": "job.sh"}),
        ("--wrap ls", {"wrap": "ls"}),
        ("--wrap=ls", {"wrap": "ls"}),
        ("--wrap", {"wrap": ""}),
        ("-N2 job.sh", {"flags": ["-N2"], "file": "job.sh"}),
        ("--gpus", {"flags": ["--gpus"]}),
    ],
)
def test_a_line_of_sbatch(line: str, found: dict[str, Any]) -> None:
    assert read_line(line.split()) == BatchLine(**found)


def test_flags_that_sbatch_alone_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_line(["--no-kill", "job.sh"]).file == "job.sh"
    assert capsys.readouterr().err.startswith("warning: --no-kill")
    with pytest.raises(InvalidRequest, match="There is no flag --gpsu: use --gpus"):
        read_line(["--gpsu", "2", "job.sh"])


@pytest.mark.parametrize(
    ("text", "span"),
    [("30", 30), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("9999999", 9_999_999)],
)
def test_a_span(text: str, span: int) -> None:
    assert seconds(text) == span


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0", "--ttl 0: write a time above nothing, like 30m, 1h or 2d."),
        ("-5m", "--ttl -5m: write a time above nothing, like 30m, 1h or 2d."),
        ("1w", "--ttl 1w: write a time like 30m, 1h or 2d."),
        ("", "--ttl : write a time like 30m, 1h or 2d."),
    ],
)
def test_a_span_that_is_none(text: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        seconds(text)
    assert caught.value.message == told


@pytest.mark.parametrize(
    ("host", "port", "found"),
    [
        (None, None, {"MGPU_URL": "u"}),
        ("h", None, {"MGPU_MASTER_HOST": "h"}),
        (None, "1", {"MGPU_MASTER_PORT": "1"}),
        ("h", "65535", {"MGPU_MASTER_HOST": "h", "MGPU_MASTER_PORT": "65535"}),
    ],
)
def test_which_master(
    monkeypatch: pytest.MonkeyPatch, host: str | None, port: str | None, found: dict[str, str]
) -> None:
    names = ("MGPU_URL", "MGPU_MASTER_HOST", "MGPU_MASTER_PORT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MGPU_URL", "u")
    for name in names[1:]:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    point_at(host, port)
    assert {name: os.environ[name] for name in names if name in os.environ} == found
    for name in names:
        os.environ.pop(name, None)


@pytest.mark.parametrize(
    ("host", "port", "told"),
    [
        (" ", None, "--host is empty: write the name of the master's machine."),
        (None, "0", "--port 0 is not a port: write a number from 1 to 65535, like 8080."),
        (None, "65536", "--port 65536 is not a port: write a number from 1 to 65535, like 8080."),
        (None, "٣", "--port ٣ is not a port: write a number from 1 to 65535, like 8080."),
        (None, "x", "--port x is not a port: write a number from 1 to 65535, like 8080."),
    ],
)
def test_a_master_that_is_none(host: str | None, port: str | None, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        point_at(host, port)
    assert caught.value.message == told


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("#!/bin/bash\necho ok\n", []),
        (
            "#!/usr/bin/env -S bash\nif\n",
            [(3, "error", "bash cannot read it: syntax error: unexpected end of file; mend the line.")],
        ),
        (
            "#!/usr/bin/env\nls\n",
            [(1, "error", "env names no program: write it like #!/usr/bin/env python3.")],
        ),
        (
            "#!/no/such/program\nls\n",
            [
                (
                    1,
                    "warning",
                    "/no/such/program is not on this machine: it must be on the nodes where this runs.",
                )
            ],
        ),
        (
            "#!/bin/bash\nfi\n",
            [(2, "error", "bash cannot read it: syntax error near unexpected token `fi'; mend the line.")],
        ),
    ],
)
def test_what_a_file_would_do(tmp_path: Path, text: str, findings: list[tuple[int, str, str]]) -> None:
    path = tmp_path / "job.sh"
    path.write_text(text)
    found, _ = job_files.findings_of(str(path))
    assert [(one.line, one.level, one.message) for one in found] == findings
