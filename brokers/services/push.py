"""Push: store messages, and answer when they are committed.

Stations: mint ids -> build frames -> combine -> (commit, announce) -> answer. Ids are fixed
here, once, so that any replay of the same item is recognised.

Imports domain, frames, store. Called by api/{hot,hot_soon}.py.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from brokers import frames
from brokers.domain import DEFAULT_TENANT, PushItem, PushOutcome, PushRequest
from brokers.errors import Refusal
from brokers.store.parcels import Parcel

if TYPE_CHECKING:
    from brokers.runtime import Broker

OVERLOADED = "more messages wait to be stored than this broker may hold"


async def push(broker: "Broker", request: PushRequest) -> list[PushOutcome]:
    """Store the items; one outcome each, in request order.

    Items of one (queue, partition) are one parcel and keep their order. The answer waits
    for all parcels. A request that is cancelled leaves its parcels in the combiner: they
    may be stored all the same, as with any lost answer.
    """
    _refuse_overload(broker)
    items = request.items
    if request.tenant != DEFAULT_TENANT:
        size = sum(len(one.payload) for one in items)
        await broker.quotas.admit_push(request.tenant, len(items), size)
    pushing = Pushing(broker, request.tenant, items, request.producer_sub)
    await pushing.finished
    return pushing.outcomes()


def begin(broker: "Broker", items: Sequence[PushItem], subject: str | None) -> "Pushing":
    """The same for the default tenant, which has no quota to ask for first: nothing to wait for
    but what is done already."""
    _refuse_overload(broker)
    return Pushing(broker, DEFAULT_TENANT, items, subject)


def _refuse_overload(broker: "Broker") -> None:
    if broker.push_combiner.waiting_bytes > broker.config.push.waiting_bytes_max:
        raise Refusal(OVERLOADED, code="rate_limited", retry_after_s=1)


class Pushing:
    """A push that has begun: its parcels are in the combiner. Once `finished`: its outcomes."""

    __slots__ = ("_ids", "_items", "_left", "_placed", "finished")

    def __init__(
        self, broker: "Broker", tenant: UUID, items: Sequence[PushItem], subject: str | None
    ) -> None:
        ids = broker.ids.mint_many(len(items))
        broker.counters.push_requests += 1
        broker.counters.push_messages += len(items)
        self._items, self._ids = items, ids
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        put = broker.push_combiner.put
        if len(items) == 1:
            [item] = items
            literal = frames.literal(ids[0] if item.transaction_id is None else item.transaction_id)
            frame = frames.frame(ids[0], literal, item.trace_id, subject, item.payload)
            parcel = Parcel(ids, [literal], [frame])
            self._placed: list[tuple[Sequence[int], Parcel]] = [((0,), parcel)]
            self._left = 1
            parcel.waiter = self._one_done
            put((tenant, item.queue, item.partition), parcel)
            return
        groups: dict[tuple[str, str], list[int]] = {}
        last: tuple[str, str] | None = None
        for position, item in enumerate(items):
            place = (item.queue, item.partition)
            if place != last:
                last, positions = place, groups.setdefault(place, [])
            positions.append(position)
        self._left = len(groups)
        self._placed = []
        for (queue, partition), positions in groups.items():
            parcel = make_parcel(
                [items[one] for one in positions], [ids[one] for one in positions], subject
            )
            parcel.waiter = self._one_done
            self._placed.append((positions, parcel))
            put((tenant, queue, partition), parcel)

    def _one_done(self) -> None:
        self._left -= 1
        if self._left == 0 and not self.finished.done():
            self.finished.set_result(None)

    @property
    def stored(self) -> bool:
        """All of it was stored, and nothing of it had been before."""
        return all(parcel.stored for _, parcel in self._placed)

    def told(self) -> tuple[list[str], list[str]]:
        """Message ids and the literals of the transactionIds, in request order."""
        if len(self._placed) == 1:
            [(_, parcel)] = self._placed
            return self._ids, parcel.literals
        literals = [""] * len(self._ids)
        for positions, parcel in self._placed:
            for position, literal in zip(positions, parcel.literals, strict=True):
                literals[position] = literal
        return self._ids, literals

    def outcomes(self) -> list[PushOutcome]:
        """One an item, in request order."""
        items, ids = self._items, self._ids
        outcomes: list[PushOutcome] = [None] * len(items)  # type: ignore[list-item]
        for positions, parcel in self._placed:
            assert parcel.outcomes is not None
            for position, (status, message_id, error) in zip(
                positions, parcel.outcomes, strict=True
            ):
                given = items[position].transaction_id
                outcomes[position] = PushOutcome(
                    status, message_id, ids[position] if given is None else given, error
                )
        return outcomes


def make_parcel(items: Sequence[PushItem], ids: list[str], subject: str | None) -> Parcel:
    """The items of one partition as frames; an item without a transactionId goes by its id."""
    literals = [
        frames.literal(one if item.transaction_id is None else item.transaction_id)
        for item, one in zip(items, ids, strict=True)
    ]
    made = frames.frames_of(
        ids, literals, [item.trace_id for item in items], subject, [item.payload for item in items]
    )
    return Parcel(ids, literals, made)
