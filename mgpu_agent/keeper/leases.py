"""Which attempts must end when the master has not been heard for too long, and when. Ends nothing itself;
time is passed in.

All times are of the boot clock, which goes on while the machine sleeps. A new keeper ends all
that an earlier one left, so that no lease needs to outlive its keeper.
"""

from __future__ import annotations

from mgpu_agent.protocol.ids import AttemptKey

RAN_OUT = "its lease ran out"
FOREVER_S = 10 * 365 * 86_400.0


class Leases:
    """The attempts with a lease, by its length, and when the master was last known to be there."""

    def __init__(self) -> None:
        self._alive_at = 0.0
        self._lengths: dict[AttemptKey, float] = {}
        self._graces: dict[float, dict[AttemptKey, float]] = {}

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._lengths

    def renew(self, alive_at: float, now: float) -> None:
        """Note that the master was alive at that moment, which is never later than now."""
        self._alive_at = max(self._alive_at, min(alive_at, now))

    def add(self, key: AttemptKey, lease_s: float, grace_s: float) -> None:
        """Watch an attempt; without a lease there is nothing to watch."""
        if 0 < lease_s < FOREVER_S:
            self._lengths[key] = lease_s
            self._graces.setdefault(lease_s, {})[key] = grace_s

    def drop(self, key: AttemptKey) -> None:
        """Stop watching an attempt."""
        lease_s = self._lengths.pop(key, 0.0)
        if lease_s:
            del self._graces[lease_s][key]
            if not self._graces[lease_s]:
                del self._graces[lease_s]

    def take_due(self, now: float) -> list[tuple[AttemptKey, float]]:
        """Return the attempts whose lease has run out, each with the rest of its grace; no renewal brings
        them back.

        The grace counts from the end of the lease, not from now: a machine that slept through both has none
        left, since the master has not waited longer than that.
        """
        lengths = [lease_s for lease_s in self._graces if now >= self._alive_at + lease_s]
        due = [
            (key, max(0.0, grace_s - (now - self._alive_at - lease_s)))
            for lease_s in lengths
            for key, grace_s in self._graces[lease_s].items()
        ]
        for key, _ in due:
            self.drop(key)
        return due

    def next_at(self) -> float | None:
        """Return when the first lease runs out."""
        return self._alive_at + min(self._graces) if self._graces else None
