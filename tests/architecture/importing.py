"""Import modules one after the other in this interpreter and print, as JSON, what each did beside defining
names.

Usage: python -I -B importing.py ROOT MODULE... It knows nothing of mgpu, and imports nothing but the standard
library itself.
"""

from __future__ import annotations

import _thread
import importlib
import json
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
WATCHED = (
    "ftplib.",
    "http.client.",
    "os.chdir",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.putenv",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.unsetenv",
    "os.utime",
    "resource.",
    "shutil.",
    "signal.",
    "smtplib.",
    "socket.",
    "sqlite3.connect",
    "subprocess.Popen",
    "tempfile.",
    "urllib.Request",
)


def package_of(frame: FrameType | None) -> str:
    """Return whose code acted: the innermost package that is not the standard library's."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in sys.stdlib_module_names and name != __name__.partition(".")[0]:
            return name
        frame = frame.f_back
    return ""


def main(root: str, modules: list[str]) -> None:
    sys.path.insert(0, root)
    seen: list[tuple[str, str, str, str]] = []
    current = ""

    def watch(event: str, values: tuple[object, ...]) -> None:
        if not current:
            return
        if event == "open":
            flags = values[2] if isinstance(values[2], int) else 0
            if not flags & WRITING:
                return
        elif not event.startswith(WATCHED):
            return
        seen.append((current, package_of(sys._getframe(1)), event, repr(values)[:200]))

    def state() -> dict[str, object]:
        handlers = {
            number.name: repr(signal.getsignal(number))
            for number in signal.valid_signals()
            if isinstance(number, signal.Signals)
        }
        mask = os.umask(0o022)
        os.umask(mask)
        return {
            "environment": dict(os.environ),
            "signal handlers": handlers,
            "threads": [thread.name for thread in threading.enumerate()],
            "directory": os.getcwd(),
            "mask": mask,
            "excepthook": repr(sys.excepthook),
        }

    def start(*values: Any) -> int:  # Python 3.11 tells no audit hook of threads
        if current:
            seen.append((current, package_of(sys._getframe(1)), "thread", repr(values)[:200]))
        return begin(*values)

    begin = _thread.start_new_thread
    _thread.start_new_thread = _thread.start_new = threading._start_new_thread = start  # type: ignore[attr-defined]
    sys.addaudithook(watch)
    for module in modules:
        before = state()
        current = module
        importlib.import_module(module)
        current = ""
        after = state()
        seen += [(module, "", "changed", name) for name, value in after.items() if value != before[name]]
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
