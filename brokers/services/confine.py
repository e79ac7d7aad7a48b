"""Whose a partition is: for callers who may reach some queues only.

Imports store. Called by api/confine.py.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.store import api_key_calls

if TYPE_CHECKING:
    from brokers.runtime import Broker


async def queues_of_partitions(broker: "Broker", tenant: UUID, ids: Iterable[str]) -> list[str]:
    """The names of the queues that these partitions belong to; unknown ids have none."""
    known: list[UUID] = []
    for one in ids:
        try:
            known.append(UUID(one))
        except ValueError:
            continue
    if not known:
        return []
    return await api_key_calls.partition_queues(broker.store.fetch, tenant, known)
