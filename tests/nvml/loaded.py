"""The stand-in inside the test's own process: the real `pynvml`, made to load it in place of NVIDIA's
library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from tests.nvml.stand_in import Card, StandIn

Load = Callable[..., StandIn]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that makes a stand-in with these cards and lets `pynvml` find it and nothing else."""

    def load(*cards: Card, flags: tuple[str, ...] = ()) -> StandIn:
        stand_in = StandIn(tmp_path, *cards, flags=flags)
        monkeypatch.setattr(pynvml, "nvmlLib", None)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(pynvml, "CDLL", lambda _name: ctypes.CDLL(str(stand_in.library)))
        monkeypatch.setenv("NVML_STAND_IN", str(stand_in.path))
        return stand_in

    return load
