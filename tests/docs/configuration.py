"""The page about settings, made from those of the server's extension and the types of the cluster's file."""

from __future__ import annotations

from typing import Any

import msgspec
from traitlets import TraitType

from mgpu_jupyter.model import cluster_file, settings
from mgpu_jupyter.server.app import MgpuApp
from mgpu_jupyter.server.cluster_file import SETTINGS
from tests.docs.fields import about, cell, kind, table, texts

HEAD = """# Configuration

Written by `make fmt` from `mgpu_jupyter/server/app.py` and `mgpu_jupyter/model/`; a test compares. By task:
[Configure a cluster by a file](../howto/cluster-file.md), [Set rules](../howto/site-rules.md).

## Settings of the server

On the command line as `--MgpuApp.NAME=VALUE` (behind `--` of `mgpu_master`, or of `jupyter lab` itself), in
`jupyter_server_config.py` as `c.MgpuApp.NAME = VALUE`. Tables on the command line are written as in Python.

"""
FILE = """
## The cluster's file

`cluster_config.yaml`, for `mgpu_master --config`, `--MgpuApp.cluster_config` or `MGPU_CLUSTER_CONFIG`. All
keys are optional; what a setting above says goes before.

"""
PARTS = {
    "nodes": (cluster_file.ExpectedNode, "Each entry of the list"),
    "partitions": (settings.Partition, "By name"),
    "accounts": (settings.Account, "By name"),
    "qos": (settings.Qos, "By name"),
    "quotas": (settings.Quota, "By user"),
}
TABLES = (cluster_file.MasterPlace, settings.Quota, settings.Weights, settings.Planning, settings.Retries)
ANCHORS = {"Partition": "partitions", "Account": "accounts", "Qos": "qos"}


def page() -> str:
    """Return the page."""
    rows = [_setting(name, trait) for name, trait in MgpuApp.class_own_traits(config=True).items()]
    parts = [HEAD, table("setting", "default", "means", rows=sorted(rows)), FILE]
    fields = msgspec.structs.fields(cluster_file.ClusterFile)
    parts.append(
        table(
            "key",
            "holds",
            rows=[(f"[`{one.encode_name}`](#{one.encode_name})", _holds(one)) for one in fields],
        )
    )
    for field in fields:
        parts.append(f"\n### {field.encode_name}\n")
        if field.encode_name in PARTS:
            struct, how = PARTS[field.encode_name]
            parts.append(f"\n{how}: {_first_small(about(struct))}\n{_struct(struct)}")
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            parts.append(f"\n{about(field.type)}\n{_struct(field.type, field.encode_name)}")
        else:
            parts.append("\nFair shares by user, as numbers above 0; 1 for all others.\n")
    parts.append("\n## Tables within these\n")
    parts += [f"\n### {struct.__name__}\n\n{about(struct)}\n{_struct(struct)}" for struct in TABLES]
    parts.append(
        f"\n## The setting `scheduling`\n\nWhat `MgpuApp.scheduling` holds.\n{_struct(settings.Scheduling)}"
    )
    return "".join(parts)


def _setting(name: str, trait: TraitType[Any, Any]) -> tuple[str, str, str]:
    default = trait.default() if not callable(trait.default_value) else None
    return (
        f"`{name}`",
        _shown(default),
        cell(str(trait.help)).replace("docs/scheduling.md", "[Who starts when](../scheduling.md)"),
    )


def _struct(struct: type, part: str = "") -> str:
    (_,), components = msgspec.json.schema_components([struct], ref_template="#/{name}")
    schemas = components[struct.__name__]["properties"]
    meanings = texts(struct)
    rows = []
    for field in msgspec.structs.fields(struct):
        setting = SETTINGS.get((part, field.encode_name), "")
        meaning = meanings.get(field.name) or (f"as `MgpuApp.{setting}`" if setting else "")
        default = "" if field.default is msgspec.NODEFAULT else _shown(field.default)
        rows.append(
            (
                f"`{field.encode_name}`",
                kind(schemas[field.encode_name], ANCHORS).removesuffix(" or null"),
                default,
                cell(meaning),
            )
        )
    return "\n" + table("key", "is", "default", "means", rows=rows)


def _holds(field: Any) -> str:
    if field.encode_name in PARTS:
        return cell(about(PARTS[field.encode_name][0]))
    is_struct = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    return cell(about(field.type)) if is_struct else "Fair shares of single users"


def _shown(default: object) -> str:
    if default is None or default == "" or default == () or isinstance(default, msgspec.Struct):
        return ""
    if isinstance(default, bool):
        return f"`{default}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _first_small(text: str) -> str:
    return text[:1].lower() + text[1:]
