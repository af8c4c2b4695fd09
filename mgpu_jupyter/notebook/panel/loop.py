"""The one thread of a panel: clicks, input and events become calls here, one after the other. Knows no
widgets.

Front ends deliver clicks on the kernel's main thread or, while a cell runs, on another one; the mirror calls
on its own. None of them may wait for a server, and widgets are changed by one thread only, so all of them
post to this one.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable

Work = Callable[[], None]
log = logging.getLogger(__name__)


class Loop:
    """Makes calls when they are due. A timer replaces an earlier one with the same name, which debounces."""

    def __init__(
        self,
        name: str,
        on_error: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_error = on_error
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[str, tuple[float, Work]] = {}
        self._numbers = itertools.count()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def post(self, work: Work) -> None:
        """Call it as soon as possible, after what was posted before."""
        self.later(0.0, f"post-{next(self._numbers):012}", work)

    def later(self, delay_s: float, name: str, work: Work) -> None:
        """Call it after a delay, in place of an earlier timer of that name."""
        with self._changed:
            if not self._stopped:
                self._due[name] = (self._clock() + delay_s, work)
                self._changed.notify()

    def soon(self, delay_s: float, name: str, work: Work) -> None:
        """Call it within a time; an earlier timer of that name stays."""
        with self._changed:
            if not self._stopped and name not in self._due:
                self._due[name] = (self._clock() + delay_s, work)
                self._changed.notify()

    def stop(self) -> None:
        """Make no more calls; may be called from any thread, also its own."""
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify()

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stopped

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread is gone; False if it is not."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception as error:
                if self._stopped:
                    return
                log.debug("mgpu panel", exc_info=True)
                self._on_error(error)

    def _next(self) -> Work | None:
        with self._changed:
            while not self._stopped:
                if self._due:
                    name = min(self._due, key=lambda one: (self._due[one][0], one))
                    at, work = self._due[name]
                    wait_s = at - self._clock()
                    if wait_s <= 0:
                        del self._due[name]
                        return work
                    self._changed.wait(wait_s)
                else:
                    self._changed.wait()
        return None
