"""Announce: tell whoever waits that a commit brought news.

Called only after the commit. It cannot wait and cannot fail; what it tells are hints.

Imports flow/gates, store/calls' row types. Used by store/combine.py and services/.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

from brokers.flow.gates import Gates

# tenant, queue, partition, queue id, partition id, messages written
Pushed = tuple[UUID, str, str, int, int, int]


class AckNews(Protocol):
    @property
    def lease_released(self) -> bool | None: ...
    @property
    def queue_id(self) -> int | None: ...
    @property
    def partition_id(self) -> int | None: ...


class Announcer:
    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def pushed(self, news: Sequence[Pushed]) -> None:
        """Messages were committed."""
        for tenant, queue in {(one[0], one[1]) for one in news}:
            self._gates.ring(tenant, queue)

    def acked(self, rows: Iterable[AckNews]) -> None:
        """Acks released leases: their partitions may have more."""
        if any(row.lease_released for row in rows):
            self._gates.ring_all()

    def committed(self, rows: Iterable[AckNews]) -> None:
        self.acked(rows)

    def released(self, partition_ids: Sequence[int]) -> None:
        """A claim was handed back."""
        self._gates.ring_all()
