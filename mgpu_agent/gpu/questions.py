"""Asking NVML: what is not told is None, and what went wrong is remembered. Knows nothing of what the answers mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pynvml

_P = ParamSpec("_P")
_T = TypeVar("_T")
# These mean that something is broken; every other error means that this GPU, driver or user is not told.
_BROKEN = frozenset(
    (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_TIMEOUT,
        pynvml.NVML_ERROR_IRQ_ISSUE,
        pynvml.NVML_ERROR_OPERATING_SYSTEM,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_UNKNOWN,
    )
)
_LOST = frozenset((pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND))


class Questions:
    """The questions of one reading of one GPU."""

    def __init__(self) -> None:
        self.answers = 0
        self.error: Exception | None = None
        """The first error that means that something is broken."""
        self.lost = ""
        """What NVML says when the GPU is gone or must be reset."""

    def ask(self, question: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T | None:
        """Return the answer, or None when the GPU, the driver or the library does not tell."""
        try:
            answer = question(*arguments, **options)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                self.lost = self.lost or str(error)
            elif error.value in _BROKEN:
                self.error = self.error or error
            return None
        except pynvml.NVMLLibraryMismatchError:  # an older library, which has no such function
            return None
        self.answers += 1
        return answer


def memory_of(questions: Questions, handle: object) -> tuple[int, int] | None:
    """Return total and used bytes; the newer question does not count what the driver reserves as used."""
    memory = questions.ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory is None:
        memory = questions.ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else (int(memory.total), int(memory.used))
