"""A bundle: messages that are stored together with something else, all or nothing.

Sorted into one group a partition, with ids that are fixed once; its groups are made anew
whenever the database says that what is known of their partitions is stale.

Imports domain, frames, store, services/push. Used by services/transaction.py and streams.py.
"""

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING
from uuid import UUID

from brokers import frames
from brokers.domain import PushItem
from brokers.services.push import make_parcel
from brokers.store import calls, sealing
from brokers.store.calls import PartitionRow, PushGroup
from brokers.store.parcels import NO_KEY, Parcel

if TYPE_CHECKING:
    from brokers.runtime import Broker

STALE_ROUNDS_MAX = 3
QUEUE_CHANGING = "the queue keeps changing: retry"
SPOOLED = "earlier messages of a partition are still in this broker's spool: retry"
SPOOL_WAIT_S = 1.0


class Bundle:
    """`places`: each (queue, partition) with the positions of its items, in `groups`' order."""

    def __init__(
        self,
        broker: "Broker",
        tenant: UUID,
        items: Sequence[PushItem],
        ids: Sequence[str],
        subject: str | None,
    ) -> None:
        self._broker = broker
        self._tenant = tenant
        self._items = items
        self.ids = ids
        self._subject = subject
        self.places: dict[tuple[str, str], list[int]] = {}
        for position, item in enumerate(items):
            self.places.setdefault((item.queue, item.partition), []).append(position)
        self.groups: list[PushGroup] = []
        self._rows: list[PartitionRow] = []

    async def in_order(self) -> bool:
        """Whether nothing that was pushed earlier, to the same partitions, waits in the spool."""
        spool = self._broker.spool
        if spool is None or not self.places:
            return True
        keys = [(self._tenant, *place) for place in self.places]
        return await spool.clear(keys, SPOOL_WAIT_S)

    async def resolve(self) -> str | None:
        """Give every group its ids, and seal what goes to a queue that encrypts; a text when a
        queue refuses to be pushed to."""
        if not self.places:
            return None
        broker, tenant, keys = self._broker, self._tenant, self._broker.keys
        places = list(self.places)
        known = [broker.directory.partitions.get((tenant, *place)) for place in places]
        # Without a key a queue refuses: that is not said by an old flag.
        if any(row is None or (row.encryption_enabled and not keys.can_seal) for row in known):
            async with broker.admission.call_slot("push"):
                known = list(await calls.partition_ensure(broker.store.fetch, tenant, places))
            for place, row in zip(places, known, strict=True):
                if row is None:
                    return QUEUE_CHANGING
                broker.directory.partitions.put((tenant, *place), row)
        self._rows = [row for row in known if row is not None]
        secret = [row.encryption_enabled for row in self._rows]
        if any(secret) and not keys.can_seal:
            return NO_KEY
        parcels = [self._parcel(positions) for positions in self.places.values()]
        await sealing.seal_bounded(keys, list(compress(parcels, secret)))
        self.groups = [_group(row, parcel) for row, parcel in zip(self._rows, parcels, strict=True)]
        return None

    def _parcel(self, positions: list[int]) -> Parcel:
        return make_parcel(
            [self._items[one] for one in positions],
            [self.ids[one] for one in positions],
            self._subject,
        )

    def forget(self) -> None:
        """What is known of these partitions is stale."""
        for place in self.places:
            self._broker.directory.forget_partition(self._tenant, *place)

    def announce(self) -> None:
        """It is committed."""
        news = [
            (self._tenant, queue, partition, row.queue_id, row.id, len(positions))
            for ((queue, partition), positions), row in zip(
                self.places.items(), self._rows, strict=True
            )
        ]
        if news:
            self._broker.announce.pushed(news)


def _group(row: PartitionRow, parcel: Parcel) -> PushGroup:
    joined, ends = frames.join(parcel.frames)
    return PushGroup(
        partition_id=row.id,
        queue_id=row.queue_id,
        version=row.version,
        frames=joined,
        ends=ends,
        transactions=frames.TEXT_SEPARATOR.join(parcel.literals),
        flags=sealing.flags([parcel]),
        first_id=parcel.ids[0],
        last_id=parcel.ids[-1],
    )
