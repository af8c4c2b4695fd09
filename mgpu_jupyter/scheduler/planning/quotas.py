"""Who has how much now, and whether quotas and throttles let a job start or be queued. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from mgpu_agent.protocol.wording import count
from mgpu_jupyter.model.settings import Quota
from mgpu_jupyter.scheduler.planning.queue import Entry
from mgpu_jupyter.scheduler.site import Site


class Claim(msgspec.Struct, frozen=True):
    """What counts about a job."""

    user: str
    account: str
    qos: str
    array: str | None
    gpus: int
    request_bytes: int = 0
    """The size of a waiting request."""


class Quotas:
    """Counts of what runs and waits, and the limits on them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._jobs: Counter[tuple[str, ...]] = Counter()
        self._gpus: Counter[tuple[str, ...]] = Counter()
        self._queued: Counter[tuple[str, ...]] = Counter()
        self._bytes: Counter[str] = Counter()
        """Of requests that wait, by user."""
        self._arrays: Counter[str] = Counter()
        self.throttles: dict[str, int] = {}
        """How many jobs of an array may run at once."""
        self.refused: dict[tuple[str, str, str, str | None, int], None] = {}
        """Who was refused a start since the last reset: user, account, QoS, array, GPUs."""

    def copy(self) -> Quotas:
        """Return a copy to try things on."""
        twin = Quotas(self._site)
        twin._jobs, twin._gpus, twin._queued = Counter(self._jobs), Counter(self._gpus), Counter(self._queued)
        twin._arrays, twin.throttles, twin._bytes = (
            Counter(self._arrays),
            dict(self.throttles),
            Counter(self._bytes),
        )
        return twin

    def hold(self, claim: Claim, sign: int) -> None:
        """Count a job that gets resources (1), or loses them (-1)."""
        for key in keys_of(claim.user, claim.account, claim.qos):
            self._jobs[key] += sign
            self._gpus[key] += sign * claim.gpus
        if claim.array is not None:
            self._arrays[claim.array] += sign

    def wait(self, claim: Claim, sign: int) -> None:
        """Count a job that begins to wait (1), or no longer waits (-1)."""
        for key in keys_of(claim.user, claim.account, claim.qos):
            self._queued[key] += sign
        self._bytes[claim.user] += sign * claim.request_bytes

    def may_start(self, entry: Entry) -> bool:
        """Tell whether only resources can keep a job from starting."""
        if not self.why_not(entry.user, entry.account, entry.qos, entry.array, entry.gpus):
            return True
        self.refused[entry.user, entry.account, entry.qos, entry.array, entry.gpus] = None
        return False

    def is_throttled(self, array: str | None) -> bool:
        """Tell whether an array has as many running jobs as it may."""
        return array is not None and 0 < self.throttles.get(array, 0) <= self._arrays[array]

    def why_not(self, user: str, account: str, qos: str, array: str | None, gpus: int) -> str:
        """Return the sentence about the first limit that a start would break; empty for none."""
        if array is not None and self.is_throttled(array):
            return f"{count(self._arrays[array], 'job')} of its array run, as many as it may have at once."
        for key, quota, whose in self._limits(user, account, qos):
            if quota.gpus is not None and self._gpus[key] + gpus > quota.gpus:
                return (
                    f"{whose} may have {count(quota.gpus, 'GPU')} at once and has {self._gpus[key]}; "
                    f"this asks for {gpus}."
                )
            if quota.running is not None and self._jobs[key] >= quota.running:
                return f"{whose} may run {count(quota.running, 'job')} at once, and does."
        return ""

    def why_not_queued(self, user: str, account: str, qos: str, more: Counter[tuple[str, ...]]) -> str:
        """Return the sentence about the limit on waiting jobs that these would break; empty for none."""
        for key, quota, whose in self._limits(user, account, qos):
            if quota.queued is not None and self._queued[key] + more[key] > quota.queued:
                has = f"{whose} may have {count(quota.queued, 'job')} waiting and has {self._queued[key]}"
                asks = f"; this asks for {more[key]} more" if more[key] > 1 else ""
                return f"{has}{asks}: wait until some have started, or cancel some."
        return ""

    def why_too_much(self, user: str, more_bytes: int) -> str:
        """Return the sentence about the limit on the size of a user's waiting requests; empty when these
        fit.
        """
        most, has = self._site.settings.queued_bytes, self._bytes[user]
        if not most or has + more_bytes <= most:
            return ""
        return (
            f"Your requests that wait may have {most} bytes together and have {has}; this would add "
            f"{more_bytes}: wait until some have "
            "started, cancel some, or put scripts into files (limits.user_queued_bytes)."
        )

    def counts(self) -> dict[str, dict[tuple[str, ...], int]]:
        """Return all counts, without zeros."""
        counters = {"jobs": self._jobs, "gpus": self._gpus, "queued": self._queued}
        counted = {
            name: {key: number for key, number in counter.items() if number}
            for name, counter in counters.items()
        }
        counted["bytes"] = {(user,): number for user, number in self._bytes.items() if number}
        return {**counted, "arrays": {(name,): number for name, number in self._arrays.items() if number}}

    def can_ever(self, user: str, account: str, qos: str, gpus: int) -> str:
        """Return the sentence about a quota that this job breaks all by itself; empty for none."""
        for _, quota, whose in self._limits(user, account, qos):
            if quota.gpus is not None and gpus > quota.gpus:
                return (
                    f"It asks for {count(gpus, 'GPU')}, but {whose[0].lower() + whose[1:]} may have "
                    f"{quota.gpus} at once: ask for fewer."
                )
            if quota.running == 0:
                return f"{whose} may run no jobs: ask an administrator."
        return ""

    def _limits(self, user: str, account: str, qos: str) -> list[tuple[tuple[str, ...], Quota, str]]:
        limits: list[tuple[tuple[str, ...], Quota, str]] = [
            (("user", user), self._site.quota_of(user), f"User {user}")
        ]
        if account in self._site.settings.accounts:
            limits.append(
                (("account", account), self._site.settings.accounts[account].quota, f"Account {account}")
            )
        if qos:
            limits.append((("qos", qos, user), self._site.qos(qos).quota, f"User {user} in QoS {qos}"))
        return limits


def keys_of(user: str, account: str, qos: str) -> tuple[tuple[str, ...], ...]:
    """Return all that a job of this user, account and QoS is counted under."""
    return (("user", user), ("account", account), ("qos", qos, user))
