"""`cluster_config.yaml`: read, checked line by line, turned into the extension's settings. Starts nothing.

Every mistake is one sentence with the line and what to write instead. Settings of Jupyter's own take
precedence.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, TypeVar

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.model import NodeFacts
from mgpu_jupyter.model.cluster_file import CUSTOM, ClusterFile, ExpectedNode
from mgpu_jupyter.model.policies import POLICIES
from mgpu_jupyter.model.settings import Account, Partition, Qos, Quota, Scheduling
from mgpu_jupyter.scheduler.placement.strategies import BUILT_IN
from mgpu_jupyter.server.site_settings import check_names, merged, read_setting
from mgpu_jupyter.server.yaml_lines import BadYaml, Lines, Path, read_yaml

VARIABLE = "MGPU_CLUSTER_CONFIG"
SUFFIXES = (".yaml", ".yml")
_T = TypeVar("_T")
_TABLES: dict[str, type[msgspec.Struct]] = {
    "partitions": Partition,
    "accounts": Account,
    "qos": Qos,
    "quotas": Quota,
}
_KEYS = [field.encode_name for field in msgspec.structs.fields(ClusterFile)]
_STEP = re.compile(r"\['(?P<name>[^']*)'\]|\[(?P<index>\d+)\]|\.?(?P<key>[^.\[]+)|\[\.\.\.\]")
_EXPECTED = re.compile(r"expected (?P<wanted>.*?)(?:, got (?P<got>\w+))?$", re.DOTALL)
_WANTED = re.compile(r"(\w+)((?: [<>=]+ \S+)?)")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of keys and values",
    "null": "nothing",
}
_EXAMPLES = {
    "cluster": 'cluster: {name: "gpu-cluster", master: {host: "127.0.0.1", port: 8080}}',
    "nodes": 'nodes: [{node_id: "node001", gpu_count: 8}]',
    "node_id": 'node_id: "node001"',
    "heartbeat_interval": "heartbeat_interval: 30",
    "timeout": "timeout: 60",
    "port": "port: 8080",
    "default_policy": 'default_policy: "fill_first"',
    "level": 'level: "INFO"',
    "max_job_time": "max_job_time: 3600",
    "enable_ssl": "enable_ssl: false",
    "gpu_count": "gpu_count: 8",
}
SETTINGS = {
    ("networking", "heartbeat_interval"): "heartbeat_interval",
    ("networking", "timeout"): "timeout",
    ("networking", "offline_after"): "offline_after",
    ("networking", "retries"): "max_failed_starts",
    ("networking", "link_port"): "link_port",
    ("networking", "kill_grace"): "kill_grace",
    ("networking", "on_disconnect"): "on_disconnect",
    ("networking", "lease"): "lease",
    ("networking", "lease_margin"): "lease_margin",
    ("networking", "prepare_timeout"): "prepare_timeout",
    ("networking", "ping_timeout"): "ping_timeout",
    ("networking", "follower_timeout"): "follower_timeout",
    ("networking", "relay_connect_timeout"): "relay_connect_timeout",
    ("networking", "relay_answer_timeout"): "relay_answer_timeout",
    ("networking", "relay_health_timeout"): "relay_health_timeout",
    ("networking", "node_failures"): "node_failures",
    ("networking", "probe_after"): "probe_after",
    ("networking", "probe_cap"): "probe_cap",
    ("security", "privacy"): "privacy",
    ("scheduling", "max_job_time"): "max_job_time",
    ("scheduling", "queue_policy"): "queue_policy",
    ("scheduling", "share_busy_gpus"): "share_busy_gpus",
}
"""Keys that are one setting of the extension."""


def read_cluster_file(path: FilePath, strategies: Iterable[str] = ()) -> ClusterFile:
    """Return the content of the file; `strategies` are those of the site's own."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            "bad-config", f"{path} cannot be read ({error.strerror}): name another file with --config."
        ) from error
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InvalidRequest(
            "bad-config", f"{path} line {line}: this is no UTF-8; save the file as UTF-8."
        ) from error
    return parse_cluster_file(text, str(path), strategies)


def parse_cluster_file(text: str, name: str, strategies: Iterable[str] = ()) -> ClusterFile:
    """Return the content of the text; `name` is the file's name in messages."""
    try:
        value, lines = read_yaml(text)
        return _Checker(lines, tuple(strategies)).file(value)
    except BadYaml as error:
        raise InvalidRequest("bad-config", f"{name} {error}", {"line": error.line}) from error


class _Checker:
    """Turns plain values into checked ones, and mistakes into messages with lines."""

    def __init__(self, lines: Lines, strategies: tuple[str, ...]) -> None:
        self._lines = lines
        self._strategies = strategies

    def file(self, value: object) -> ClusterFile:
        if value is None:
            return ClusterFile()
        if not isinstance(value, Mapping):
            raise BadYaml(
                1, f"the file is {_kind_of(value)} and not a table", f"begin like {_EXAMPLES['cluster']}"
            )
        for key in value:
            if key not in _KEYS:
                raise BadYaml(self._lines.of((key,)), f"there is no key {key[:50]}", _nearest(key, _KEYS))
        parts: dict[str, Any] = {}
        for field in msgspec.structs.fields(ClusterFile):
            key = field.encode_name
            given = value.get(key)
            if given is None:
                continue
            if key == "nodes":
                parts[key] = self._nodes(given)
            elif key in _TABLES:
                parts[key] = self._table(given, key, _TABLES[key])
            elif key == "shares":
                parts[key] = self._shares(given)
            else:
                parts[key] = self._read(given, field.type, key)
        file = ClusterFile(**parts)
        self._check(file)
        return file

    def _nodes(self, given: object) -> tuple[ExpectedNode, ...]:
        if not isinstance(given, list):
            raise BadYaml(
                self._lines.of(("nodes",)),
                f"nodes is {_kind_of(given)} and not a list",
                f"write {_EXAMPLES['nodes']}",
            )
        nodes = [self._read(one, ExpectedNode, f"nodes[{index}]") for index, one in enumerate(given)]
        seen: set[str] = set()
        for index, node in enumerate(nodes):
            if node.node_id in seen:
                raise BadYaml(
                    self._lines.of(("nodes", index)),
                    f"the node {node.node_id} is there twice",
                    "leave one out",
                )
            seen.add(node.node_id)
        return tuple(nodes)

    def _table(self, given: object, key: str, kind: type[_T]) -> dict[str, _T]:
        table = self._mapping(given, key)
        return {
            name: self._read({} if one is None else one, kind, f"{key}['{name}']")
            for name, one in table.items()
        }

    def _shares(self, given: object) -> dict[str, float]:
        return {
            name: self._read(one, float, f"shares['{name}']")
            for name, one in self._mapping(given, "shares").items()
        }

    def _mapping(self, given: object, key: str) -> Mapping[str, object]:
        if not isinstance(given, Mapping):
            raise BadYaml(
                self._lines.of((key,)),
                f"{key} is {_kind_of(given)} and not a table",
                f"write it as {key}: {{name: {{…}}}}",
            )
        for name in given:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
                raise BadYaml(
                    self._lines.of((key, name)),
                    f"{name[:50]!r} cannot be a name",
                    "use letters, digits and . _ -",
                )
        return given

    def _read(self, value: object, kind: Any, where: str) -> Any:
        if isinstance(value, Mapping):  # a key without a value counts as left out
            value = {key: one for key, one in value.items() if one is not None}
        try:
            return read_setting(value, kind, where)
        except InvalidRequest as error:
            raise self._at_line(error) from error

    def _at_line(self, error: InvalidRequest) -> BadYaml:
        what, where, hint, key = (
            str(error.details.get(name, "")) for name in ("what", "where", "hint", "key")
        )
        path = _path_of(where)
        line = self._lines.of((*path, key) if key else path)
        if hint == "write it anew":
            last = next((part for part in reversed(path) if isinstance(part, str)), "")
            hint = (
                f"write it like {_EXAMPLES[last]}" if last in _EXAMPLES else "write it as the documents show"
            )
        return BadYaml(line, f"{where}: {_in_words(what)}", hint)

    def _check(self, file: ClusterFile) -> None:
        """Refuse names of things that do not exist."""
        plan = file.scheduling
        strategies = (*BUILT_IN, *self._strategies)
        if plan.default_policy == CUSTOM and not plan.custom_policy:
            self._refuse("scheduling.default_policy", "custom needs custom_policy", "add custom_policy: NAME")
        for key, known in (
            ("default_policy", (*strategies, CUSTOM)),
            ("custom_policy", self._strategies),
            ("queue_policy", tuple(POLICIES)),
        ):
            named = getattr(plan, key)
            if named is not None and named not in known:
                kind = "order of the queue" if key == "queue_policy" else "strategy"
                self._refuse(f"scheduling.{key}", f"there is no {kind} {named[:50]}", _nearest(named, known))
        security = file.security
        for key in ("cert_file", "key_file"):
            named = getattr(security, key)
            if security.enable_ssl and named and not FilePath(named).is_file():
                self._refuse(
                    f"security.{key}", f"there is no file {named}", "name one that is there, or leave it out"
                )
        if security.key_file and not security.cert_file:
            self._refuse("security.key_file", "a key needs its certificate", "add cert_file")
        try:
            check_names(Scheduling(partitions=file.partitions, accounts=file.accounts), strategies)
        except InvalidRequest as error:
            raise self._at_line(error) from error

    def _refuse(self, where: str, what: str, hint: str) -> None:
        raise BadYaml(self._lines.of(_path_of(where)), f"{where}: {what}", hint)


def traits_of(file: ClusterFile) -> dict[str, Any]:
    """Return the content of the file as settings of the extension, by name."""
    said: dict[str, Any] = {}
    for (part, key), trait in SETTINGS.items():
        if (value := getattr(getattr(file, part), key)) is not None:
            said[trait] = value
    plan, cluster = file.scheduling, file.cluster
    if cluster.name:
        said["cluster_name"] = cluster.name
    if plan.default_policy is not None:
        said["default_policy"] = plan.custom_policy if plan.default_policy == CUSTOM else plan.default_policy
    if file.security.admins is not None:
        said["admins"] = list(file.security.admins)
    for key in ("partitions", "accounts", "qos", "quotas", "shares", "health", "retention", "limits"):
        if table := msgspec.json.decode(msgspec.json.encode(getattr(file, key))):
            said["health_checks" if key == "health" else key] = table
    if scheduling := _scheduling(file):
        said["scheduling"] = scheduling
    return said


def apply(app: Any, file: ClusterFile) -> None:
    """Apply the file's settings where the extension's own configuration has none; tables are merged."""
    own = app.config.get("MgpuApp", {})
    for name, value in traits_of(file).items():
        if isinstance(value, dict):
            setattr(app, name, merged(value, own.get(name, {})))
        elif name not in own:
            setattr(app, name, value)


def is_here(host: str) -> bool:
    """Tell whether this machine can listen on that address."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def site_warnings(file: ClusterFile, serverapp: Any, *, is_alone: bool) -> list[str]:
    """Return warnings about settings that this server cannot apply; `is_alone` under `mgpu_master`."""
    warnings: list[str] = []
    place = file.cluster.master
    if is_alone and place.host and not is_here(place.host):
        warnings.append(
            f"cluster.master.host {place.host} is no address of this machine: it listens on "
            f"{serverapp.ip or 'a socket'}."
        )
    if not is_alone and file.security.enable_ssl and not serverapp.certfile:
        warnings.append(
            "security.enable_ssl is for mgpu_master: give this Jupyter server ServerApp.certfile and "
            "ServerApp.keyfile."
        )
    return warnings


def node_warnings(expected: Iterable[ExpectedNode], facts: NodeFacts, node_id: str) -> tuple[str, ...]:
    """Return how a node that joined differs from the file."""
    wanted = next((one for one in expected if one.node_id == node_id), None)
    if wanted is None:
        return ()
    found: list[str] = []
    if wanted.gpu_count is not None and wanted.gpu_count != len(facts.gpus):
        found.append(
            f"The cluster's file says that it has {wanted.gpu_count} GPUs, and it has {len(facts.gpus)}."
        )
    other = sorted({gpu.name for gpu in facts.gpus if wanted.gpu_type.lower() not in gpu.name.lower()})
    if wanted.gpu_type and other:
        found.append(
            f"The cluster's file says that its GPUs are {wanted.gpu_type}, and it has {', '.join(other)}."
        )
    if wanted.hostname and wanted.hostname.partition(".")[0].lower() != facts.host.partition(".")[0].lower():
        found.append(f"The cluster's file says that it is host {wanted.hostname}, and it is {facts.host}.")
    if wanted.ip and wanted.ip != facts.address:
        found.append(f"The cluster's file says that it is at {wanted.ip}, and it is at {facts.address}.")
    return tuple(found)


def _scheduling(file: ClusterFile) -> dict[str, Any]:
    plan, networking = file.scheduling, file.networking
    planning = {
        **msgspec.to_builtins(plan.planning or {}),
        **({"weights": msgspec.to_builtins(plan.weights)} if plan.weights else {}),
    }
    retries = {
        **msgspec.to_builtins(plan.retries or {}),
        **({} if networking.backoff_base is None else {"backoff_base_s": networking.backoff_base}),
        **({} if networking.backoff_cap is None else {"backoff_cap_s": networking.backoff_cap}),
    }
    named = {
        "default_time_s": plan.default_job_time,
        "half_life_s": plan.half_life,
        "reorder_s": plan.reorder,
        "preemption": plan.preemption,
        "quota": msgspec.to_builtins(plan.quota) if plan.quota else None,
        "planning": planning or None,
        "retries": retries or None,
    }
    return {key: value for key, value in named.items() if value is not None}


def _path_of(where: str) -> Path:
    """Return the keys and indices of a place like `partitions['a'].nodes[0]`."""
    path: list[str | int] = []
    for step in _STEP.finditer(where):
        if step["index"] is not None:
            path.append(int(step["index"]))
        elif step["name"] is not None or step["key"] is not None:
            path.append(step["name"] if step["name"] is not None else step["key"])
    return tuple(path)


def _in_words(what: str) -> str:
    """Turn `expected int | null, got str` into words."""
    told = _EXPECTED.fullmatch(what)
    if told is None:
        return what
    kinds = [
        _KINDS.get(kind, kind) + limit for kind, limit in _WANTED.findall(told["wanted"]) if kind != "null"
    ]
    got = f", and it is {_KINDS.get(told['got'], told['got'])}" if told["got"] else ""
    return f"it must be {' or '.join(kinds)}{got}"


def _kind_of(value: object) -> str:
    names: tuple[tuple[type, str], ...] = (
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (str, "str"),
        (list, "array"),
        (Mapping, "object"),
    )
    return _KINDS[next((name for kind, name in names if isinstance(value, kind)), "null")]


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(word, names, 1, 0.5)
    return (
        f"write {near[0]}" if near else f"it is one of {', '.join(names)}" if names else "none is installed"
    )
