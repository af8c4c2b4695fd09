"""When and where the agent connects: the address whose turn it is, and the key to use. Whether
it should connect is the machine's decision.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mgpu_agent.core.events import MasterMoved
from mgpu_agent.identity import Identity, SavedEnrolment
from mgpu_agent.link import Link
from mgpu_agent.protocol.join import JoinString
from mgpu_agent.whereabouts import Whereabouts

LOOK_AROUND_S = 2.0
ADDRESS_TRY_S = 3.0

log = logging.getLogger("mgpu.agent")


class Connector:
    """Knows where the master is now. `look` finds out; `moved` is called when it is elsewhere."""

    def __init__(
        self,
        link: Link,
        identity: Identity,
        where: Whereabouts,
        look: Callable[[SavedEnrolment | None, JoinString | None], Whereabouts | None],
        moved: Callable[[MasterMoved], None],
    ) -> None:
        self.where = where
        self.connect_at: float | None = None
        """When the next connection is due."""
        self._link = link
        self._identity = identity
        self._look = look
        self._moved = moved
        self._is_enrolling = False
        self._look_at = 0.0
        self._address_number = 0
        self._rise_by: float | None = None

    @property
    def may_enrol(self) -> bool:
        """Tell whether a key to enrol with is at hand."""
        return self.where.enrol_keys is not None

    def plan(self, *, enrolling: bool, delay_s: float) -> None:
        """Drop the present connection, and open another one after this delay."""
        self._link.drop()
        self._is_enrolling = enrolling
        self.connect_at = time.monotonic() + delay_s

    def note_risen(self) -> None:
        """Note that the connection is up, so that no other address is tried."""
        self._rise_by = None

    def keep_time(self, now: float) -> None:
        """Connect if that is due, and try the next address if this one does not answer."""
        if self.connect_at is not None and now >= self.connect_at:
            self._connect()
        if self._rise_by is not None and now >= self._rise_by:
            self._address_number += 1
            self._connect()

    def look_again(self, now: float) -> None:
        """Read the runtime file again, unless that was done a moment ago."""
        if now >= self._look_at:
            self._look_at = now + LOOK_AROUND_S
            self.look_around()

    def look_around(self) -> bool:
        """Read the runtime file again; tell whether the master has another address or key."""
        found = self._look(self._identity.enrolment, self._identity.join)
        if found is None or found == self.where:
            return False
        before, self.where = self.where, found
        if found.target == before.target:
            return False
        log.info("master_moved address=%s", found.target.address)
        is_another = found.target.server_key != before.target.server_key
        self._moved(MasterMoved(at=time.monotonic(), is_another=is_another))
        return True

    def save_enrolment(self, master_epoch: int) -> None:
        """Save where the master is, and its key, for the next start."""
        target = self.where.target
        self._identity.save(
            SavedEnrolment(
                link_address=target.address,
                link_public_key=target.server_key,
                port=self.where.port,
                master_epoch=master_epoch,
                addresses=self.where.addresses,
                is_joined=self.where.is_joined,
            )
        )
        self._identity.forget_join()

    def save_epoch(self, master_epoch: int) -> None:
        """Save the largest epoch of the master that this node is enrolled with."""
        enrolment = self._identity.enrolment
        if enrolment is not None and enrolment.link_public_key == self.where.target.server_key:
            self.save_enrolment(master_epoch)

    def _connect(self) -> None:
        self.connect_at = self._rise_by = None
        if self.look_around():  # it moved: another connection is planned already
            return
        keys = self.where.enrol_keys if self._is_enrolling else self._identity.keys
        if keys is None:  # the runtime file is gone: try again later
            self.connect_at = time.monotonic() + LOOK_AROUND_S
            return
        self._link.open(self.where.target_at(self._address_number), keys)
        if len(self.where.addresses) > 1:
            self._rise_by = time.monotonic() + ADDRESS_TRY_S
