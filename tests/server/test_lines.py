"""`POST jobs/parse`: what a front end shows is what is run; nothing of the server's own process enters a
request.
"""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize(
    ("line", "cell", "answer"),
    [
        ("--gpus 2 -- python train.py", None, {"spec": {"command": ["python", "train.py"], "gpus": 2}}),
        ("mgpu_srun -- a && b", None, {"spec": {"command": ["bash", "-lc", "a && b"]}}),
        ("%mgpu_srun --background -- a", None, {"spec": {"command": ["a"]}, "background": True}),
        (
            "%%mgpu_srun --in x --out y",
            "y = x",
            {"spec": {"script": "y = x", "name": "y = x", "outputs": ["y"]}, "inputs": ["x"]},
        ),
        ("-- echo $HOME $MGPU_TOKEN", None, {"spec": {"command": ["bash", "-lc", "echo $HOME $MGPU_TOKEN"]}}),
        (
            "--gpu-ids 0 --chdir /data -- {1+1}",
            None,
            {"spec": {"command": ["{1+1}"], "gpu_ids": [0], "cwd": "/data"}},
        ),
    ],
)
async def test_a_line_becomes_a_request(api, line, cell, answer):
    assert await api("jobs/parse", "POST", {"line": line, "cell": cell}) == (
        200,
        {"inputs": [], "background": False} | answer,
    )
    assert (await api("cluster"))[1]["jobs"]["queued"] == 0


@pytest.mark.parametrize(
    ("line", "cell", "sentence"),
    [
        ("--gpu 1 -- x", None, "There is no flag --gpu: use --gpus, or see mgpu_srun --help."),
        ("%%mgpu_srun", " ", "The cell has no body: write what is to run below the first line."),
        ("--help", None, "Take --help out: a line that is to be submitted cannot ask for help."),
        (
            "--sync /etc -- x",
            None,
            "--sync sends a folder of the machine that you sit at: use mgpu_srun there, or a notebook.",
        ),
        ("--chdir ~ -- x", None, "~: write the whole path, from / on; this request comes from no directory."),
        (
            "--export HOME -- x",
            None,
            "--export HOME: it is not set here; set it, or give its value by --env HOME=…",
        ),
        ("-- 'x", None, "The quotation mark at 'x is never closed: close it, or write \\'"),
    ],
)
async def test_what_is_wrong_is_the_sentence_of_the_command_line(api, line, cell, sentence):
    assert "HOME" in os.environ
    code, error = await api("jobs/parse", "POST", {"line": line, "cell": cell})
    assert (code, error["message"]) == (400, sentence)


async def test_a_line_has_a_limit(api):
    code, error = await api("jobs/parse", "POST", {"line": "x" * 20_001})
    assert (code, error["code"]) == (400, "invalid")
