"""Which commands start ranks by themselves."""

from __future__ import annotations

import pytest

from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.launchers import Launcher, launcher_of, with_flags


@pytest.mark.parametrize(
    ("words", "launcher"),
    [
        (("torchrun", "train.py"), Launcher.TORCHRUN),
        (("/opt/env/bin/torchrun", "--nnodes", "2", "train.py"), Launcher.TORCHRUN),
        (("python", "-m", "torch.distributed.run", "train.py"), Launcher.TORCHRUN),
        (("/usr/bin/python3.11", "-u", "-m", "torch.distributed.launch", "train.py"), Launcher.TORCHRUN),
        (("accelerate", "launch", "train.py"), Launcher.ACCELERATE),
        (("accelerate-launch", "train.py"), Launcher.ACCELERATE),
        (("python", "-m", "accelerate.commands.launch", "train.py"), Launcher.ACCELERATE),
        (("deepspeed", "train.py"), Launcher.DEEPSPEED),
        (("env", "OMP_NUM_THREADS=1", "torchrun", "train.py"), Launcher.TORCHRUN),
        (("bash", "-lc", "torchrun train.py"), Launcher.TORCHRUN),
        (("bash", "-lc", "cd src && LR=1 exec torchrun train.py | tee log"), Launcher.TORCHRUN),
        (("sh", "-c", "echo hello\naccelerate launch train.py"), Launcher.ACCELERATE),
        (("accelerate", "config"), None),
        (("python", "train.py"), None),
        (("python", "train.py", "-m", "torch.distributed.run"), None),
        (("python", "-m"), None),
        (("python", "-u"), None),
        (("python", "-m", "pytest"), None),
        (("bash", "-lc", "echo torchrun"), None),
        (("bash", "-lc", "echo 'no end"), None),
        (("bash", "train.sh"), None),
        (("env", "A=1"), None),
        (("hostname",), None),
    ],
)
def test_launchers(words: tuple[str, ...], launcher: Launcher | None) -> None:
    assert launcher_of(JobSpec(command=words)) is launcher


@pytest.mark.parametrize(
    ("script", "launcher"),
    [
        ("import torch\n", None),
        ("#!/bin/bash\ntorchrun x.py\n", None),
        ("#!/usr/bin/env torchrun\nimport torch\n", Launcher.TORCHRUN),
        ("#!/usr/bin/env -S torchrun --nproc_per_node 2\nimport torch\n", Launcher.TORCHRUN),
    ],
)
def test_a_cell_is_run_by_a_launcher_when_its_first_line_says_so(
    script: str, launcher: Launcher | None
) -> None:
    assert launcher_of(JobSpec(script=script)) is launcher


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("accelerate", "launch", "--cpu", "x.py"), ("accelerate", "launch", "--a", "1", "--cpu", "x.py")),
        (("/opt/bin/accelerate-launch", "x.py"), ("/opt/bin/accelerate-launch", "--a", "1", "x.py")),
        (
            ("python", "-m", "accelerate.commands.launch", "x.py"),
            ("python", "-m", "accelerate.commands.launch", "--a", "1", "x.py"),
        ),
        (
            ("bash", "-lc", "cd a && accelerate launch x.py"),
            ("bash", "-lc", "cd a && accelerate launch --a 1 x.py"),
        ),
        (
            ("bash", "-lc", "python -m accelerate.commands.launch x.py"),
            ("bash", "-lc", "python -m accelerate.commands.launch --a 1 x.py"),
        ),
        (("torchrun", "x.py"), ("torchrun", "x.py")),
    ],
)
def test_flags_are_put_before_those_of_the_user(words: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert with_flags(words, ["--a", "1"]) == expected
