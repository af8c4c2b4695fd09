"""What operators order about nodes: drain, maintenance, resume, who may use them, labels, remove. Answers
first, then changes; pure.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from mgpu_agent.protocol.errors import Conflict, InvalidRequest, NotFound
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.model.settings import Lists
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import Command, ForgetNode, SaveNode
from mgpu_jupyter.scheduler.events import NodeOrdered
from mgpu_jupyter.scheduler.model import Node
from mgpu_jupyter.scheduler.state import ClusterState

_NAMING = ("allow", "deny", "only")


def answer(state: ClusterState, order: NodeOrdered) -> str:
    """Return the answer to an order that can be carried out; an error says why it cannot."""
    node = state.nodes.get(order.node_id)
    if node is None:
        raise NotFound("no-such-node", f"There is no node {order.node_id}: see `mgpu nodes`.")
    _check_names(order)
    match order.action:
        case "drain":
            return f"It takes no new jobs; {_running(state, node)}"
        case "maintenance":
            return f"It is in maintenance and takes no new jobs; {_running(state, node)}"
        case "resume":
            return _on_resume(node)
        case "allow" | "deny" | "only" | "clear-lists":
            after = change_lists(node.orders.lists, order)
            return _who_may(order) if after != node.orders.lists else _as_before(order, after)
        case "label":
            return _labelled(node, change_labels(node.orders.labels, order))
        case "remove":
            _check_removable(state, node)
            return "It is forgotten, and its key with it; with a line of `mgpu join-token` it can join anew."
        case _:  # pragma: no cover - mypy proves that this cannot be reached
            assert_never(order.action)


def on_ordered(state: ClusterState, order: NodeOrdered) -> list[Command]:
    """Carry out an order; one that cannot be changes nothing."""
    try:
        answer(state, order)
    except (Conflict, InvalidRequest, NotFound):
        return []
    state.wants_pass = True
    if order.action == "remove":
        books.forget(state, order.node_id)
        return [ForgetNode(order.node_id)]
    node = state.nodes[order.node_id]
    wishes = {"drain": NodeState.DRAINING, "maintenance": NodeState.MAINTENANCE, "resume": None}
    if order.action in wishes:
        node.orders = replace(
            node.orders, state=wishes[order.action], reason=order.reason, by=order.by, at=order.at
        )
        if order.action == "resume":
            node.health = replace(
                node.health, failures=0, trouble="", probe_at=None, probe_delay_s=0.0, probe=0
            )
    elif order.action == "label":
        labels = change_labels(node.orders.labels, order)
        node.orders = replace(
            node.orders, labels=labels, labels_reason=order.reason, labels_by=order.by, labels_at=order.at
        )
        books.recount(state, node)
    else:
        lists = change_lists(node.orders.lists, order)
        node.orders = replace(
            node.orders, lists=lists, lists_reason=order.reason, lists_by=order.by, lists_at=order.at
        )
    books.settle(state, node)
    return [SaveNode(node.id)]


def change_lists(lists: Lists, order: NodeOrdered) -> Lists:
    """Return who may use a node after this order."""
    users, accounts = order.users, order.accounts
    match order.action:
        case "clear-lists":
            return Lists()
        case "only":
            return Lists(allow_users=_with((), users), allow_accounts=_with((), accounts))
        case "deny":
            # The allow list stays: without its last name it would be empty and admit everybody. `deny`
            # takes precedence.
            return replace(
                lists,
                deny_users=_with(lists.deny_users, users),
                deny_accounts=_with(lists.deny_accounts, accounts),
            )
        case _:
            lists = replace(
                lists,
                deny_users=_less(lists.deny_users, users),
                deny_accounts=_less(lists.deny_accounts, accounts),
            )
            if not lists.allow_users and not lists.allow_accounts:
                return lists
            return replace(
                lists,
                allow_users=_with(lists.allow_users, users),
                allow_accounts=_with(lists.allow_accounts, accounts),
            )


def change_labels(labels: dict[str, str], order: NodeOrdered) -> dict[str, str]:
    """Return the labels that operators set on a node, after this order."""
    return {name: value for name, value in {**labels, **order.labels}.items() if value is not None}


def _labelled(node: Node, labels: dict[str, str]) -> str:
    names = ", ".join(
        f"{name}={value}" if value else name for name, value in sorted((node.facts.labels | labels).items())
    )
    return f"It is labelled {names}." if names else "It has no label."


def _check_names(order: NodeOrdered) -> None:
    if (order.action == "label") != bool(order.labels):
        raise InvalidRequest(
            "labels",
            f"Labels go with label and nothing else, for example: mgpu node label {order.node_id} room=B2.",
        )
    if order.action in _NAMING and not order.users and not order.accounts:
        raise InvalidRequest(
            "nobody-named",
            f"Whom? Name users or accounts, for example: mgpu node deny {order.node_id} --user ann.",
        )
    if order.action not in _NAMING and (order.users or order.accounts):
        raise InvalidRequest(
            "names-not-used", f"Users and accounts go with allow and deny: leave them out of {order.action}."
        )


def _check_removable(state: ClusterState, node: Node) -> None:
    if node.link is not NodeState.OFFLINE:
        raise Conflict(
            "node-connected",
            f"Node {node.id} is {node.state}: stop its agent, or give up what it runs with `mgpu node "
            f"revoke {node.id}`; then remove it.",
        )
    if count := _jobs_on(state, node):
        jobs = "a job" if count == 1 else f"{count} jobs"
        raise Conflict(
            "node-busy",
            f"Node {node.id} may still run {jobs}: cancel them, or give them up with `mgpu node revoke "
            f"{node.id}`; then remove it.",
        )


def _jobs_on(state: ClusterState, node: Node) -> int:
    return sum(
        any(placement.node_id == node.id for placement in job.placements) for job in state.jobs.values()
    )


def _running(state: ClusterState, node: Node) -> str:
    count = _jobs_on(state, node)
    if not count:
        return "nothing runs on it."
    return (
        "the job on it goes on to its end." if count == 1 else f"the {count} jobs on it go on to their end."
    )


def _on_resume(node: Node) -> str:
    if node.link is not NodeState.ONLINE:
        return "It takes jobs again as soon as it is connected."
    return "It takes jobs already." if node.state is NodeState.ONLINE else "It takes jobs again."


def _who_may(order: NodeOrdered) -> str:
    if order.action == "clear-lists":
        return "Everybody may use it from now on."
    names = ", ".join((*order.users, *(f"account {account}" for account in order.accounts)))
    if order.action == "deny":
        return f"No new job of {names} starts on it; what runs goes on."
    if order.action == "only":
        return f"Only {names} may use it from now on; what runs goes on."
    return f"{names} may use it from now on."


def _as_before(order: NodeOrdered, lists: Lists) -> str:
    if order.action == "deny":
        return "They are denied already."
    if not lists:
        return (
            f"Everybody may use it already; to let in only some, write mgpu node allow {order.node_id} "
            f"--only --user NAME."
        )
    return "They may use it already." if order.action == "allow" else "So it is already."


def _with(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *more)))


def _less(names: tuple[str, ...], fewer: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in fewer)
