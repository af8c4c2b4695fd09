"""`mgpu nodes`: the machines and each of their GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mgpu_agent.protocol.addresses import FOUND_BY_WORDS
from mgpu_agent.protocol.text import json_text, printable, tell
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.command import Command, MakeClient, add_json
from mgpu_jupyter.cli.show import on_terminal
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.words import gpu_count, gpu_name, holder, memory

NODE_FIELDS = (
    *("id", "state", "reason", "host", "address", "address_method", "port"),
    *(
        "orders",
        "failures",
        "failures_total",
        "probe_at",
        "cpu_percent",
        "memory_available_bytes",
        "runs",
        "rack",
        "switch",
        "last_seen_at",
        "warnings",
    ),
)
GPU_FIELDS = (
    "index",
    "uuid",
    "name",
    "memory_bytes",
    "job_id",
    "simulated",
    "state",
    "reason",
    "processes",
    "mig_parent",
    "nvlinks",
)


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(prog, f"{prog} [--json]", "Show the nodes and their GPUs.")
    add_json(result)
    return result


def run(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Show all nodes."""
    with make_client() as client:
        listed = client.node_list()
    nodes, expected = listed.nodes, listed.expected
    if not values.json and nodes and on_terminal():
        from mgpu_jupyter.cli.tables import show_nodes

        show_nodes(nodes)
        tell(*_expected_lines(expected), end="\n" if expected else "")
        return 0
    if values.json:
        tell(as_json(nodes, expected))
    else:
        tell(*as_lines(nodes), *_expected_lines(expected))
    return 0


def as_json(nodes: Sequence[models.Node], expected: Sequence[models.ExpectedNode] = ()) -> str:
    """Return the document of `--json`."""
    documents = [
        {
            **{field: getattr(node, field) for field in NODE_FIELDS},
            "gpus": [{field: getattr(gpu, field) for field in GPU_FIELDS} for gpu in node.gpus],
        }
        for node in nodes
    ]
    return json_text({"nodes": documents, **({"expected": expected} if expected else {})})


def _expected_lines(expected: Sequence[models.ExpectedNode]) -> list[str]:
    """Return one line for each machine that never joined."""
    lines = []
    for node in expected:
        gpus = (
            f"{gpu_count(node.gpu_count)}{f' {printable(node.gpu_type)}' if node.gpu_type else ''}"
            if node.gpu_count is not None
            else ""
        )
        about = [f"host {printable(node.host)}" if node.host else "", gpus]
        lines.append(
            " | ".join(
                [f"{node.id}: expected (in the cluster's file; it never joined)", *filter(None, about)]
            )
        )
    return lines


def as_lines(nodes: Sequence[models.Node]) -> list[str]:
    """Return one line for each node and each GPU."""
    if not nodes:
        return ["No nodes yet: run `mgpu_node --node-id NAME` on a machine with GPUs."]
    return [line for node in nodes for line in _node_lines(node)]


def _node_lines(node: models.Node) -> list[str]:
    free = sum(gpu.state == "free" and gpu.job_id is None for gpu in node.gpus)
    simulated = ", simulated" if node.gpus and all(gpu.simulated for gpu in node.gpus) else ""
    count = f"{gpu_count(len(node.gpus))}{simulated}, {free} free" if node.gpus else "no GPU"
    reason = f" ({printable(node.reason)})" if node.reason else ""
    cpus = (
        f"{node.cpus} CPUs"
        if node.cpu_percent is None
        else f"{node.cpus} CPUs, {node.cpu_percent:.0f} % busy"
    )
    lines = [f"{node.id}: {node.state}{reason} | host {printable(node.host)} | {cpus} | {count}"]
    found_by = FOUND_BY_WORDS.get(node.address_method, "")
    port = f", port {node.port}" if node.port else ""
    lines.append(f"  address {printable(node.address)}{f' ({found_by})' if found_by else ''}{port}")
    if place := _place(node):
        lines.append(f"  {printable(place)}")
    if node.labels:
        labels = (f"{name}={value}" if value else name for name, value in sorted(node.labels.items()))
        lines.append(f"  labels {printable(', '.join(labels))}")
    lines += [f"  {printable(line)}" for line in _who_may(node.orders)]
    lines += [f"  WARNING: {printable(text)}" for text in node.warnings]
    if node.gpu_note:
        lines.append(f"  {printable(node.gpu_note)}")
    return lines + [_gpu_line(gpu) for gpu in node.gpus]


def _place(node: models.Node) -> str:
    """Return a node's place in the network; empty where it did not report one."""
    named = (("rack", node.rack), ("switch", node.switch))
    return ", ".join(f"{what} {name}" for what, name in named if name)


def _who_may(orders: models.NodeOrders) -> list[str]:
    """Return one line for each list of who may use a node."""
    lists = orders.lists
    named = (
        ("only for", (*lists.allow_users, *(f"account {name}" for name in lists.allow_accounts))),
        ("not for", (*lists.deny_users, *(f"account {name}" for name in lists.deny_accounts))),
    )
    return [f"{what} {', '.join(names)} (set by {orders.lists_by})" for what, names in named if names]


def _gpu_line(gpu: models.Gpu) -> str:
    busy = "" if gpu.utilisation_percent is None else f" | {gpu.utilisation_percent:.0f} % busy"
    used = memory(gpu.memory_used_bytes, gpu.memory_bytes)
    return f"  GPU {gpu.index}: {printable(gpu_name(gpu))} | {used}{busy} | {printable(holder(gpu))}"


COMMANDS = {"nodes": Command(parser, run)}
