"""Files of `--output` and `--error`: what patterns mean, which files several processes share, what is
refused.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.output_files import is_shared, name_of, values_of

PATTERNS = {
    "plain.out": "plain.out",
    "%j": "R4T8W2ZB",
    "%J": "R4T8W2ZB.0",
    "%s": "0",
    "slurm-%A_%a.out": "slurm-ARRAY123_13.out",
    "%b": "3",
    "%4a": "0013",
    "%N/%n": "node7/2",
    "rank%3t": "rank005",
    "%99t": "0000000005",
    "%9j": "R4T8W2ZB",
    "%x-%u": "a_b-ann",
    "100%%": "100%",
}


@pytest.mark.parametrize(("pattern", "name"), PATTERNS.items())
def test_a_pattern_is_what_slurm_makes_of_it(pattern: str, name: str) -> None:
    values = values_of("R4T8W2ZB", "a/b", "ann", array=("ARRAY123", 13), node=("node7", 2), rank=5)
    assert name_of(pattern, values) == name


def test_a_job_of_no_array_and_without_a_name_goes_by_its_id() -> None:
    values = values_of("R4T8W2ZB", "", "ann", array=None, node=("n", 0), rank=0)
    assert name_of("%A_%a_%x", values) == "R4T8W2ZB_0_R4T8W2ZB"


@pytest.mark.parametrize(
    ("pattern", "tasks", "nodes", "in_array", "shared"),
    [
        ("out", 1, 1, False, False),
        ("out-%j", 4, 2, False, True),
        ("out-%t", 4, 2, False, False),
        ("out-%N", 4, 2, False, True),
        ("out-%N", 2, 2, False, False),
        ("out-%n", 2, 2, False, False),
        ("out", 1, 1, True, True),
        ("out-%A", 1, 1, True, True),
        ("out-%a", 1, 1, True, False),
        ("out-%%t", 4, 2, False, True),
    ],
)
def test_who_shares_a_file(pattern: str, tasks: int, nodes: int, in_array: bool, shared: bool) -> None:
    assert is_shared(pattern, tasks=tasks, nodes=nodes, in_array=in_array) is shared


MEANT = (
    "use %j (job), %A and %a (array), %N (node), %t (rank), %x (name), %u (user) or %% for a percent sign."
)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (JobSpec(stdout_file="a-%z"), f"--output a-%z: %z stands for nothing; {MEANT}"),
        (JobSpec(stderr_file="50%"), f"--error 50%: % stands for nothing; {MEANT}"),
        (
            JobSpec(stdout_file="logs/"),
            "--output logs/ is a directory: add the name of a file, like %j.out.",
        ),
        (
            JobSpec(stdout_file="a", pty=True),
            "--output and --pty exclude each other: what a terminal shows is in no file.",
        ),
        (
            JobSpec(stderr_file="a", sync="/home/ann/x"),
            (
                "--error a would be in the copy of the --sync folder, which goes with the job: add --results "
                "to collect it, or write a path that begins with /."
            ),
        ),
        (
            JobSpec(open_mode="append"),
            "--open-mode says how a file is opened: name one by --output FILE.",
        ),
    ],
)
def test_what_is_no_file_is_refused(spec: JobSpec, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(replace(spec, command=("x",)))
    assert caught.value.message == sentence


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(stdout_file="/tmp/%j", sync="/home/ann/x"),
        JobSpec(stdout_file="a", sync="/home/ann/x", results=("a",)),
        JobSpec(stdout_file="a", stderr_file="b", open_mode="append"),
    ],
)
def test_what_can_be_written_is_taken(spec: JobSpec) -> None:
    whole = replace(spec, command=("x",))
    assert check(whole) == whole
