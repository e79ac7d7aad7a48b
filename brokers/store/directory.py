"""The directory: what this process believes about queues, partitions and subscriptions.

A cache and nothing more. Procedures are told the ids and the version that came from here
and answer `stale` when they are out of date, so an old entry costs a round trip and never
a message. Entries have a time limit, a bound, and are dropped on a change.

Imports calls. Used by services/ and runtime.py.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from uuid import UUID

from brokers.store.calls import PartitionRow, QueueRow

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

QUEUES_MAX = 20_000
PARTITIONS_MAX = 300_000
GROUPS_MAX = 100_000
DISCOVERIES_MAX = 1000
DISCOVERY_S = 1.0

QueueKey = tuple[UUID, str]
PartitionKey = tuple[UUID, str, str]


class Bounded(Generic[K, V]):
    """A mapping with a bound (the oldest entry goes) and a time limit for each entry."""

    def __init__(self, *, entries_max: int, ttl_s: float) -> None:
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._entries_max = entries_max
        self._ttl_s = ttl_s

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[0] < time.monotonic():
            del self._entries[key]
            return None
        return entry[1]

    def put(self, key: K, value: V) -> None:
        self._entries[key] = (time.monotonic() + self._ttl_s, value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        """Entries that are kept, those whose time is over too."""
        return len(self._entries)

    def items(self) -> list[tuple[K, V]]:
        return [(key, value) for key, (_, value) in self._entries.items()]


class Directory:
    def __init__(self, *, ttl_s: float) -> None:
        self.queues: Bounded[QueueKey, QueueRow] = Bounded(entries_max=QUEUES_MAX, ttl_s=ttl_s)
        self.partitions: Bounded[PartitionKey, PartitionRow] = Bounded(
            entries_max=PARTITIONS_MAX, ttl_s=ttl_s
        )
        # (tenant, namespace, task) -> the queues that match; short-lived, as queues come.
        self.discoveries: Bounded[tuple[UUID, str, str], list[QueueRow]] = Bounded(
            entries_max=DISCOVERIES_MAX, ttl_s=min(ttl_s, DISCOVERY_S)
        )
        # (queue id, partition name) -> partition id, for pops that name one. Ids never come
        # back, so an old entry is answered `gone`.
        self.partition_ids: Bounded[tuple[int, str], int] = Bounded(
            entries_max=PARTITIONS_MAX, ttl_s=ttl_s
        )
        # The queues that encrypt, as far as a schedule was told; for timers, whose queue need
        # not exist.
        self.encrypting: Bounded[QueueKey, bool] = Bounded(entries_max=QUEUES_MAX, ttl_s=ttl_s)
        # Queues that were configured here: a partition's row may be older than that, and says so
        # only when the database is asked.
        self.configured: Bounded[QueueKey, bool] = Bounded(entries_max=QUEUES_MAX, ttl_s=ttl_s)
        # (queue id, group) -> the stored conflation policy.
        self.groups: Bounded[tuple[int, str], bool] = Bounded(entries_max=GROUPS_MAX, ttl_s=ttl_s)
        # Queues and groups that pops have met here, to tell those that may just have been made
        # from those that were only looked up again.
        self._met: Bounded[Hashable, bool] = Bounded(
            entries_max=QUEUES_MAX + GROUPS_MAX, ttl_s=math.inf
        )
        # Each is told a tenant of whom a queue or a group was made, changed or deleted.
        self.changed: list[Callable[[UUID], None]] = []

    def learn_queue(self, key: QueueKey, row: QueueRow) -> None:
        self.queues.put(key, row)
        self._meet(key[0], key)

    def learn_group(self, tenant: UUID, key: tuple[int, str], conflation: bool) -> None:
        self.groups.put(key, conflation)
        self._meet(tenant, key)

    def _meet(self, tenant: UUID, key: Hashable) -> None:
        if self._met.get(key) is None:
            self._met.put(key, True)
            self.tell(tenant)

    def tell(self, tenant: UUID) -> None:
        """A queue or a group of the tenant's was made, changed or deleted."""
        for told in self.changed:
            told(tenant)

    def forget_everything(self) -> None:
        """It may be another database that answers now, where ids mean other things."""
        for known in (
            self.queues,
            self.partitions,
            self.discoveries,
            self.partition_ids,
            self.encrypting,
            self.groups,
            self._met,
        ):
            known.clear()

    def forget_queue(self, tenant: UUID, queue: str) -> None:
        self.queues.forget((tenant, queue))
        self._met.forget((tenant, queue))
        self.configured.put((tenant, queue), True)
        self.tell(tenant)

    def forget_queue_id(self, queue_id: int) -> None:
        """The queue of this id is gone, whatever its name was."""
        for key in [key for key, row in self.queues.items() if row.id == queue_id]:
            self.queues.forget(key)

    def forget_partition(self, tenant: UUID, queue: str, name: str) -> None:
        self.partitions.forget((tenant, queue, name))
        self.queues.forget((tenant, queue))
        self._met.forget((tenant, queue))
