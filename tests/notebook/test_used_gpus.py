"""What a job that completed made of its GPUs, in the line below its output."""

from __future__ import annotations

import pytest

from mgpu_jupyter.api.traces import Summary
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.notebook.stream import used_gpus
from tests.client.answers import client_of
from tests.client.test_summary_lines import BARE


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Summary(**(BARE | {"gpus_requested": 4, "gpu_utilisation_percent": 32.5})), "asked 4, used 1.3"),
        (Summary(**BARE), ""),
        (Answer(status=404), ""),
    ],
)
def test_used_gpus(answer: object, told: str) -> None:
    client, answers = client_of(answer)
    assert used_gpus(client.handle("ABCD1234")) == told
    assert [one[1] for one in answers.asked] == ["jobs/ABCD1234/summary"]
    assert used_gpus(None) == ""
