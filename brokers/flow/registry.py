"""The ack registry: what the pops of this process handed out, and under which leases.

An ack that completes exactly what a lease handed out in a partition is one positional
cursor move; the registry is how that is known. It is a bounded cache and grants nothing:
PostgreSQL checks lease, liveness and end. What it does not know takes the full procedure.

Imports nothing of ours. Used by services/pop.py, flow/acks.py and services/leases.py.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

BYTES_PER_LEASE = 600
BYTES_PER_BATCH = 600
BYTES_PER_ID = 120


@dataclass(slots=True)
class HandedOut:
    """The batch of one partition under a lease; `ids` are transactionId literals in order."""

    queue_id: int
    partition_id: int
    partition_uid: str
    group: str
    end: int
    ids: list[bytes]
    tenant: UUID

    def size_bytes(self) -> int:
        return BYTES_PER_BATCH + sum(map(len, self.ids)) + BYTES_PER_ID * len(self.ids)

    def is_all(self, ids: Sequence[bytes]) -> bool:
        """Whether these are exactly the ids of the batch, each as often as it was handed out."""
        if len(ids) != len(self.ids):
            return False
        return self.ids == ids or Counter(self.ids) == Counter(ids)


class Lease:
    """Where one lease lies, and those of its batches that no ack has touched yet."""

    __slots__ = ("batches", "partition_ids")

    def __init__(self, batches: Sequence[HandedOut]) -> None:
        self.batches = {batch.partition_uid: batch for batch in batches}
        self.partition_ids = {batch.partition_uid: batch.partition_id for batch in batches}

    def size_bytes(self) -> int:
        return BYTES_PER_LEASE + sum(batch.size_bytes() for batch in self.batches.values())


class Registry:
    def __init__(self, *, bytes_max: int) -> None:
        self._leases: OrderedDict[str, Lease] = OrderedDict()
        self._bytes_max = bytes_max
        self.size_bytes = 0

    def remember(self, lease_id: str, batches: Sequence[HandedOut]) -> None:
        lease = self._leases[lease_id] = Lease(batches)
        self.size_bytes += lease.size_bytes()
        while self.size_bytes > self._bytes_max and len(self._leases) > 1:
            _, oldest = self._leases.popitem(last=False)
            self.size_bytes -= oldest.size_bytes()

    def batch(self, lease_id: str, partition_uid: str) -> HandedOut | None:
        lease = self._leases.get(lease_id)
        return None if lease is None else lease.batches.get(partition_uid)

    def touch(self, lease_id: str, partition_uid: str) -> None:
        """An ack of a part: the batch is no longer what was handed out, the lease goes on."""
        lease = self._leases.get(lease_id)
        if lease is not None:
            batch = lease.batches.pop(partition_uid, None)
            if batch is not None:
                self.size_bytes -= batch.size_bytes()

    def ended(self, lease_id: str, partition_uid: str) -> None:
        """The lease was released in this partition."""
        self.touch(lease_id, partition_uid)
        lease = self._leases.get(lease_id)
        if lease is not None:
            lease.partition_ids.pop(partition_uid, None)
            if not lease.partition_ids:
                del self._leases[lease_id]
                self.size_bytes -= lease.size_bytes()

    def partitions(self, lease_id: str) -> list[int] | None:
        """Where a lease of ours lies; None when that is not known for certain."""
        lease = self._leases.get(lease_id)
        return None if lease is None else list(lease.partition_ids.values())
