"""An agent that lies: `python -m tests.e2e.liar host|node-id ARGUMENTS…` is `mgpu_node` that says a wrong
host, or another node's name.

Only the agent lies. Its keeper, which starts the processes, is a program of its own and honest.
"""

from __future__ import annotations

import sys

from msgspec.structs import replace

from mgpu_agent import agent, cli, whereabouts

HOST = "gpu999.example.org"
NODE = "n1"


def main() -> int:
    lie, arguments = sys.argv[1], sys.argv[2:]
    if lie == "host":
        whereabouts.host_name = lambda: HOST
    else:
        honest = agent.Agent._status
        agent.Agent._status = lambda self, record: replace(honest(self, record), node_id=NODE)
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
