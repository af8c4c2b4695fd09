"""What the site's settings mean for one job: its partition, QoS, limits, strategy and who may use what. Reads
settings, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from mgpu_agent.protocol.errors import Forbidden, InvalidRequest
from mgpu_agent.protocol.wording import count, rounded
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.settings import Partition, Qos, Quota, Scheduling
from mgpu_jupyter.model.units import groups_of_request
from mgpu_jupyter.scheduler.placement.strategies import BUILT_IN, Strategy
from mgpu_jupyter.scheduler.words import nearest

_ANYWHERE = Partition()
_PLAIN = Qos()


class Site:
    """Looks up the settings."""

    def __init__(self, settings: Scheduling, own: Mapping[str, Strategy] | None = None) -> None:
        self.settings = settings
        self.own = dict(own or {})
        self._default = next((name for name, one in settings.partitions.items() if one.default), "")

    def partitions_of(self, node_id: str) -> frozenset[str]:
        """Return the partitions that a node belongs to."""
        found = (
            name
            for name, one in self.settings.partitions.items()
            if not one.nodes or any(fnmatchcase(node_id, p) for p in one.nodes)
        )
        return frozenset(found)

    def partition_of(self, spec: JobSpec) -> str:
        """Return the name of a job's partition; empty for all nodes."""
        return spec.partition or self._default

    def partition(self, spec: JobSpec) -> Partition:
        """Return the rules of a job's partition."""
        return self.settings.partitions.get(self.partition_of(spec), _ANYWHERE)

    def qos(self, name: str) -> Qos:
        """Return a class of service; one without rules for an empty name."""
        return self.settings.qos.get(name, _PLAIN)

    def account_of(self, user: str, spec: JobSpec) -> str:
        """Return the account that a job is counted for: its own, else the first that lists its user."""
        if spec.account:
            return spec.account
        return next((name for name, one in self.settings.accounts.items() if user in one.users), "")

    def strategy_of(self, spec: JobSpec) -> str:
        """Return the name of the strategy that picks nodes for a job."""
        return spec.policy or self.partition(spec).policy or self.settings.strategy

    def quota_of(self, user: str) -> Quota:
        """Return how much a user may have."""
        return self.settings.quotas.get(user, self.settings.quota)

    def time_limit_s(self, spec: JobSpec, own_limit_s: float | None) -> float | None:
        """Return the limit that ends a job: its own, at most its partition's and the cluster's."""
        limits = (own_limit_s, self.partition(spec).max_time_s, self.settings.max_time_s)
        return min((limit for limit in limits if limit is not None), default=None)

    def check(self, user: str, spec: JobSpec) -> None:
        """Refuse a request that names something unknown to the site, or that its user may not use."""
        settings = self.settings
        _known("--partition", spec.partition, settings.partitions)
        _known("--qos", spec.qos, settings.qos)
        _known("--account", spec.account, settings.accounts)
        if spec.policy and spec.policy not in BUILT_IN and spec.policy not in self.own:
            names = ", ".join((*BUILT_IN, *sorted(self.own)))
            raise InvalidRequest(
                "unknown-policy",
                f"There is no policy {spec.policy}{nearest(spec.policy, (*BUILT_IN, *self.own))}: it is one "
                f"of {names}.",
            )
        account = self.account_of(user, spec)
        if (
            spec.account
            and settings.accounts[spec.account].users
            and user not in settings.accounts[spec.account].users
        ):
            raise Forbidden(
                "not-in-account",
                f"{user} is not in the account {spec.account}: ask an administrator, or leave --account out.",
            )
        if spec.qos and settings.qos[spec.qos].allow_users and user not in settings.qos[spec.qos].allow_users:
            raise Forbidden(
                "qos-forbidden",
                f"{user} may not use the QoS {spec.qos}: ask an administrator, or leave --qos out.",
            )
        self._check_partition(user, account, spec)

    def _check_partition(self, user: str, account: str, spec: JobSpec) -> None:
        name, rules = self.partition_of(spec), self.partition(spec)
        if not rules.lists.admit(user, account):
            raise Forbidden(
                "partition-forbidden",
                f"{user} may not use the partition {name}: ask an administrator, or name another with -p.",
            )
        groups = groups_of_request(spec)
        gpus = sum(group.need.gpus * group.count for group in groups)
        if rules.max_nodes is not None and sum(group.count for group in groups) > rules.max_nodes:
            raise InvalidRequest(
                "partition-limit",
                (
                    f"The partition {name} gives at most {count(rules.max_nodes, 'node')} to a job: ask "
                    f"for fewer."
                ),
            )
        if rules.max_gpus is not None and gpus > rules.max_gpus:
            raise InvalidRequest(
                "partition-limit",
                f"The partition {name} gives at most {count(rules.max_gpus, 'GPU')} to a job: ask for fewer.",
            )
        if (
            rules.max_time_s is not None
            and spec.time_limit_s is not None
            and spec.time_limit_s > rules.max_time_s
        ):
            raise InvalidRequest(
                "partition-limit",
                (
                    f"The partition {name} lets a job run {rounded(rules.max_time_s)} at most: give a "
                    f"shorter limit."
                ),
            )


def _known(flag: str, name: str, known: Mapping[str, object]) -> None:
    if name and name not in known:
        names = f"it is one of {', '.join(sorted(known))}" if known else "this cluster has none; leave it out"
        raise InvalidRequest(
            f"unknown-{flag.strip('-')}",
            f"There is no {flag.strip('-')} {name}{nearest(name, known)}: {names}.",
        )
