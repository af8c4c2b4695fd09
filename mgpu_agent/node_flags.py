"""The flags of `mgpu_node` and what their values mean. Reads no environment and starts nothing."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from resource import RLIM_INFINITY
from typing import NoReturn

from mgpu_agent import __version__
from mgpu_agent.config import DEFAULT_SCRATCH
from mgpu_agent.protocol.bounds import GPUS
from mgpu_agent.protocol.ids import NODE_ID_PATTERN, NodeId
from mgpu_agent.run_as.drop import LIMITS

DIGITS = 9


class _Parser(argparse.ArgumentParser):
    """Prints in one sentence what is wrong; `--help` has the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}: see {self.prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `mgpu_node`."""
    made = _Parser(
        prog="mgpu_node", allow_abbrev=False, description="Offer this machine's GPUs to an mgpu master."
    )
    made.add_argument(
        "--node-id", type=_node_id, metavar="ID", help="default: what the join line says, else the host name"
    )
    made.add_argument(
        "--join",
        metavar="LINE",
        help="join a master by the line that `mgpu join-token` printed; - reads it from stdin",
    )
    made.add_argument("--master-host", metavar="H", help="default: this machine")
    made.add_argument(
        "--master-port",
        type=_port,
        metavar="P",
        help="the master's HTTP port; default: any master of yours here",
    )
    made.add_argument(
        "--host",
        metavar="ADDR",
        help="the address announced to peers; default: the one that reaches the master",
    )
    made.add_argument(
        "--port", "--agent-port", type=_port, default=0, metavar="P", help="the port announced to peers"
    )
    made.add_argument(
        "--fake-gpus", type=_count, metavar="N", help="offer N simulated GPUs in place of real ones"
    )
    made.add_argument(
        "--gpu-count",
        type=_count,
        metavar="N",
        help="offer at most N GPUs; simulated ones where no NVIDIA driver is",
    )
    made.add_argument("--rack", default="", metavar="R", help="the rack; --policy topology goes by it")
    made.add_argument("--switch", default="", metavar="S", help="the switch, within the rack")
    made.add_argument(
        "--label",
        action="append",
        default=[],
        type=_label,
        metavar="NAME[=VALUE]",
        help="what --constraint is about; may be repeated",
    )
    made.add_argument(
        "--state-dir",
        metavar="DIR",
        help="where state is kept; default: $MGPU_STATE_DIR, else a place of mgpu's own",
    )
    made.add_argument(
        "--run-as-user", action="store_true", help="run each job as its user, not as root; needs root"
    )
    made.add_argument(
        "--map-user",
        action="append",
        default=[],
        type=_pair,
        metavar="USER=ACCOUNT",
        help="with --run-as-user: the account of a user whose name differs here, or who may be root "
        "(repeatable)",
    )
    made.add_argument(
        "--scratch-dir",
        type=Path,
        metavar="DIR",
        help=f"with --run-as-user: files of jobs; default: {DEFAULT_SCRATCH}",
    )
    made.add_argument(
        "--limit",
        action="append",
        default=[],
        type=_limit,
        metavar="NAME=SOFT[:HARD]",
        help="with --run-as-user: a resource limit of every job, like nofile=4096:65536 or nproc=2000 "
        "(repeatable)",
    )
    made.add_argument(
        "--cgroup-limits",
        action="store_true",
        help="with --run-as-user: jobs get no more than they asked for by --cpus and --mem-per-node",
    )
    made.add_argument(
        "--no-new-privs",
        action="store_true",
        help="with --run-as-user: jobs gain no rights by sudo or other setuid programs",
    )
    made.add_argument(
        "--embedded",
        action="store_true",
        help="belongs to a Jupyter server: log to a file, end with the master",
    )
    made.add_argument(
        "--no-restart", action="store_true", help="stay away when killed, in place of being started again"
    )
    made.add_argument(
        "--again", action="store_true", help=argparse.SUPPRESS
    )  # in place of an agent that was killed
    made.add_argument("--verbose", action="store_true", help="log every task")
    made.add_argument("--version", action="version", version=f"mgpu_node {__version__}")
    return made


def _node_id(text: str) -> NodeId:
    if not re.fullmatch(NODE_ID_PATTERN, text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no node id: use letters, digits, dot, dash and underscore, at most 63"
        )
    return NodeId(text)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs, write one like 2")
    if len(text) > DIGITS or int(text) > GPUS:
        raise argparse.ArgumentTypeError(f"one node offers at most {GPUS} GPUs, so start several nodes")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, write a number up to 65535")
    return int(text)


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no label: write NAME or NAME=VALUE")
    return name, value


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no pair: write USER=ACCOUNT")
    return name, value


def _limit(text: str) -> tuple[str, int, int]:
    name, _, values = text.partition("=")
    soft, colon, hard = values.partition(":")
    numbers = [
        RLIM_INFINITY if one == "unlimited" else int(one) if one.isdecimal() else None
        for one in (soft, hard if colon else soft)
    ]
    if name not in LIMITS or None in numbers:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none: write NAME=SOFT or NAME=SOFT:HARD with NAME one of "
            f"{', '.join(sorted(LIMITS))}"
        )
    first, most = (number for number in numbers if number is not None)
    if most != RLIM_INFINITY and (first == RLIM_INFINITY or first > most):
        raise argparse.ArgumentTypeError(
            f"{text!r} has a soft limit above its hard one: write NAME=SOFT:HARD"
        )
    return name, first, most
