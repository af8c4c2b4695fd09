"""Completion in a real bash, at a real terminal, against a live cluster: flags, subcommands, node names, job
ids.
"""

from __future__ import annotations

from collections.abc import Iterator

import pexpect
import pytest

from tests.e2e.cluster import BIN, Cluster

PROMPT = "READY> "
LIMIT_S = 20
PRESSES = 5


@pytest.fixture(scope="module")
def cluster_with_a_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("completion") / "cluster") as cluster:
        cluster.start_master()
        cluster.start_node("zebra-node", 1)
        yield cluster


@pytest.fixture
def bash(cluster_with_a_name: Cluster) -> Iterator[pexpect.spawn]:
    cluster = cluster_with_a_name
    env = cluster.env | {
        "PS1": PROMPT,
        "PATH": f"{BIN}:/usr/bin:/bin",
        "TERM": "dumb",
        "INPUTRC": "/dev/null",
    }
    shell = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile", "-i"],
        env=env,
        encoding="utf-8",
        timeout=LIMIT_S,
        dimensions=(24, 200),
    )
    shell.sendline(
        "bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; source <(mgpu completion bash); "
        "echo LOADED-$((40+2))"
    )
    shell.expect("LOADED-42", timeout=120)
    shell.expect(PROMPT, timeout=120)
    yield shell
    shell.close(force=True)


def completed(bash: pexpect.spawn, typed: str, expected: str) -> None:
    """Type, press Tab, and wait until the line reads as expected; as people do, press again where the server
    was too slow to be asked.
    """
    bash.send(typed)
    for _ in range(PRESSES):
        bash.send("\t")
        if bash.expect_exact([expected, pexpect.TIMEOUT]) == 0:
            break
    else:
        pytest.fail(f"{typed!r} did not become {expected!r}; the screen has {bash.buffer!r}")
    bash.sendcontrol("u")
    bash.sendline("")
    bash.expect(PROMPT, timeout=120)


def test_flags_subcommands_nodes_and_jobs(bash: pexpect.spawn, cluster_with_a_name: Cluster) -> None:
    job = cluster_with_a_name.client.submit(["sleep", "300"], gpus=0)
    completed(bash, "mgpu_srun --nodel", "mgpu_srun --nodelist ")
    completed(bash, "mgpu expl", "mgpu explain ")
    completed(bash, "mgpu_srun --nodelist zeb", "mgpu_srun --nodelist zebra-node ")
    completed(bash, "mgpu_srun --exclude=zeb", "mgpu_srun --exclude=zebra-node ")
    completed(bash, f"mgpu_cancel {job.id[:3]}", f"mgpu_cancel {job.id} ")
    completed(bash, f"mgpu_srun -d afterok:{job.id[:3]}", f"mgpu_srun -d afterok:{job.id} ")
    completed(bash, "mgpu node maint", "mgpu node maintenance ")
    completed(bash, "mgpu node drain zeb", "mgpu node drain zebra-node ")
    completed(bash, "mgpu_client mon", "mgpu_client monitor ")
    completed(bash, "mgpu_node --master-h", "mgpu_node --master-host ")
    completed(bash, "mgpu_srun --gpu-\t", "--gpu-type")  # several fit: the second Tab lists them
    job.cancel()
