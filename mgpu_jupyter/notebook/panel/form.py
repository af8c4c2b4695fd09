"""The submit form as values: it is turned into the line of a magic, and that line is read by the magics' own
reader.

So the form, the line that it writes into a cell and what is submitted cannot differ. Sends nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.flags import IN_FORMS, Field
from mgpu_jupyter.client.line import read_line, variables
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.request import Submission, parse, written
from mgpu_jupyter.model.explanations import Offer
from mgpu_jupyter.notebook.panel.seen import Picked

MAGIC = "%mgpu_srun"
CELL_MAGIC = "%%mgpu_srun"
ANY_TYPE = ""
PLACEHOLDER = "python train.py"
CELL_PLACEHOLDER = "import train"
MOST_GPUS = 1_000


class More(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that few jobs need: the folded part of the form."""

    values: Mapping[str, str | bool] = {}
    """What is filled in, by keyword of its flag."""
    flags: str = ""
    """More flags of `mgpu_srun`, as typed."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What is filled in."""

    nodes: int = 1
    gpus: int = 1
    """On each node."""
    gpu_type: str = ANY_TYPE
    time_limit: str = ""
    name: str = ""
    command: str = ""
    code: str | None = None
    """A Python cell in place of the command."""
    more: More = More()
    picks: tuple[Picked, ...] = ()
    """Exactly these GPUs; then numbers and type do not count."""


def arguments(form: Form) -> str:
    """Return the part of the line after the magic's name."""
    filled = {"slurm_time": form.time_limit, "name": form.name, **form.more.values}
    values: dict[str, object] = _place(form)
    for dest, (_, field) in IN_FORMS.items():
        if value := filled.get(dest):
            values |= _meant(dest, field, value)
    flags = f"{written(values)} {form.more.flags.strip()}".strip()
    return flags if form.code is not None else f"{flags} -- {form.command.strip() or PLACEHOLDER}"


def _meant(dest: str, field: Field, value: str | bool) -> dict[str, object]:
    """Return the value of a field as flags have it."""
    match field.control:
        case "switches":
            return {str(value): True}
        case "names" | "nodes":
            return {dest: _listed(str(value))}
        case "pairs":
            return {dest: _words(str(value))}
        case _:
            return {dest: value}


def _place(form: Form) -> dict[str, object]:
    """Return how many GPUs of which kind, or exactly which ones."""
    if not form.picks:
        size = {"gpus": form.gpus} if form.nodes == 1 else {"nodes": form.nodes, "gpus_per_node": form.gpus}
        return {**size, "gpu_type": form.gpu_type}
    by_node: dict[str, list[int]] = {}
    for pick in sorted(form.picks, key=lambda pick: (pick.node, pick.index)):
        by_node.setdefault(pick.node, []).append(pick.index)
    return {
        "node_gpu_ids": ";".join(f"{node}:{','.join(map(str, indices))}" for node, indices in by_node.items())
    }


def _listed(text: str) -> str:
    """Return `a, b` or `a b` as `a,b`."""
    return ",".join(text.replace(",", " ").split())


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unclosed quote
        return text.split()


def magic(form: Form) -> str:
    """Return the line for a cell, or the whole cell."""
    if form.code is None:
        return f"{MAGIC} {arguments(form)}"
    return f"{CELL_MAGIC} {arguments(form)}\n{form.code.strip() or CELL_PLACEHOLDER}"


def submission_of(form: Form, namespace: Mapping[str, object], *, to_submit: bool) -> Submission:
    """Return the request; while there is nothing to run, it is only good for a dry run."""
    if to_submit and not (form.command if form.code is None else form.code).strip():
        example = (
            "Write the command that is to run, like python train.py."
            if form.code is None
            else "Write the Python that is to run."
        )
        raise InvalidRequest("no-command", example)
    found = parse(
        read_line(arguments(form), variables(namespace, os.environ)),
        cell=None if form.code is None else form.code.strip() or CELL_PLACEHOLDER,
        environ=os.environ,
        prog=MAGIC if form.code is None else CELL_MAGIC,
        in_notebook=True,
    )
    if isinstance(found, Help):
        raise InvalidRequest("usage", "More flags: take --help out.")
    return found


def sizes_of(form: Form) -> list[Form]:
    """Return the form with other sizes that people may ask for next: twice as much, all on one node, and half
    as much.
    """
    if form.picks or not form.gpus:
        return []
    found = [
        (form.nodes, form.gpus * 2),
        (1, form.nodes * form.gpus),
        (form.nodes, form.gpus // 2),
        (form.nodes * 2, form.gpus),
    ]
    sizes = [
        size
        for number, size in enumerate(found)
        if size != (form.nodes, form.gpus) and size not in found[:number]
    ]
    return [
        msgspec.structs.replace(form, nodes=nodes, gpus=gpus)
        for nodes, gpus in sizes
        if 0 < gpus <= MOST_GPUS
    ][:3]


def with_offer(form: Form, offer: Offer) -> Form | None:
    """Return the form with an offer taken, or None when the form has no field for it."""
    fields: dict[str, object] = {}
    for key, value in offer.patch.items():
        match key:
            case "gpus" if value is not None and form.nodes == 1:
                fields["gpus"] = int(value)
            case "gpus_per_node" if value is not None:
                fields["gpus"] = int(value)
            case "nodes":
                fields["nodes"] = 1 if value is None else int(value)
            case "gpu_type":
                fields["gpu_type"] = value or ANY_TYPE
            case "time_limit_s":
                fields["time_limit"] = "" if value is None else hours(float(value))
            case "gpu_ids" | "node_gpu_ids" if not value:
                fields["picks"] = ()
            case _:
                return None
    return msgspec.structs.replace(form, **fields)


def hours(seconds: float) -> str:
    """Return seconds as HH:MM:SS."""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole % 3600 // 60:02}:{whole % 60:02}"


def toggled(picks: Sequence[Picked], pick: Picked) -> tuple[Picked, ...]:
    """Return the picks with one more, or without it when it was among them."""
    return tuple(one for one in picks if one != pick) if pick in picks else (*picks, pick)
