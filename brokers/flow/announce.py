"""Announce: tell whoever waits that a commit brought news.

Called only after the commit. It cannot wait and cannot fail; what it tells are hints.
Every group's ring of the queue is marked; a partition that becomes ready by that rings a
gate. The peers are told the same by a hint, and what they tell is applied here.

Imports flow/{gates,ready,tally}, store/directory and mesh.hints. Used by store/combine.py,
flow/ and services/.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from brokers.flow.gates import Gates
from brokers.flow.ready import Ring, Rings
from brokers.flow.tally import Tally
from brokers.store.directory import Directory
from mesh.hints import Freed, Hint, Ready
from mesh.hints import Pushed as PushedHint

log = logging.getLogger(__name__)

QUEUES_SEEN_MAX = 100_000

# tenant, queue, partition, queue id, partition id, messages written
Pushed = tuple[UUID, str, str, int, int, int]


class Announcer:
    def __init__(self, gates: Gates, tally: Tally, directory: Directory) -> None:
        self._gates = gates
        self._directory = directory
        self._seen: set[int] = set()
        self._tally = tally
        self.rings = Rings(self._became_ready)
        # Where hints go; None without a mesh. It must not wait.
        self.outlet: Callable[[Hint], None] | None = None

    def pushed(self, news: Sequence[Pushed]) -> None:
        """Messages were committed: by a push, a transaction, a timer, a replay, a sink."""
        for tenant, _, name, queue_id, partition_id, written in news:
            if queue_id not in self._seen:
                self._first_seen(tenant, queue_id)
            counts = self._tally.of(queue_id)
            counts.push_requests += 1
            counts.push_messages += written
            self.rings.mark(queue_id, partition_id)
            self._gates.ring_unborn(queue_id, name)
        if self.outlet is not None:
            self._tell_pushed(news)

    def _tell_pushed(self, news: Sequence[Pushed]) -> None:
        hints: dict[int, PushedHint] = {}
        for tenant, queue, name, queue_id, partition_id, _ in news:
            hint = hints.get(queue_id)
            if hint is None:
                hint = hints[queue_id] = PushedHint(str(tenant), queue, queue_id, {})
            hint.partitions[partition_id] = name
        for hint in hints.values():
            self.tell(hint)

    def heard_pushed(self, tenant: UUID, queue_id: int, partitions: Mapping[int, str]) -> None:
        """Messages were committed by another broker. What nobody here waits for leaves no trace."""
        if queue_id not in self._seen:
            self._first_seen(tenant, queue_id)
        for partition_id, name in partitions.items():
            self.rings.mark(queue_id, partition_id)
            self._gates.ring_unborn(queue_id, name)

    def tell(self, hint: Hint) -> None:
        """Offer a hint to the peers; what it is about is committed, so this must not fail."""
        if self.outlet is None:
            return
        try:
            self.outlet(hint)
        except Exception:
            log.exception("a hint was not offered")

    def _first_seen(self, tenant: UUID, queue_id: int) -> None:
        if len(self._seen) >= QUEUES_SEEN_MAX:
            self._seen.clear()
        self._seen.add(queue_id)
        self._directory.discoveries.clear()
        self._directory.tell(tenant)
        self._gates.ring_discovery(tenant)

    def completed(self, queue_id: int, group: str, partition_id: int, lease_id: str) -> None:
        """A batch that this broker handed out was completed."""
        ring = self.rings.find(queue_id, group)
        left_more = ring is not None and ring.finished(partition_id, lease_id)
        if self.outlet is not None:
            self.tell((Ready if left_more else Freed)(queue_id, group, {partition_id}))

    def released(self, queue_id: int, group: str, partition_ids: Iterable[int]) -> None:
        """Leases ended (ack, nack, hand-back): these partitions may have work."""
        self.heard_released(queue_id, group, partition_ids)
        if self.outlet is not None:
            self.tell(Ready(queue_id, group, set(partition_ids)))

    def heard_released(self, queue_id: int, group: str, partition_ids: Iterable[int]) -> None:
        ring = self.rings.find(queue_id, group)
        if ring is not None:
            for partition_id in partition_ids:
                ring.promote(partition_id)

    def moved_back(self, queue_id: int, group: str, *, released: bool = False) -> None:
        """We moved the group's wake version ourselves.

        `released`: by a lease that ended, of which rings and peers are told by `released`: the
        floor need not wonder about it. After a seek, or when the group was deleted, the next
        look at the ring has to be at all its partitions, here as at the peers.
        """
        ring = self.rings.find(queue_id, group)
        if ring is not None and released:
            ring.moved_back()
        elif ring is not None:
            ring.rouse_all()
        if self.outlet is not None and not released:
            self.tell(Ready(queue_id, group, set(), True))

    def _became_ready(self, ring: Ring, partition_id: int) -> None:
        self._gates.ring((ring.queue_id, ring.group), partition_id)
