"""Compiles the stand-in for NVIDIA's library and writes the state that it answers from. Used by tests
only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

SOURCE = Path(__file__).with_name("stand_in.c")
GIB = 1024**3
LOST, RESET_REQUIRED, UNKNOWN, NOT_SUPPORTED = 15, 16, 999, 3


class Card(msgspec.Struct, kw_only=True):
    """One GPU or MIG instance; a test changes it and writes the state anew."""

    uuid: str
    name: str = "Stand-in A100"
    bus: str = "00000000:01:00.0"
    total: int = 40 * GIB
    used: int = 1 * GIB
    utilisation: int = 0
    temperature: int = 40
    milliwatts: int = 50_000
    fault: int = 0
    """What every question about it is answered with, if not 0."""
    is_mig: bool = False
    parent: int = -1
    compute: dict[int, int] = {}
    """Processes that compute: pid to bytes."""
    graphics: dict[int, int] = {}
    links: tuple[str, ...] = ()
    """Where each active NVLink ends: a PCI address or `switch`."""


class StandIn:
    """A library of its own for one test, with its state file."""

    def __init__(self, directory: Path, *cards: Card, flags: tuple[str, ...] = ()) -> None:
        self.library = compile_library(directory / "lib", flags)
        self.path = directory / "nvml-state"
        self.cards = list(cards)
        self.down = 0
        self.generation = 1
        self.is_hanging = False
        self.denied: dict[str, int] = {}
        self.write()

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to find the library and its state."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "NVML_STAND_IN": str(self.path)}

    def write(self) -> None:
        """Let the library see what the test changed, all at once."""
        lines = [f"down {self.down}", f"generation {self.generation}"]
        lines += ["hang 1"] if self.is_hanging else []
        lines += [f"deny {function} {code}" for function, code in self.denied.items()]
        for slot, card in enumerate(self.cards):
            values = (
                card.total,
                card.used,
                card.utilisation,
                card.temperature,
                card.milliwatts,
                card.fault,
                int(card.is_mig),
                card.parent,
            )
            lines.append(
                f"gpu {slot} {card.uuid} {card.name.replace(' ', '_')} {card.bus} "
                f"{' '.join(map(str, values))}"
            )
            lines += [f"process {slot} {pid} {used} c" for pid, used in card.compute.items()]
            lines += [f"process {slot} {pid} {used} g" for pid, used in card.graphics.items()]
            lines += [f"link {slot} {bus}" for bus in card.links]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.path)

    def restart_driver(self) -> None:
        """Make every call fail until the library is initialised anew."""
        self.generation += 1
        self.write()


def cards(count: int) -> tuple[Card, ...]:
    """Return that many whole GPUs on PCI addresses of their own."""
    return tuple(
        Card(uuid=f"GPU-{number:08d}", bus=f"00000000:{number + 1:02x}:00.0") for number in range(count)
    )


def compile_library(directory: Path, flags: tuple[str, ...] = ()) -> Path:
    """Return the compiled library; skips the test where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for NVIDIA's library needs a C compiler (gcc)")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "libnvidia-ml.so.1"
    words = [
        compiler,
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libnvidia-ml.so.1",
    ]
    subprocess.run(
        [*words, *flags, "-o", str(library), str(SOURCE)], check=True, env={**os.environ, "LC_ALL": "C"}
    )
    return library
