"""The leaf knows nothing above it: the agent imports with Jupyter out of reach, and the keeper stays
small.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCK = """
import importlib, pkgutil, sys

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {blocked!r}:
            raise ImportError(f'{{name}} is out of reach')

sys.meta_path.insert(0, Wall())
import {package}
for module in pkgutil.walk_packages({package}.__path__, '{package}.'):
    if not module.name.endswith('__main__'):
        importlib.import_module(module.name)
print('imported')
"""


@pytest.mark.parametrize(
    ("package", "blocked"),
    [
        (
            "mgpu_agent",
            (
                "mgpu_jupyter",
                "IPython",
                "tornado",
                "traitlets",
                "jupyter_server",
                "jupyter_client",
                "jupyter_core",
                "ipykernel",
                "yaml",
            ),
        ),
        ("mgpu_agent.keeper", ("zmq", "psutil", "pynvml", "asyncio", "logging", "http", "ssl")),
    ],
)
def test_imports_without(package: str, blocked: tuple[str, ...]) -> None:
    program = BLOCK.format(package=package, blocked=blocked)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )

    assert (run.returncode, run.stdout, run.stderr) == (0, "imported\n", "")
