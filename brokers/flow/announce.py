"""Announce: tell whoever waits that a commit brought news.

Called only after the commit. It cannot wait and cannot fail; what it tells are hints.
Every group's ring of the queue is marked; a partition that becomes ready by that rings a
gate.

Imports flow/gates, flow/ready and flow/tally. Used by store/combine.py and services/.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from brokers.flow.gates import Gates
from brokers.flow.ready import Ring, Rings
from brokers.flow.tally import Tally

# tenant, queue, partition, queue id, partition id, messages written
Pushed = tuple[UUID, str, str, int, int, int]


class Announcer:
    def __init__(self, gates: Gates, tally: Tally) -> None:
        self._gates = gates
        self._tally = tally
        self.rings = Rings(self._became_ready)

    def pushed(self, news: Sequence[Pushed]) -> None:
        """Messages were committed: by a push, a transaction, a timer, a replay, a sink."""
        for _, _, name, queue_id, partition_id, written in news:
            counts = self._tally.of(queue_id)
            counts.push_requests += 1
            counts.push_messages += written
            self.rings.mark(queue_id, partition_id)
            self._gates.ring_unborn(queue_id, name)

    def completed(self, queue_id: int, group: str, partition_id: int, lease_id: str) -> None:
        """A batch that this broker handed out was completed."""
        ring = self.rings.find(queue_id, group)
        if ring is not None:
            ring.finished(partition_id, lease_id)

    def released(self, queue_id: int, group: str, partition_ids: Iterable[int]) -> None:
        """Leases ended (ack, nack, hand-back): these partitions may have work."""
        ring = self.rings.find(queue_id, group)
        if ring is not None:
            for partition_id in partition_ids:
                ring.promote(partition_id)

    def moved_back(self, queue_id: int, group: str) -> None:
        """We moved the group's wake version ourselves: the floor need not wonder about it."""
        ring = self.rings.find(queue_id, group)
        if ring is not None:
            ring.moved_back()

    def _became_ready(self, ring: Ring, partition_id: int) -> None:
        self._gates.ring((ring.queue_id, ring.group), partition_id)
