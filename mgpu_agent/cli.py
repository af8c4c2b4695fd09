"""`mgpu_node`: parse the flags, take the node's lock, run the agent. Prints one sentence when it cannot."""

from __future__ import annotations

import argparse
import logging
import logging.handlers
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mgpu_agent.config import AgentConfig
from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.keeper.messages import AGENT_LOG_NAME
from mgpu_agent.node_flags import parser
from mgpu_agent.node_lock import AGAIN, take_lock, take_over
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.join import JoinString, read_join
from mgpu_agent.protocol.log_lines import LogFormatter
from mgpu_agent.protocol.places import (
    check_private_file,
    check_private_state,
    host_name,
    make_private_dir,
    state_place,
)
from mgpu_agent.protocol.text import tell
from mgpu_agent.protocol.wording import count, rounded
from mgpu_agent.run_as.account import Confinement
from mgpu_agent.run_as.cgroups import why_none
from mgpu_agent.run_as.drop import close_inherited

FROM_STDIN = "-"
MASTER_WAIT_S = "60"
"""How long a master on this machine may need to be there; MGPU_MASTER_WAIT sets another time."""
SAID_AFTER_S = 1.0
"""After waiting this long for a master, say so."""
SIMPLE = "mgpu_simple_node"
"""The earlier program, which offers one GPU unless told otherwise."""
MASTER_AWAY_S = "300"
"""How long an agent that was restarted looks for its master."""
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what the earlier tool bound; no peer reaches a node by it
_LOG_BYTES = 1024 * 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node agent; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    is_simple = Path(sys.argv[0]).name == SIMPLE
    options.is_simple = is_simple and options.gpu_count is None and options.fake_gpus is None
    if options.is_simple:
        options.gpu_count = 1
    if arguments is None:
        close_inherited()
    try:
        join = None if options.join is None else _read_line(options.join)
        config = _config(options, join, words)
        return _run(config, join, words, is_verbose=options.verbose)
    except MgpuError as error:
        tell(error.message, file=sys.stderr)
        return 1


def _default_node_id() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", host_name())[:63].lstrip("._-") or "node"


def _read_line(text: str) -> JoinString:
    join = read_join(sys.stdin.readline() if text == FROM_STDIN else text)
    join.check_not_expired(time.time())
    return join


def _config(options: argparse.Namespace, join: JoinString | None, words: list[str]) -> AgentConfig:
    named = None if join is None else join.node_id
    if named is not None and options.node_id not in (None, named):
        raise InvalidRequest(
            "wrong-node-id", f"This join line is for {named}, not for {options.node_id}: use that --node-id."
        )
    if options.run_as_user and os.getuid() != 0:
        raise InvalidRequest(
            "not-root",
            "--run-as-user needs root, who alone can start processes of others: start mgpu_node as root.",
        )
    bound = options.limit or options.no_new_privs or options.cgroup_limits
    if (options.map_user or options.scratch_dir or bound) and not options.run_as_user:
        text = (
            "--map-user, --scratch-dir, --limit, --cgroup-limits and --no-new-privs mean nothing without "
            "--run-as-user: add it."
        )
        raise InvalidRequest("no-run-as-user", text)
    if options.cgroup_limits and (problem := why_none()):
        raise InvalidRequest(
            "no-cgroups", f"--cgroup-limits cannot be kept on this machine, leave it out: {problem}."
        )
    env = {**os.environ, "MGPU_STATE_DIR": options.state_dir} if options.state_dir else os.environ
    node_id = options.node_id or named or NodeId(_default_node_id())
    state = state_place(env).path
    return AgentConfig(
        node_id=node_id,
        state=state,
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
        again=() if options.no_restart else _words_again(options, words, node_id, state),
        is_again=options.again,
        run_as_user=options.run_as_user,
        user_map=dict(options.map_user),
        scratch=None if options.scratch_dir is None else options.scratch_dir.absolute(),
        confinement=Confinement(
            limits=tuple(options.limit), no_new_privs=options.no_new_privs, cgroups=options.cgroup_limits
        ),
    )


def _words_again(
    options: argparse.Namespace, words: list[str], node_id: NodeId, state: Path
) -> tuple[str, ...]:
    """Return the command line that restarts this agent, in whatever directory."""
    places = ["--state-dir", str(state.absolute())]
    if options.scratch_dir is not None:
        places += ["--scratch-dir", str(options.scratch_dir.absolute())]
    if options.is_simple:
        places += ["--gpu-count", str(options.gpu_count)]
    plain = [word for word in without_line(words) if word != AGAIN]
    return (sys.executable, "-P", "-m", "mgpu_agent.cli", *plain, "--node-id", node_id, *places, AGAIN)


def _run(config: AgentConfig, join: JoinString | None, words: list[str], *, is_verbose: bool) -> int:
    check_private_state(config.state)
    make_private_dir(config.state / "nodes")
    directory = make_private_dir(config.directory)
    check_private_file(directory / "ledger")
    lock = take_lock(directory, is_again=config.is_again)
    if lock is None and not (config.is_again or config.is_embedded):
        lock = take_over(directory)
    if lock is None:
        again = "" if join is None else " Stop it first, then run the line again."
        tell(f"The agent of node {config.node_id} is already running.{again}", file=sys.stderr)
        return 0 if config.is_embedded else 1
    try:
        if join is not None:
            _keep_line(config, join, words)
        _start_log(directory, to_file=config.is_embedded or config.is_again, is_verbose=is_verbose)
        if config.is_again:
            logging.getLogger("mgpu.agent").warning("started again: the agent before this one was killed")
        return _serve(config)
    finally:
        os.close(lock)


def _serve(config: AgentConfig) -> int:
    from mgpu_agent.agent import Agent
    from mgpu_agent.identity import Identity
    from mgpu_agent.parts import open_parts
    from mgpu_agent.whereabouts import check_named_master, find_master

    identity = Identity(config.directory)
    if identity.enrolment is not None and identity.join is None and not config.is_again:
        check_named_master(config, identity.enrolment)
    where = find_master(config, identity.enrolment, identity.join)
    # Scripts start master and nodes together; and the master may be away when an agent is killed.
    is_early = config.is_master_local and not config.is_embedded
    if where is None and (is_early or config.is_again):
        wait_s = MASTER_AWAY_S if config.is_again else os.environ.get("MGPU_MASTER_WAIT") or MASTER_WAIT_S
        began, is_said = time.monotonic(), False
        while where is None and time.monotonic() < began + float(wait_s):
            if not is_said and time.monotonic() >= began + SAID_AFTER_S:
                is_said = True
                tell(_waiting(config, float(wait_s)), file=sys.stderr, flush=True)
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
    """Save the join line, and restart without it: everyone on this machine can read command lines."""
    from mgpu_agent.identity import Identity

    Identity(config.directory).save_join(join)
    plain = without_line(words)
    if len(plain) < len(words):
        program = sys.orig_argv[1 : len(sys.orig_argv) - len(words)]
        os.execv(sys.executable, [sys.executable, *program, *plain, "--node-id", config.node_id])  # noqa: S606 - no shell is wanted


def without_line(words: list[str]) -> list[str]:
    """Return the command line without `--join`, `--node-id` and their values."""
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
        # The earlier tool took this number on trust; here GPUs that are not there are shown as simulated.
        tell(
            f"No NVIDIA driver is installed: this node offers {count(config.gpu_count, 'simulated GPU')}; "
            f"--gpu-count says how many.",
            file=sys.stderr,
        )
        return FakeGpuSource(config.node_id, config.gpu_count)
    return source


def _waiting(config: AgentConfig, wait_s: float) -> str:
    port = "" if config.master_port is None else f" on port {config.master_port}"
    return (
        f"No mgpu master{port} of yours runs on this machine yet: waiting {rounded(wait_s)} for one to start."
    )


def _no_master(config: AgentConfig) -> str:
    if not config.is_master_local:
        return (
            f"This machine is not enrolled with the master on {config.master_host}: "
            "run `mgpu join-token` there and start mgpu_node with the line it prints."
        )
    port = "" if config.master_port is None else f" on port {config.master_port}"
    return (
        f"No mgpu master{port} of yours runs on this machine: start one with mgpu_master or JupyterLab, "
        f"then start mgpu_node again."
    )


def _start_log(directory: Path, *, to_file: bool, is_verbose: bool) -> None:
    handler: logging.Handler
    if to_file:
        path = directory / AGENT_LOG_NAME
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8"
        )
    else:
        handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logger = logging.getLogger("mgpu")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if is_verbose else logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
