"""Variables that go to a cell and come back: which requests can have them. Pure."""

from __future__ import annotations

from keyword import iskeyword

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import JobSpec


def check_variables(spec: JobSpec) -> None:
    """Refuse variables where there is nobody to take them, and names that are none."""
    for name in spec.outputs:
        if iskeyword(name) or spec.outputs.count(name) > 1:
            raise InvalidRequest("bad-name", f"--out {name}: it is a word of Python, or named twice; write them like --out a,b.")
    if spec.inputs or spec.outputs:
        check_cell(spec)


def check_cell(spec: JobSpec) -> None:
    """Refuse what is no Python cell that mgpu itself runs."""
    if spec.script is None:
        raise InvalidRequest(
            "no-cell", "--in and --out are for Python cells (%%mgpu_srun): a command takes files, by --sync and --results."
        )
    if spec.script.startswith("#!"):
        raise InvalidRequest("no-cell", "--in and --out are for cells in Python: take out its first line with #!, or --in and --out.")
    if spec.image:
        raise InvalidRequest("no-cell", "--in and --out do not reach into a container: leave out --image, or use --sync and --results.")
    if spec.mpi:
        raise InvalidRequest("no-cell", "--in and --out do not go with --mpi: use --distributed, or --sync and --results.")
