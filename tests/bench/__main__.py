"""`make bench`: no-op jobs a second against bare `os.posix_spawn`, and submit-to-output latency against
`subprocess`.

Everything is measured in one run in alternating rounds, because the machine's own speed changes more than
ours. No thresholds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import pwd
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
import zmq

from mgpu_jupyter import Client
from mgpu_jupyter.demo.program import StopRequested, end_on_signals
from tests.bench import measure
from tests.e2e.cluster import Cluster
from tests.e2e.people import open_directory

PACKAGES = ("mgpu-jupyter", "jupyter-server", "tornado", "pyzmq", "msgspec", "psutil")
BASE = "bare os.posix_spawn, two at a time"
LIMIT_S = 900


def main() -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--small", action="store_true", help="a quick run that only shows that it works")
    parser.add_argument("--rounds", type=int, help="alternating rounds (default 5, small 1)")
    parser.add_argument(
        "--jobs", type=int, help="no-op jobs for each figure and round (default 1000, small 100)"
    )
    parser.add_argument("--echoes", type=int, help="latency samples a round (default 100, small 20)")
    parser.add_argument("--run-as", metavar="ACCOUNT", help="the node runs jobs as this account; needs root")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.small else 5)
    jobs = options.jobs or (100 if options.small else 1000)
    echoes = options.echoes or (20 if options.small else 100)
    end_on_signals()
    signal.alarm(LIMIT_S)
    try:
        with (
            open_directory() as place,
            tempfile.TemporaryDirectory(prefix="mgpu-bench-") as directory,
            Cluster(Path(directory) / "cluster") as cluster,
        ):
            cluster.start_master()
            me = pwd.getpwuid(os.getuid()).pw_name
            as_user = (
                "--run-as-user",
                "--scratch-dir",
                str(place / "scratch"),
                "--map-user",
                f"{me}={options.run_as}",
            )
            cluster.start_node("n1", 2, *(as_user if options.run_as else ()))
            result = run(cluster.client, rounds, jobs, echoes)
    except StopRequested as error:
        print(f"Stopped by {error}.", file=sys.stderr)
        return 1
    print(table(result))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"Written to {options.out}.")
    return 0


def run(client: Client, rounds: int, jobs: int, echoes: int) -> dict[str, object]:
    """Return all figures; each round measures everything once, in the same order."""
    rates: dict[str, list[float]] = {
        name: []
        for name in (
            BASE,
            "bulk requests of 100",
            "8 threads, one job a request",
            "one request after the other",
        )
    }
    latencies: dict[str, list[float]] = {"mgpu": [], "subprocess.check_output": []}
    measure.bulk_rate(client, min(jobs, 100))  # the first jobs pay for imports and empty caches
    for number in range(rounds):
        started = time.monotonic()
        rates[BASE].append(measure.bare_spawn_rate(jobs))
        rates["bulk requests of 100"].append(measure.bulk_rate(client, jobs))
        rates["8 threads, one job a request"].append(measure.threads_rate(client, jobs))
        rates["one request after the other"].append(measure.one_by_one_rate(client, jobs))
        latencies["mgpu"] += measure.job_latencies_ms(client, echoes)
        latencies["subprocess.check_output"] += measure.subprocess_latencies_ms(echoes)
        print(f"round {number + 1} of {rounds}: {time.monotonic() - started:.1f} s", flush=True)
    base = statistics.median(rates[BASE])
    plain = statistics.median(latencies["subprocess.check_output"])
    return {
        "machine": machine(),
        "rounds": rounds,
        "jobs_a_round": jobs,
        "echoes_a_round": echoes,
        "jobs_a_second": {
            name: {
                "median": statistics.median(values),
                "ratio": statistics.median(values) / base,
                "rounds": values,
            }
            for name, values in rates.items()
        },
        "latency_ms": {
            name: {
                "median": statistics.median(values),
                "p99": sorted(values)[min(len(values) - 1, int(len(values) * 0.99))],
                "ratio": statistics.median(values) / plain,
                "samples": len(values),
            }
            for name, values in latencies.items()
        },
    }


def machine() -> dict[str, object]:
    """Return what the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "libzmq": zmq.zmq_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "load_before": os.getloadavg()[0],
    }


def table(result: dict[str, object]) -> str:
    """Return the figures for people."""
    rates, latencies = result["jobs_a_second"], result["latency_ms"]
    assert isinstance(rates, dict)
    assert isinstance(latencies, dict)
    lines = [f"\n{'no-op jobs':<38} {'jobs/s':>8} {'ratio':>7}"]
    lines += [
        f"{name:<38} {figures['median']:8.0f} {figures['ratio']:7.2f}" for name, figures in rates.items()
    ]
    lines.append(f"\n{'submit to output of echo':<38} {'median':>8} {'p99':>8} {'ratio':>7}")
    lines += [
        f"{name:<38} {figures['median']:5.1f} ms {figures['p99']:5.1f} ms {figures['ratio']:7.2f}"
        for name, figures in latencies.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
