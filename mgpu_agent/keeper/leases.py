"""Which attempts must end when the master is not heard of for too long, and when. Ends nothing itself; time is handed in.

All times are of the clock that counts from boot and goes on while the machine sleeps. A new keeper ends all that an earlier one
left, so that no lease needs to outlive its keeper.
"""

from __future__ import annotations

from mgpu_agent.protocol.ids import AttemptKey

RAN_OUT = "its lease ran out"
FOREVER_S = 10 * 365 * 86_400.0


class Leases:
    """The attempts with a lease, and the last moment at which the master is known to have been there."""

    def __init__(self) -> None:
        self._alive_at = 0.0
        self._leases: dict[AttemptKey, tuple[float, float]] = {}

    def renew(self, alive_at: float, now: float) -> None:
        """Note that the master was there at that moment, which is never a later one than now."""
        self._alive_at = max(self._alive_at, min(alive_at, now))

    def add(self, key: AttemptKey, lease_s: float, grace_s: float) -> None:
        """Watch an attempt; without a lease there is nothing to watch."""
        if 0 < lease_s < FOREVER_S:
            self._leases[key] = (lease_s, grace_s)

    def drop(self, key: AttemptKey) -> None:
        """Watch an attempt no more."""
        self._leases.pop(key, None)

    def take_due(self, now: float) -> list[tuple[AttemptKey, float]]:
        """Return the attempts whose lease has run out, each with its grace; no renewal brings them back."""
        due = [(key, grace_s) for key, (lease_s, grace_s) in self._leases.items() if now >= self._alive_at + lease_s]
        for key, _ in due:
            del self._leases[key]
        return due

    def next_at(self) -> float | None:
        """Return when the first lease runs out."""
        shortest = min((lease_s for lease_s, _ in self._leases.values()), default=None)
        return None if shortest is None else self._alive_at + shortest
