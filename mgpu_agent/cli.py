"""`mgpu_node`: parse the flags, take the node's lock, run the agent. Says one sentence when that cannot be."""

from __future__ import annotations

import argparse
import fcntl
import logging
import logging.handlers
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mgpu_agent import __version__
from mgpu_agent.config import AgentConfig
from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NODE_ID_PATTERN, NodeId
from mgpu_agent.protocol.places import host_name, make_private_dir, state_place

_LOG_BYTES = 1024 * 1024
_LOCK_NAME = "agent.lock"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node agent; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        config = _config(options)
        return _run(config, is_verbose=options.verbose)
    except MgpuError as error:
        print(error.message, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mgpu_node", description="Offer this machine's GPUs to an mgpu master.")
    parser.add_argument("--node-id", default=_default_node_id(), type=_node_id, metavar="ID", help="default: the host name")
    parser.add_argument("--master-host", metavar="H", help="default: this machine")
    parser.add_argument("--master-port", type=int, metavar="P", help="the master's HTTP port; default: any master of yours here")
    parser.add_argument("--host", metavar="ADDR", help="the address announced to peers; default: the one that reaches the master")
    parser.add_argument("--fake-gpus", type=_count, metavar="N", help="offer N simulated GPUs in place of real ones")
    parser.add_argument("--gpu-count", type=_count, metavar="N", help="offer at most N GPUs")
    parser.add_argument("--rack", default="", metavar="R")
    parser.add_argument("--switch", default="", metavar="S")
    parser.add_argument("--label", action="append", default=[], type=_label, metavar="K=V", help="may be repeated")
    parser.add_argument("--state-dir", metavar="DIR", help="where state is kept; default: $MGPU_STATE_DIR, else a place of mgpu's own")
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
    return int(text)


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is no label: write NAME=VALUE")
    return name, value


def _config(options: argparse.Namespace) -> AgentConfig:
    env = {**os.environ, "MGPU_STATE_DIR": options.state_dir} if options.state_dir else os.environ
    return AgentConfig(
        node_id=options.node_id,
        state=state_place(env).path,
        master_host=options.master_host,
        master_port=options.master_port,
        address=options.host,
        fake_gpus=options.fake_gpus,
        gpu_count=options.gpu_count,
        rack=options.rack,
        switch=options.switch,
        labels=dict(options.label),
        is_embedded=options.embedded,
    )


def _run(config: AgentConfig, *, is_verbose: bool) -> int:
    make_private_dir(config.state / "nodes")
    directory = make_private_dir(config.directory)
    lock = _take_lock(directory)
    if lock is None:
        print(f"The agent of node {config.node_id} is already running.", file=sys.stderr)
        return 0 if config.is_embedded else 1
    try:
        _start_log(directory, is_embedded=config.is_embedded, is_verbose=is_verbose)
        return _serve(config)
    finally:
        os.close(lock)


def _serve(config: AgentConfig) -> int:
    from mgpu_agent.agent import Agent
    from mgpu_agent.identity import Identity
    from mgpu_agent.whereabouts import find_master

    identity = Identity(config.directory)
    where = find_master(config, identity.enrolment)
    if where is None:
        print(_no_master(config), file=sys.stderr)
        return 1
    return Agent(config, identity, where, _gpu_source(config)).run()


def _gpu_source(config: AgentConfig) -> GpuSource:
    if config.fake_gpus is not None:
        from mgpu_agent.gpu.fake import FakeGpuSource

        return FakeGpuSource(config.node_id, config.fake_gpus)
    from mgpu_agent.gpu.nvml import open_nvml

    return open_nvml()


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
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("mgpu")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if is_verbose else logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
