"""Diversion: which pushes go to the spool instead of the database, and the way back.

A partition whose messages lie in the spool is closed: later pushes queue up behind them
there, or a3 would overtake a2. When the drain is about to catch up with a partition, its
new pushes wait for that moment, unanswered, and then go to the database; so buffered mode
ends under steady load too.

What lies in the spool is known by counting: in when it is written, out when it is stored.

Imports store/parcels. Used by services/spool.py and transaction.py.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from brokers.store.directory import PartitionKey
from brokers.store.parcels import Path

RATE_UNKNOWN = 5000.0


class Diversion:
    """Path choice. `reconsider` is called when the path of a partition, or of all, changed."""

    def __init__(
        self, *, handover_s: float, reconsider: Callable[[PartitionKey | None], None]
    ) -> None:
        self.handover_s = handover_s
        self._reconsider = reconsider
        self._counts: dict[PartitionKey, int] = {}
        # Behind how many records of the spool a partition's last one stands.
        self._places: dict[PartitionKey, int] = {}
        self._clear: dict[PartitionKey, list[asyncio.Future[None]]] = {}
        self._written = 0
        self._left = 0
        # Records a second, as the drain last measured; told by whoever drains.
        self.rate = RATE_UNKNOWN
        self._store_up = False
        self._maintenance = False
        self._known = False
        self._closing = False

    @property
    def pending(self) -> int:
        """Records that are not stored yet."""
        return self._written - self._left

    @property
    def store_up(self) -> bool:
        return self._store_up

    @property
    def maintenance(self) -> bool:
        return self._maintenance

    @property
    def buffering(self) -> bool:
        """Whether pushes are being diverted, or what was diverted is not stored yet."""
        return self.pending > 0 or not self._store_up or self._maintenance

    def set_store_up(self, up: bool) -> None:
        if up != self._store_up:
            self._store_up = up
            self._reconsider(None)

    def set_maintenance(self, on: bool) -> None:
        if on != self._maintenance:
            self._maintenance = on
            self._reconsider(None)

    def found(self, keys: Sequence[tuple[PartitionKey, int]]) -> None:
        """What lay in the spool at the start: (partition, records), in order of their last ones.

        Until this was said, every partition may be in there.
        """
        # What was written meanwhile stands behind it.
        behind = sum(count for _, count in keys)
        for key in self._places:
            self._places[key] += behind
        place = 0
        for key, count in keys:
            place += count
            self._places.setdefault(key, place)
            self._counts[key] = self._counts.get(key, 0) + count
        self._written += behind
        self._known = True
        self._reconsider(None)

    def entered(self, key: PartitionKey, count: int) -> None:
        """Records of this partition are about to be written into the spool."""
        self._written += count
        self._counts[key] = self._counts.get(key, 0) + count
        self._places[key] = self._written

    def left(self, key: PartitionKey, count: int) -> None:
        """They are out of it again: stored, given up as poison, or never written."""
        self._left += count
        remaining = self._counts.get(key, 0) - count
        if remaining > 0 and self.pending > 0:
            self._counts[key] = remaining
            return
        self._counts.pop(key, None)
        self._places.pop(key, None)
        for one in self._clear.pop(key, ()):
            if not one.done():
                one.set_result(None)
        self._reconsider(key)

    def nothing_left(self) -> None:
        """The spool was found to be empty: what is still counted left it unheard of."""
        self._left = self._written
        for key in list(self._counts):
            self.left(key, 0)

    def path(self, key: PartitionKey) -> Path:
        if not self._store_up or self._maintenance or not self._known:
            return Path.SPOOL
        if key not in self._counts:
            return Path.STORE
        if self._closing:
            return Path.SPOOL
        ahead_s = (self._places[key] - self._left) / max(self.rate, 1.0)
        return Path.WAIT if ahead_s < self.handover_s / 2 else Path.SPOOL

    def close(self) -> None:
        """The broker stops: nobody waits for a hand-over any more."""
        self._closing = True
        self._reconsider(None)

    async def clear(self, keys: Iterable[PartitionKey], timeout_s: float) -> bool:
        """Wait until none of these partitions lies in the spool; false when one still does."""
        if self._known and not any(key in self._counts for key in keys):
            return True
        waits = []
        for key in set(keys):
            if key in self._counts or not self._known:
                one = asyncio.get_running_loop().create_future()
                self._clear.setdefault(key, []).append(one)
                waits.append(one)
        await asyncio.wait(waits, timeout=timeout_s)
        return self._known and not any(key in self._counts for key in keys)
