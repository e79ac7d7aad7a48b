"""Whose a partition, a stream query or a redrive is: for callers who may reach some queues only.

Imports store. Called by api/confine.py.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.store import api_key_calls, redrive_calls

if TYPE_CHECKING:
    from brokers.runtime import Broker


async def queues_of_partitions(broker: "Broker", tenant: UUID, ids: Iterable[str]) -> list[str]:
    """The names of the queues that these partitions belong to; unknown ids have none."""
    known = _known(ids)
    if not known:
        return []
    return await api_key_calls.partition_queues(broker.store.fetch, tenant, known)


async def sources_of_queries(
    broker: "Broker", tenant: UUID, ids: Iterable[str], names: Iterable[str]
) -> list[str]:
    """The source queues of the stream queries of these ids and names."""
    return await api_key_calls.stream_sources(
        broker.store.fetch, tenant, _known(ids), _storable(names)
    )


async def queues_of_redrive(broker: "Broker", tenant: UUID, redrive_id: str) -> list[str]:
    """Where its letters are from, and where they go to."""
    queues: list[str] = []
    for known in _known([redrive_id]):
        rows = await redrive_calls.redrive_list(broker.store.fetch, tenant, redrive_id=known)
        for row in rows:
            queues += [row.queue] if row.target_queue is None else [row.queue, row.target_queue]
    return queues


def _known(ids: Iterable[str]) -> list[UUID]:
    """Those that are ids at all."""
    known: list[UUID] = []
    for one in ids:
        try:
            known.append(UUID(one))
        except ValueError:
            continue
    return known


def _storable(names: Iterable[str]) -> list[str]:
    """Those that anything can be called: the others are refused by whoever reads them."""
    return [one for one in names if _is_storable(one)]


def _is_storable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name
