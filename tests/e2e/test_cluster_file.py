"""`mgpu_master --config cluster_config.yaml` for real: its certificate, its log, its nodes, its rules."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter.client.connecting import pin_of_file
from mgpu_jupyter.server.certificate import load_certificate
from tests.e2e.cluster import BIN, Cluster

FILE = """\
cluster:
  name: "gpu-cluster"
  master: {{host: "127.0.0.1", port: {port}}}
nodes:
  - {{node_id: "n1", hostname: "gpu001.example.com", ip: "192.168.1.10", port: 8081, gpu_count: 8, gpu_type: "A100"}}
  - {{node_id: "n9", hostname: "gpu009.example.com", gpu_count: 8, gpu_type: "A100"}}
networking: {{heartbeat_interval: 1, timeout: 30, link_port: {link}}}
scheduling: {{default_policy: "spread", max_job_time: 3600}}
security: {{enable_ssl: true, cert_file: "{certificate}", key_file: "{key}"}}
logging: {{level: "INFO", file: "{log}"}}
retention: {{max_jobs: 2, every_s: 1}}
"""  # noqa: E501


def run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
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


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate that is not the one of the state directory; its key is in a file of its own."""
    both = load_certificate(folder, "127.0.0.1").read_text()
    blocks = re.findall(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----\n", both, re.DOTALL)
    assert len(blocks) == 2
    found = {
        name: re.search(rf"-----BEGIN {name}-----.*?-----END {name}-----\n", both, re.DOTALL)
        for name in blocks
    }
    paths = {"CERTIFICATE": folder / "site.pem"}
    for name, block in found.items():
        assert block is not None
        paths.setdefault(name, folder / "site.key").write_text(block[0])
    return folder / "site.pem", folder / "site.key"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("site")
    with Cluster(folder / "cluster") as cluster:
        certificate, key = make_certificate(folder)
        text = FILE.format(
            port=cluster.port,
            link=cluster._link_port,
            certificate=certificate,
            key=key,
            log=folder / "log" / "mgpu.log",
        )
        (folder / "cluster_config.yaml").write_text(text)
        words = [
            str(BIN / "mgpu_master"),
            "--config",
            str(folder / "cluster_config.yaml"),
            "--",
            "--MgpuApp.local_agent=False",
        ]
        cluster.wait_for_master(cluster.start("master", [*words, "--MgpuApp.timeout=45"]))
        cluster.start_node("n1", 2)
        yield cluster


def test_the_sites_own_certificate_is_served_on_the_files_port(site: Cluster) -> None:
    certificate = site.directory.parent / "site.pem"
    served = ssl.get_server_certificate(("127.0.0.1", site.port))
    assert ssl.PEM_cert_to_DER_cert(served) == ssl.PEM_cert_to_DER_cert(certificate.read_text())
    assert site.runtime().certificate_pin == pin_of_file(certificate)
    assert site.runtime().url.startswith("https://127.0.0.1:")
    assert site.client.health().cluster == "gpu-cluster"


def test_nodes_of_the_file_are_expected_and_compared(site: Cluster) -> None:
    listed = site.client.node_list()
    assert [(node.id, node.state, node.gpu_count, node.gpu_type) for node in listed.expected] == [
        ("n9", "expected", 8, "A100")
    ]
    assert any("says that it has 8 GPUs, and it has 2." in text for text in listed.nodes[0].warnings)
    shown = run(site, "mgpu", "nodes").stdout
    assert (
        "n9: expected (in the cluster's file; it never joined) | host gpu009.example.com | 8 GPUs A100"
        in shown
    )
    assert "  WARNING: The cluster's file says that its GPUs are A100" in shown
    assert json.loads(run(site, "mgpu", "nodes", "--json").stdout)["expected"][0]["id"] == "n9"


def test_rules_hold_the_log_is_written_and_old_jobs_go(site: Cluster) -> None:
    assert site.client.cluster().strategy == "spread"
    jobs = [site.client.submit(["echo", str(number)], gpus=0).wait(60) for number in range(4)]
    site.wait_until(
        lambda: [job.id for job in site.client.jobs()] == [jobs[3].id, jobs[2].id],
        "the first two are forgotten",
    )
    log = site.directory.parent / "log" / "mgpu.log"
    words = ("node_id=n1 joined", "retention forgot jobs=")
    site.wait_until(lambda: all(word in log.read_text() for word in words), "it is in the log")
    assert (log.parent.parent / "cluster").is_dir()


def test_a_mistake_is_one_sentence_and_the_master_does_not_start(site: Cluster) -> None:
    path = site.directory / "wrong.yaml"
    path.write_text("cluster: {name: x}\nnetwork:\n  timeout: 3\n")
    done = run(site, "mgpu_master", "--config", str(path))
    assert (done.returncode, done.stderr) == (
        2,
        f"{path} line 2: there is no key network; write networking.\n",
    )
