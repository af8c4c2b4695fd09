"""Run a keeper: `python -m mgpu_agent.keeper --dir DIR`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mgpu_agent.keeper.keeper import keep
from mgpu_agent.keeper.messages import LEDGER_NAME, SPOOL_NAME
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.places import boot_id, check_private_file, make_private_dir
from mgpu_agent.run_as.drop import close_inherited


def main() -> int:
    """Parse the arguments and run the keeper."""
    parser = argparse.ArgumentParser(
        prog="mgpu_keeper", description="Parent of a node's job processes; started by mgpu_node."
    )
    parser.add_argument("--dir", type=Path, required=True, help="the node's state directory")
    parser.add_argument(
        "--idle", type=float, default=30.0, metavar="S", help="end after this long with no agent and no task"
    )
    parser.add_argument(
        "--lost-reason",
        default="agent and keeper were lost",
        help="said of tasks that an earlier keeper left",
    )
    arguments = parser.parse_args()
    place = arguments.dir.absolute()
    close_inherited()
    os.chdir("/")
    try:
        directory = make_private_dir(place)
        make_private_dir(directory / SPOOL_NAME)
        check_private_file(directory / LEDGER_NAME)
    except MgpuError as error:
        print(error.message, file=sys.stderr)
        return 1
    return keep(directory, boot_id(), arguments.idle, arguments.lost_reason)


if __name__ == "__main__":
    sys.exit(main())
