"""Decaying usage of users and accounts, and what that adds to a priority. Pure: time is passed in.

Held resources add usage at a known rate and all of it halves every half-life, so the sum at any time is
known without a tick: u(t) = u e^(-kt) + rate (1 - e^(-kt)) / k.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from math import exp, log

import msgspec

from mgpu_jupyter.model.settings import Scheduling

_USER = "used by user "
_ACCOUNT = "used by account "


class Use(msgspec.Struct):
    """GPU-seconds used, as of `at`, and GPUs held since then."""

    amount: float = 0.0
    rate: float = 0.0
    at: float = 0.0


class Shares:
    """Usage of all, and the share each has a right to."""

    def __init__(self, settings: Scheduling) -> None:
        self._settings = settings
        self._decay = log(2.0) / settings.half_life_s
        self.users: dict[str, Use] = {}
        self.accounts: dict[str, Use] = {}
        self._changed: set[tuple[bool, str]] = set()
        self._known_totals: dict[tuple[bool, float], tuple[float, float]] = {}

    def copy(self) -> Shares:
        """Return a copy to try things on."""
        twin = Shares(self._settings)
        twin.users = {name: copy(use) for name, use in self.users.items()}
        twin.accounts = {name: copy(use) for name, use in self.accounts.items()}
        return twin

    def hold(self, user: str, account: str, gpus: int, at: float) -> None:
        """Note that this many more GPUs are held (fewer, when negative)."""
        self._known_totals.clear()
        for uses, name in ((self.users, user), (self.accounts, account)):
            if name:
                use = uses.setdefault(name, Use(at=at))
                self._bring_to(use, at)
                use.rate = max(0.0, use.rate + gpus)
                if gpus < 0:
                    self._changed.add((uses is self.users, name))

    def used(self, user: str, at: float) -> float:
        """Return what a user used, in decaying GPU-seconds."""
        use = self.users.get(user)
        return 0.0 if use is None else self._at(use, at)

    def factor(self, user: str, account: str, at: float) -> float:
        """Return 1 for no use, a half for use of exactly the share, towards 0 beyond it."""
        own = self._factor(self.users, user, self._settings.shares, at)
        if not account or account not in self._settings.accounts:
            return own
        shares = {name: one.shares for name, one in self._settings.accounts.items()}
        return own * self._factor(self.accounts, account, shares, at)

    def bonus(self, user: str, account: str, at: float) -> float:
        """Return what fair share adds to a priority."""
        weight = self._settings.planning.weights.fair_share
        return weight * self.factor(user, account, at) if weight else 0.0

    def take_changes(self) -> dict[str, str]:
        """Return what must survive a restart and changed since the last call, as text by name."""
        changes = {}
        for is_user, name in sorted(self._changed):
            use = (self.users if is_user else self.accounts)[name]
            changes[f"{_USER if is_user else _ACCOUNT}{name}"] = f"{use.amount!r} {use.at!r}"
        self._changed.clear()
        return changes

    def restore(self, changes: Mapping[str, str]) -> None:
        """Restore what was known before a restart; what is held now is added again by the caller."""
        for prefix, uses in ((_USER, self.users), (_ACCOUNT, self.accounts)):
            for name, text in changes.items():
                if name.startswith(prefix):
                    amount, at = text.split()
                    uses[name.removeprefix(prefix)] = Use(float(amount), 0.0, float(at))

    def _factor(self, uses: dict[str, Use], name: str, shares: dict[str, float], at: float) -> float:
        use = uses.get(name)
        if use is None:
            return 1.0
        total, rights = self._totals(uses, shares, at)
        if total <= 0.0:
            return 1.0
        return float(2.0 ** -((self._at(use, at) / total) / (shares.get(name, 1.0) / rights)))

    def _totals(self, uses: dict[str, Use], shares: dict[str, float], at: float) -> tuple[float, float]:
        """Return what all used together and the sum of their shares; computed once for many names at one
        time.
        """
        key = (uses is self.users, at)
        if key not in self._known_totals:
            total = sum(self._at(one, at) for one in uses.values())
            self._known_totals[key] = (total, sum(shares.get(one, 1.0) for one in uses))
        return self._known_totals[key]

    def _bring_to(self, use: Use, at: float) -> None:
        use.amount, use.at = self._at(use, at), max(at, use.at)

    def _at(self, use: Use, at: float) -> float:
        fade = exp(-self._decay * max(0.0, at - use.at))
        return use.amount * fade + use.rate * (1.0 - fade) / self._decay
