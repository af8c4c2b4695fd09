"""`mgpu_node`: parse the flags, take the node's lock, run the agent. Says one sentence when that cannot be."""

from __future__ import annotations

import argparse
import fcntl
import logging
import logging.handlers
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from resource import RLIM_INFINITY
from typing import NoReturn

from mgpu_agent import __version__
from mgpu_agent.config import DEFAULT_SCRATCH, AgentConfig
from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.protocol.bounds import GPUS
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.ids import NODE_ID_PATTERN, NodeId
from mgpu_agent.protocol.join import JoinString, read_join
from mgpu_agent.protocol.log_lines import LogFormatter
from mgpu_agent.protocol.places import check_private_file, check_private_state, host_name, make_private_dir, state_place
from mgpu_agent.protocol.text import tell
from mgpu_agent.run_as.account import Confinement
from mgpu_agent.run_as.cgroups import why_none
from mgpu_agent.run_as.drop import LIMITS, close_inherited

FROM_STDIN = "-"
MASTER_WAIT_S = "15"
"""How long a master on this machine, named by its port, may need to be there; MGPU_MASTER_WAIT sets another time."""
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what the earlier tool bound; no peer reaches a node by it
_LOG_BYTES = 1024 * 1024
_LOCK_NAME = "agent.lock"
DIGITS = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node agent; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    if arguments is None:
        close_inherited()
    try:
        join = None if options.join is None else _read_line(options.join)
        config = _config(options, join)
        return _run(config, join, words, is_verbose=options.verbose)
    except MgpuError as error:
        tell(error.message, file=sys.stderr)
        return 1


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence; `--help` has the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}: see {self.prog} --help.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mgpu_node", allow_abbrev=False, description="Offer this machine's GPUs to an mgpu master.")
    parser.add_argument("--node-id", type=_node_id, metavar="ID", help="default: what the join line says, else the host name")
    parser.add_argument("--join", metavar="LINE", help="join a master by the line that `mgpu join-token` printed; - reads it from stdin")
    parser.add_argument("--master-host", metavar="H", help="default: this machine")
    parser.add_argument("--master-port", type=int, metavar="P", help="the master's HTTP port; default: any master of yours here")
    parser.add_argument("--host", metavar="ADDR", help="the address announced to peers; default: the one that reaches the master")
    parser.add_argument("--port", "--agent-port", type=_port, default=0, metavar="P", help="the port announced to peers")
    parser.add_argument("--fake-gpus", type=_count, metavar="N", help="offer N simulated GPUs in place of real ones")
    parser.add_argument("--gpu-count", type=_count, metavar="N", help="offer at most N GPUs; simulated ones where no NVIDIA driver is")
    parser.add_argument("--rack", default="", metavar="R")
    parser.add_argument("--switch", default="", metavar="S")
    parser.add_argument("--label", action="append", default=[], type=_label, metavar="K=V", help="may be repeated")
    parser.add_argument("--state-dir", metavar="DIR", help="where state is kept; default: $MGPU_STATE_DIR, else a place of mgpu's own")
    parser.add_argument("--run-as-user", action="store_true", help="run each job as its user, not as root; needs root")
    parser.add_argument(
        "--map-user",
        action="append",
        default=[],
        type=_label,
        metavar="USER=ACCOUNT",
        help="with --run-as-user: the account of a user whose name differs here, or who may be root (repeatable)",
    )
    parser.add_argument("--scratch-dir", type=Path, metavar="DIR", help=f"with --run-as-user: files of jobs; default: {DEFAULT_SCRATCH}")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        type=_limit,
        metavar="NAME=SOFT[:HARD]",
        help="with --run-as-user: a resource limit of every job, like nofile=4096:65536 or nproc=2000 (repeatable)",
    )
    parser.add_argument(
        "--cgroup-limits", action="store_true", help="with --run-as-user: jobs get no more than they asked for by --cpus and --mem-per-node"
    )
    parser.add_argument(
        "--no-new-privs", action="store_true", help="with --run-as-user: jobs gain no rights by sudo or other setuid programs"
    )
    parser.add_argument("--embedded", action="store_true", help="belongs to a Jupyter server: log to a file, end with the master")
    parser.add_argument("--verbose", action="store_true", help="log every task")
    parser.add_argument("--version", action="version", version=f"mgpu_node {__version__}")
    return parser


def _default_node_id() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", host_name())[:63].lstrip("._-") or "node"


def _node_id(text: str) -> NodeId:
    if not re.fullmatch(NODE_ID_PATTERN, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no node id: use letters, digits, dot, dash and underscore, at most 63")
    return NodeId(text)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs")
    if len(text) > DIGITS or int(text) > GPUS:
        raise argparse.ArgumentTypeError(f"one node offers at most {GPUS} GPUs, so start several nodes")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is none: write NAME=VALUE")
    return name, value


def _limit(text: str) -> tuple[str, int, int]:
    name, _, values = text.partition("=")
    soft, colon, hard = values.partition(":")
    numbers = [RLIM_INFINITY if one == "unlimited" else int(one) if one.isdecimal() else None for one in (soft, hard if colon else soft)]
    if name not in LIMITS or None in numbers:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none: write NAME=SOFT or NAME=SOFT:HARD with NAME one of {', '.join(sorted(LIMITS))}"
        )
    first, most = (number for number in numbers if number is not None)
    if most != RLIM_INFINITY and (first == RLIM_INFINITY or first > most):
        raise argparse.ArgumentTypeError(f"{text!r} has a soft limit above its hard one: write NAME=SOFT:HARD")
    return name, first, most


def _read_line(text: str) -> JoinString:
    join = read_join(sys.stdin.readline() if text == FROM_STDIN else text)
    join.check_not_expired(time.time())
    return join


def _config(options: argparse.Namespace, join: JoinString | None) -> AgentConfig:
    named = None if join is None else join.node_id
    if named is not None and options.node_id not in (None, named):
        raise InvalidRequest("wrong-node-id", f"This join line is for {named}, not for {options.node_id}: use that --node-id.")
    if options.run_as_user and os.getuid() != 0:
        raise InvalidRequest("not-root", "--run-as-user needs root, who alone can start processes of others: start mgpu_node as root.")
    bound = options.limit or options.no_new_privs or options.cgroup_limits
    if (options.map_user or options.scratch_dir or bound) and not options.run_as_user:
        text = "--map-user, --scratch-dir, --limit, --cgroup-limits and --no-new-privs mean nothing without --run-as-user: add it."
        raise InvalidRequest("no-run-as-user", text)
    if options.cgroup_limits and (problem := why_none()):
        raise InvalidRequest("no-cgroups", f"--cgroup-limits cannot be kept on this machine, leave it out: {problem}.")
    env = {**os.environ, "MGPU_STATE_DIR": options.state_dir} if options.state_dir else os.environ
    return AgentConfig(
        node_id=options.node_id or named or NodeId(_default_node_id()),
        state=state_place(env).path,
        master_host=options.master_host,
        master_port=options.master_port,
        address=None if options.host in EVERYWHERE else options.host,
        port=options.port,
        fake_gpus=options.fake_gpus,
        gpu_count=options.gpu_count,
        rack=options.rack,
        switch=options.switch,
        labels=dict(options.label),
        is_embedded=options.embedded,
        run_as_user=options.run_as_user,
        user_map=dict(options.map_user),
        scratch=None if options.scratch_dir is None else options.scratch_dir.absolute(),
        confinement=Confinement(limits=tuple(options.limit), no_new_privs=options.no_new_privs, cgroups=options.cgroup_limits),
    )


def _run(config: AgentConfig, join: JoinString | None, words: list[str], *, is_verbose: bool) -> int:
    check_private_state(config.state)
    make_private_dir(config.state / "nodes")
    directory = make_private_dir(config.directory)
    check_private_file(directory / "ledger")
    lock = _take_lock(directory)
    if lock is None:
        again = "" if join is None else " Stop it first, then run the line again."
        tell(f"The agent of node {config.node_id} is already running.{again}", file=sys.stderr)
        return 0 if config.is_embedded else 1
    try:
        if join is not None:
            _keep_line(config, join, words)
        _start_log(directory, is_embedded=config.is_embedded, is_verbose=is_verbose)
        return _serve(config)
    finally:
        os.close(lock)


def _serve(config: AgentConfig) -> int:
    from mgpu_agent.agent import Agent
    from mgpu_agent.identity import Identity
    from mgpu_agent.parts import open_parts
    from mgpu_agent.whereabouts import find_master

    identity = Identity(config.directory)
    where = find_master(config, identity.enrolment, identity.join)
    if where is None and config.master_port is not None and config.is_master_local and not config.is_embedded:
        # Scripts start master and nodes in one breath.
        deadline = time.monotonic() + float(os.environ.get("MGPU_MASTER_WAIT") or MASTER_WAIT_S)
        while where is None and time.monotonic() < deadline:
            time.sleep(0.1)
            where = find_master(config, identity.enrolment, identity.join)
    if where is None:
        tell(_no_master(config), file=sys.stderr)
        return 1
    agent = Agent(config, identity, where, open_parts(config, where, _gpu_source(config)))
    code = agent.run()
    if code:
        identity.forget_join()
        tell(agent.end_reason or "", file=sys.stderr)
    return code


def _keep_line(config: AgentConfig, join: JoinString, words: list[str]) -> None:
    """Save the line, and begin again without it: command lines can be read by everyone on this machine."""
    from mgpu_agent.identity import Identity

    Identity(config.directory).save_join(join)
    plain = without_line(words)
    if len(plain) < len(words):
        program = sys.orig_argv[1 : len(sys.orig_argv) - len(words)]
        os.execv(sys.executable, [sys.executable, *program, *plain, "--node-id", config.node_id])  # noqa: S606 - no shell is wanted


def without_line(words: list[str]) -> list[str]:
    """Return the words of the command line without `--join` and `--node-id` and what they say."""
    plain: list[str] = []
    is_value = False
    for word in words:
        flag, equals, _ = word.partition("=")
        if is_value or flag in ("--join", "--node-id"):
            is_value = not is_value and not equals
        else:
            plain.append(word)
    return plain


def _gpu_source(config: AgentConfig) -> GpuSource:
    from mgpu_agent.gpu.fake import FakeGpuSource

    if config.fake_gpus is not None:
        return FakeGpuSource(config.node_id, config.fake_gpus)
    from mgpu_agent.gpu.nvml import NO_DRIVER, open_nvml

    source = open_nvml()
    if config.gpu_count and source.note == NO_DRIVER:
        # The earlier tool believed this number; what it stands for here says so wherever it is shown.
        tell(f"No NVIDIA driver is installed: --gpu-count {config.gpu_count} offers as many simulated GPUs.", file=sys.stderr)
        return FakeGpuSource(config.node_id, config.gpu_count)
    return source


def _no_master(config: AgentConfig) -> str:
    if not config.is_master_local:
        return (
            f"This machine is not enrolled with the master on {config.master_host}: "
            "run `mgpu join-token` there and start mgpu_node with the line it prints."
        )
    port = "" if config.master_port is None else f" on port {config.master_port}"
    return f"No mgpu master{port} of yours runs on this machine: start one with mgpu_master or JupyterLab, then start mgpu_node again."


def _take_lock(directory: Path) -> int | None:
    descriptor = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _start_log(directory: Path, *, is_embedded: bool, is_verbose: bool) -> None:
    handler: logging.Handler
    if is_embedded:
        path = directory / "agent.log"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
    else:
        handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logger = logging.getLogger("mgpu")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if is_verbose else logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
