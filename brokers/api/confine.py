"""Confinement: a caller with a queue prefix reaches the queues below it, and nothing else.

Decided here alone, for every route, before its handler sees the request. A route is open to
such a caller when its address names a queue, or when it says `confined=True`: then the queues
are named in its query or its body. Every name that is found, wherever it stands, must be below
the prefix; a partition is looked up by its id and must be of such a queue (an unknown id is let
through: it will look unknown), and so are a stream query and a redrive. What has no queue,
key/value state for one, is closed. A route that filters by its query alone needs the name where it
looks for it: another spelling would ask for all queues.

A body is read here as JSON of any shape, so that a route cannot grow a way to name a queue that
is not seen. A key that stands twice is judged twice: whichever the handler believes, it may.

Imports auth, errors, principal, route, services/confine, wire. Used by door.py.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from brokers.api import wire
from brokers.api.auth import forbidden
from brokers.api.route import Route
from brokers.errors import RequestError
from brokers.services import confine as confine_service

if TYPE_CHECKING:
    from brokers.runtime import Broker

QUEUE_KEYS = frozenset(
    {"queue", "queueName", "queue_name", "queues", "sourceQueue", "source_queue", "sinkQueue",
     "sink_queue", "targetQueue", "target_queue", "destinationQueue", "destination_queue"}
)  # fmt: skip
PARTITION_KEYS = frozenset({"partitionId", "partition_id", "partitionIds", "partition_ids"})
# What the caller's own data may hold says nothing about what the request reaches.
OPAQUE_KEYS = frozenset({"payload", "data", "error", "value"})
# Ways to reach what belongs to no queue, or to a whole tenant.
CLOSED_KEYS = frozenset({"kv", "queryId", "dlqId"})
# A query of a stream reaches what its source queue is; it has a name, which is taken by others too.
STREAMS = frozenset({"stream_register", "stream_state_get", "stream_cycle"})
REDRIVES = frozenset({"redrive_detail", "redrive_cancel", "redrive_resume"})
# What they touch is proved by a lease, which nobody has who did not pop there.
NAMELESS = frozenset({"lease_extend"})
THREAD_BODY_BYTES = 262_144


class Named:
    """What a request names."""

    def __init__(self) -> None:
        self.queues: set[str] = set()
        self.partitions: set[str] = set()
        self.queries: set[str] = set()
        self.names: set[str] = set()
        self.closed = False

    def add(self, key: str, value: Any) -> None:
        values = value if isinstance(value, list) else [value]
        texts = [one for one in values if isinstance(one, str)]
        if key == "sink_queue" and value == "":
            return  # there as well as not
        if key in QUEUE_KEYS:
            self.queues.update(texts)
        elif key in PARTITION_KEYS:
            self.partitions.update(texts)
        elif key == "query_id":
            self.queries.update(texts)
        elif key == "name":
            self.names.update(texts)
        elif key in CLOSED_KEYS and value not in (None, [], ""):
            self.closed = True


async def check(
    broker: "Broker",
    route: Route,
    prefix: str,
    tenant: UUID,
    *,
    params: Mapping[str, str],
    query_string: bytes,
    body: bytes,
) -> None:
    """Raises a RequestError (403) for what is not below the prefix."""
    if not route.names_queues:
        raise forbidden()
    named, query = Named(), wire.parse_query(query_string)
    if route.asks_by_query and "queue" not in query:
        raise forbidden()
    for pairs in (params.items(), query.items()):
        for key, value in pairs:
            named.add(key, value)
    if body.strip(b" \t\r\n"):
        if len(body) > THREAD_BODY_BYTES:
            await asyncio.to_thread(read, body, named)
        else:
            read(body, named)
    by_id = route.handler in NAMELESS or route.handler in REDRIVES
    if route.handler == "stream_cycle":
        named.queues.discard("")  # an item without a queue goes nowhere
    if named.queries and route.handler not in STREAMS:
        raise forbidden()
    if named.closed or not (named.queues or named.partitions or by_id):
        raise forbidden()
    if not all(queue.startswith(prefix) for queue in named.queues):
        raise forbidden()
    for owners in await _owners(broker, route, tenant, params, named):
        if not all(queue.startswith(prefix) for queue in owners):
            raise forbidden()


async def _owners(
    broker: "Broker", route: Route, tenant: UUID, params: Mapping[str, str], named: Named
) -> list[list[str]]:
    """The queues of what is named by something else than a queue."""
    found = []
    if named.partitions:
        found.append(await confine_service.queues_of_partitions(broker, tenant, named.partitions))
    if route.handler in STREAMS:
        names = named.names if route.handler == "stream_register" else ()
        found.append(await confine_service.sources_of_queries(broker, tenant, named.queries, names))
    if route.handler in REDRIVES:
        found.append(await confine_service.queues_of_redrive(broker, tenant, params["id"]))
    return found


def read(body: bytes, named: Named) -> None:
    """Find every name in a JSON body. What is no JSON is refused, as its handler would."""
    try:
        # Numbers name nothing; as integers they would have a limit of digits.
        text = wire.json_text(body)
        waiting: list[Any] = [json.loads(text, object_pairs_hook=Pairs, parse_int=float)]
    except RecursionError:
        raise RequestError("bad body: nested too deeply", code="bad_body") from None
    except ValueError as error:
        raise RequestError(f"bad body: {error}", code="bad_body") from None
    while waiting:
        one = waiting.pop()
        if isinstance(one, Pairs):
            for key, value in one.pairs:
                named.add(key, value)
                if key not in OPAQUE_KEYS:
                    waiting.append(value)
        elif isinstance(one, list):
            waiting.extend(one)


class Pairs:
    """A JSON object with every pair that it had, a key's repetitions included."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs
