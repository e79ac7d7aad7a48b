"""Push: store messages, and answer when they are committed.

Stations: mint ids -> build frames -> combine -> (commit, announce) -> answer. Ids are fixed
here, once, so that any replay of the same item is recognised.

Imports domain, frames, store. Called by api/hot.py.
"""

import asyncio
from typing import TYPE_CHECKING

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
    if broker.push_combiner.waiting_bytes > broker.config.push.waiting_bytes_max:
        raise Refusal(OVERLOADED, code="rate_limited", retry_after_s=1)
    items = request.items
    if request.tenant != DEFAULT_TENANT:
        size = sum(len(one.payload) for one in items)
        await broker.quotas.admit_push(request.tenant, len(items), size)
    ids = broker.ids.mint_many(len(items))
    subject = request.producer_sub
    broker.counters.push_requests += 1
    broker.counters.push_messages += len(items)
    put = broker.push_combiner.put
    if len(items) == 1:
        [item] = items
        alone = Countdown(1)
        parcel = make_parcel(items, ids, subject)
        parcel.waiter = alone.one_done
        put((request.tenant, item.queue, item.partition), parcel)
        await alone.finished
        assert parcel.outcomes is not None
        [(status, message_id, error)] = parcel.outcomes
        known_as = ids[0] if item.transaction_id is None else item.transaction_id
        return [PushOutcome(status, message_id, known_as, error)]

    groups: dict[tuple[str, str], list[int]] = {}
    last: tuple[str, str] | None = None
    for position, item in enumerate(items):
        place = (item.queue, item.partition)
        if place != last:
            last, positions = place, groups.setdefault(place, [])
        positions.append(position)
    waiting = Countdown(len(groups))
    placed: list[tuple[list[int], Parcel]] = []
    for (queue, partition), positions in groups.items():
        parcel = make_parcel(
            [items[one] for one in positions], [ids[one] for one in positions], subject
        )
        parcel.waiter = waiting.one_done
        put((request.tenant, queue, partition), parcel)
        placed.append((positions, parcel))
    await waiting.finished

    outcomes: list[PushOutcome] = [None] * len(items)  # type: ignore[list-item]
    for positions, parcel in placed:
        assert parcel.outcomes is not None
        for position, (status, message_id, error) in zip(positions, parcel.outcomes, strict=True):
            given = items[position].transaction_id
            outcomes[position] = PushOutcome(
                status, message_id, ids[position] if given is None else given, error
            )
    return outcomes


def make_parcel(items: list[PushItem], ids: list[str], subject: str | None) -> Parcel:
    """The items of one partition as frames; an item without a transactionId goes by its id."""
    literals = [
        frames.literal(one if item.transaction_id is None else item.transaction_id)
        for item, one in zip(items, ids, strict=True)
    ]
    made = frames.frames_of(
        ids, literals, [item.trace_id for item in items], subject, [item.payload for item in items]
    )
    return Parcel(ids, literals, made)


class Countdown:
    """Finished when it has been told so often that one part is done."""

    __slots__ = ("_left", "finished")

    def __init__(self, parts: int) -> None:
        self._left = parts
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one_done(self) -> None:
        self._left -= 1
        if self._left == 0 and not self.finished.done():
            self.finished.set_result(None)
