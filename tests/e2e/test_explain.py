"""Why a job waits, asked of a real cluster: the offer works when it is taken, and the answers outlive a
master that was killed.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.e2e.cluster import BIN, Cluster, bash


def _run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = words
    return subprocess.run(
        [str(BIN / program), *arguments],
        env=cluster.env,
        cwd=cluster.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_offer_works_and_the_answers_stay(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start_master()
        cluster.start_node("n1", 2)
        holder = cluster.client.submit(bash("sleep 300"), gpus=1, time_limit=900)
        waits = cluster.client.submit(["true"], gpus=2)

        cluster.wait_until(
            lambda: str(holder.state) == "running" and waits.info.reason_code == "busy",
            "one runs and one waits for it",
        )
        told = _run(cluster, "mgpu", "explain", waits.id)
        lines = told.stdout.splitlines()
        assert (told.returncode, lines[0]) == (0, "Not now: waits for 2 GPUs free on one node: n1 has 1.")
        assert lines[1].startswith("Promised to start in 1")
        assert lines[3:5] == ["In its place, this would start now:", "  - 1 GPU instead of 2: n1 (GPU 1)"]
        assert "  Start: promised in 1" in _run(cluster, "mgpu_queue", "--start").stdout

        dry = _run(cluster, "mgpu_srun", "--dry-run", "--json", "--gpus", "2", "--", "true")
        offer = json.loads(dry.stdout)["offers"][0]
        gpus, time_limit = offer["flags"]  # whole minutes that are left of fifteen
        assert (dry.returncode, gpus, re.fullmatch(r"-t 00:1[0-4]:00", time_limit) is not None) == (
            3,
            "--gpus 1",
            True,
        )
        assert _run(cluster, "mgpu_srun", *" ".join(offer["flags"]).split(), "--", "true").returncode == 0
        assert _run(cluster, "mgpu_srun", "--dry-run", "--gpus", "0", "--", "true").returncode == 0

        before = waits.explain().history
        assert [record.code for record in before] == ["promised-start", "busy"]
        cluster.kill("master")
        cluster.start_master()
        cluster.wait_until(lambda: cluster.node_states() == {"n1": "online"}, "the node is back")
        holder.cancel()
        waits.wait(60)
        after = waits.explain()
        assert (after.verdict, after.text) == ("over", "It is over; it completed on n1.")
        assert after.history[: len(before)] == before
