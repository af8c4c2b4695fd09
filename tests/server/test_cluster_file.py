"""`cluster_config.yaml`: the earlier tools' file as it is, every key with a meaning, and every mistake with
its line.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from traitlets.config import Config

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.cluster_file import ClusterFile, ExpectedNode
from mgpu_jupyter.scheduler.events import NodeJoined
from mgpu_jupyter.server.cluster_file import (
    SETTINGS,
    apply,
    is_here,
    node_warnings,
    parse_cluster_file,
    read_cluster_file,
    site_warnings,
    traits_of,
)
from mgpu_jupyter.server.yaml_lines import MAX_VALUES
from tests.builders import facts

SEED = """\
cluster:
  name: "gpu-cluster"
  master:
    host: "master.example.com"
    port: 8080

nodes:
  - node_id: "node001"
    hostname: "gpu001.example.com"
    ip: "192.168.1.10"
    port: 8081
    gpu_count: 8
    gpu_type: "A100"
  - node_id: "node002"
    hostname: "gpu002.example.com"
    ip: "192.168.1.11"
    port: 8081
    gpu_count: 8
    gpu_type: "A100"

networking:
  heartbeat_interval: 30
  timeout: 60

scheduling:
  default_policy: "fill_first"  # fill_first, spread, custom
  max_job_time: 3600

security:
  enable_ssl: false
  cert_file: ""
  key_file: ""

logging:
  level: "INFO"
  file: "/var/log/mgpu_cluster.log"
"""
FULL = (
    SEED
    + """
partitions:
  gpu: {nodes: ["node*"], default: true, max_time_s: 86400, allow_accounts: [bio]}
accounts: {bio: {users: [ann], shares: 2}}
qos: {low: {preemptible: true}}
quotas: {bob: {gpus: 4}}
shares: {ann: 2}
retention: {max_age_days: 30, max_output_gb: 100}
health: {every_s: 60, program: [/opt/check]}
limits: {folder_bytes: 1000, results_bytes: 0}
"""
)


def refusal(text, **options):
    with pytest.raises(InvalidRequest) as error:
        parse_cluster_file(text, "f.yaml", **options)
    return error.value.message


def test_the_earlier_tools_file_loads_as_it_is():
    file = parse_cluster_file(SEED, "f.yaml")

    assert (file.cluster.name, file.cluster.master.host, file.cluster.master.port) == (
        "gpu-cluster",
        "master.example.com",
        8080,
    )
    assert file.nodes[1] == ExpectedNode(
        node_id="node002",
        hostname="gpu002.example.com",
        ip="192.168.1.11",
        port=8081,
        gpu_count=8,
        gpu_type="A100",
    )
    assert (file.logging.level, file.logging.file) == ("INFO", "/var/log/mgpu_cluster.log")
    assert traits_of(file) == {
        "cluster_name": "gpu-cluster",
        "heartbeat_interval": 30.0,
        "timeout": 60.0,
        "default_policy": "fill_first",
        "max_job_time": 3600.0,
    }


def test_every_number_of_the_earlier_tools_is_a_key_and_becomes_a_setting():
    networking = {key: 7 for part, key in SETTINGS if part == "networking" and key not in ("on_disconnect",)}
    lines = "".join(f"  {key}: {value}\n" for key, value in networking.items())
    text = f"""networking:
{lines}  on_disconnect: fence
  backoff_base: 2
  backoff_cap: 40
scheduling:
  default_policy: custom
  custom_policy: mine
  queue_policy: easy
  default_job_time: 600
  weights: {{age: 2, fair_share: 3}}
  preemption: true
  share_busy_gpus: true
  half_life: 3600
  reorder: 5
  quota: {{gpus: 9}}
security: {{admins: [ann]}}
"""
    said = traits_of(parse_cluster_file(text, "f.yaml", strategies=["mine"]))

    assert {
        name: said[name]
        for (part, _), name in SETTINGS.items()
        if part == "networking" and name != "on_disconnect"
    } == dict.fromkeys(
        [name for (part, _), name in SETTINGS.items() if part == "networking" and name != "on_disconnect"], 7
    )
    assert (said["on_disconnect"], said["default_policy"], said["queue_policy"], said["admins"]) == (
        "fence",
        "mine",
        "easy",
        ["ann"],
    )
    assert said["scheduling"] == {
        "default_time_s": 600.0,
        "half_life_s": 3600.0,
        "reorder_s": 5.0,
        "preemption": True,
        "quota": {"gpus": 9},
        "planning": {"weights": {"age": 2.0, "fair_share": 3.0}},
        "retries": {"backoff_base_s": 2.0, "backoff_cap_s": 40.0},
    }


def test_what_jupyters_own_settings_say_goes_before_and_tables_are_put_together():
    app = SimpleNamespace(
        config=Config({"MgpuApp": {"timeout": 90.0, "quotas": {"ann": {"gpus": 1}}}}), timeout=90.0
    )
    apply(app, parse_cluster_file(FULL, "f.yaml"))
    assert (app.timeout, app.heartbeat_interval, app.cluster_name) == (90.0, 30.0, "gpu-cluster")
    assert app.quotas == {"bob": {"gpus": 4}, "ann": {"gpus": 1}}
    assert app.health_checks == {"every_s": 60.0, "program": ["/opt/check"]}
    assert app.limits == {"folder_bytes": 1000, "results_bytes": 0}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "networking:\n  hartbeat_interval: 3\n",
            "f.yaml line 2: networking: there is no key hartbeat_interval; write heartbeat_interval.",
        ),
        ("netwroking: {}\n", "f.yaml line 1: there is no key netwroking; write networking."),
        (
            "networking:\n  timeout: long\n",
            (
                "f.yaml line 2: networking.timeout: it must be a number, and it is text; write it like "
                "timeout: "
                "60."
            ),
        ),
        (
            "cluster:\n  master:\n    port: 99999\n",
            (
                "f.yaml line 3: cluster.master.port: it must be a whole number <= 65535; write it like port: "
                "8080."
            ),
        ),
        (
            "nodes:\n  - hostname: a\n",
            (
                "f.yaml line 2: nodes[0]: object missing required field node_id; write it like nodes: "
                '[{node_id: "node001", gpu_count: 8}].'
            ),
        ),
        (
            "nodes:\n  - node_id: a\n  - node_id: a\n",
            "f.yaml line 3: the node a is there twice; leave one out.",
        ),
        (
            "scheduling:\n  default_policy: fil_first\n",
            "f.yaml line 2: scheduling.default_policy: there is no strategy fil_first; write fill_first.",
        ),
        (
            "scheduling: {default_policy: custom}\n",
            "f.yaml line 1: scheduling.default_policy: custom needs custom_policy; add custom_policy: NAME.",
        ),
        (
            "accounts: {bio: {}}\npartitions:\n  a:\n    allow_accounts: [boi]\n",
            "f.yaml line 4: partitions['a'].allow_accounts: there is no account boi; write bio.",
        ),
        (
            "partitions:\n  a:\n    max_gpu: 3\n",
            "f.yaml line 3: partitions['a']: there is no key max_gpu; write max_gpus.",
        ),
        ("a: 1\na: 2\n", "f.yaml line 2: a is there twice; leave one out."),
        (
            "cluster:\n\tname: x\n",
            (
                "f.yaml line 2: this is no YAML (found character '\\t' that cannot start any token); indent "
                "with blanks, not with tabs."
            ),
        ),
        (
            "- a\n- b\n",
            (
                "f.yaml line 1: the file is a list and not a table; begin like cluster: "
                '{name: "gpu-cluster", master: {host: "127.0.0.1", port: 8080}}.'
            ),
        ),
        (
            "cluster: {}\n---\nnodes: []\n",
            "f.yaml line 3: there is a second document; take out the line with ---.",
        ),
        (
            "logging: {level: info}\n",
            "f.yaml line 1: logging.level: invalid enum value 'info'; write it like level: \"INFO\".",
        ),
        (
            "security: {enable_ssl: true, cert_file: /no/such.pem}\n",
            (
                "f.yaml line 1: security.cert_file: there is no file /no/such.pem; name one that is there, "
                "or "
                "leave it out."
            ),
        ),
        (
            "nodes: !!python/object:os.system {}\n",
            (
                "f.yaml line 1: nodes is a table of keys and values and not a list; write nodes: "
                '[{node_id: "node001", gpu_count: 8}].'
            ),
        ),
    ],
)
def test_every_mistake_has_its_line_and_a_hint(text, sentence):
    assert refusal(text) == sentence


@pytest.mark.slow
def test_few_anchors_do_not_become_very_many_values_and_merges_work():
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{b}: &{b} [{','.join(f'*{a}' for _ in range(10))}]\n"
        for a, b in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert "too many values" in refusal(bomb)
    assert MAX_VALUES == 100_000
    file = parse_cluster_file(
        "nodes:\n- &one {node_id: a, gpu_count: 4}\n- {<<: *one, node_id: b}\n", "f.yaml"
    )
    assert [(node.node_id, node.gpu_count) for node in file.nodes] == [("a", 4), ("b", 4)]
    assert parse_cluster_file("", "f.yaml") == parse_cluster_file("# nothing\n", "f.yaml") == ClusterFile()


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    with pytest.raises(InvalidRequest, match=r"cannot be read \(No such file"):
        read_cluster_file(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"cluster:\n  name: caf\xe9\n")
    with pytest.raises(InvalidRequest, match="line 2: this is no UTF-8"):
        read_cluster_file(tmp_path / "latin.yaml")


def test_how_a_node_differs_from_what_the_file_says():
    one = ExpectedNode(
        node_id="n1", hostname="host-n1.example.com", ip="127.0.0.1", gpu_count=4, gpu_type="test"
    )
    assert node_warnings([one], facts("n1"), "n2") == ()
    assert node_warnings([one], facts("n1", 4), "n1") == ()
    other = ExpectedNode(node_id="n1", hostname="gpu001", ip="192.0.2.1", gpu_count=8, gpu_type="A100")
    assert [
        text.removeprefix("The cluster's file says that ")
        for text in node_warnings([other], facts("n1", 1), "n1")
    ] == [
        "it has 8 GPUs, and it has 1.",
        f"its GPUs are A100, and it has {facts('n1', 1).gpus[0].name}.",
        "it is host gpu001, and it is host-n1.",
        "it is at 192.0.2.1, and it is at 127.0.0.1.",
    ]


def test_what_this_server_cannot_do_is_a_warning():
    file = parse_cluster_file(SEED.replace("enable_ssl: false", "enable_ssl: true"), "f.yaml")
    server = SimpleNamespace(ip="127.0.0.1", certfile="")
    assert (is_here("127.0.0.1"), is_here("192.0.2.77")) == (True, False)
    unknown = parse_cluster_file('cluster: {master: {host: "192.0.2.77"}}', "f.yaml")
    assert site_warnings(unknown, server, is_alone=True) == [
        "cluster.master.host 192.0.2.77 is no address of this machine: it listens on 127.0.0.1."
    ]
    assert len(site_warnings(file, server, is_alone=False)) == 1


@pytest.fixture
def mgpu_config(tmp_path):
    path = tmp_path / "cluster_config.yaml"
    path.write_text(
        'cluster: {name: "lab"}\nnodes: [{node_id: n1, gpu_count: 8}, {node_id: n2}]\nlogging: {file: '
        '"/proc/no/such.log"}\n'
    )
    return {"local_agent": False, "cluster_config": str(path), "timeout": 7.0}


async def test_an_extension_takes_the_file_and_says_what_it_cannot_do(api, app, tell):
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 4)))
    _, listed = await api("nodes")
    assert [node["id"] for node in listed["expected"]] == ["n2"]
    assert listed["nodes"][0]["warnings"] == (await api("nodes/n1"))[1]["warnings"]
    assert listed["nodes"][0]["warnings"] == ["The cluster's file says that it has 8 GPUs, and it has 4."]
    _, health = await api("health")
    assert (health["cluster"], health["status"]) == ("lab", "ok")
    assert health["warnings"][0].startswith("The log file /proc/no/such.log cannot be written")
    assert app.timeout == 7.0


async def test_a_mistake_in_the_file_shows_in_health(app, jp_serverapp, tmp_path, monkeypatch):
    await app.stop_extension()
    (tmp_path / "cluster_config.yaml").write_text("nodez: []\n")
    app.initialize_settings()
    await app._start_jupyter_server_extension(jp_serverapp)
    assert (
        app.health().status,
        app.health().message.endswith("line 1: there is no key nodez; write nodes."),
    ) == ("failed", True)
