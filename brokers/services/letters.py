"""Letters, as operators work on them: search, look at one, count, purge those that match.

Every look is bounded, and tells how far it came: what was not looked at is never passed off
as not being there. Encrypted payloads are not searched, and are opened only for one letter
at a time and for who asks for it.

Imports encryption, errors, store. Called by the admin. What moves letters is in
dead_letters.py and redrive.py.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from brokers.encryption import UndecryptableError, bounded
from brokers.store import letter_calls as calls
from brokers.store.letter_calls import Letter, LetterLine, Place, Tally
from brokers.store.redrive_calls import Filter

if TYPE_CHECKING:
    from brokers.runtime import Broker

SEARCH_LOOKS_MAX = 20_000
SEARCH_BYTES_MAX = 16_777_216
TALLY_LOOKS_MAX = 20_000
READ_BYTES_MAX = 67_108_864
WEED_ROWS_MAX = 2000
WEED_LOOKS_MAX = 20_000
# How long one call purges before it says that there is more.
WEED_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """None is any; `error` and `payload` are texts that have to occur as they are written.

    The page lies behind `place` on the way to older failures, or to newer ones; without a
    place it is the first one of that way.
    """

    tenant: UUID
    queue: str | None = None
    group: str | None = None
    error: str | None = None
    payload: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    place: Place | None = None
    newer: bool = False
    limit: int = 50


class Found(NamedTuple):
    """Lines, the newest first. `older` and `newer` are the places where the look goes on,
    None when that is known to lead nowhere. `reached` is set when the look met its bound."""

    lines: list[LetterLine]
    older: Place | None
    newer: Place | None
    reached: Place | None
    looks: int
    unsearched: int


class Opened(NamedTuple):
    """A letter and its payload as the producer wrote it: None when it is not to be seen, and
    then `problem` tells why."""

    letter: Letter
    payload: bytes | None
    problem: str | None


class Weeded(NamedTuple):
    """`done`: nothing is left of what was asked for."""

    deleted: int
    done: bool


async def search(broker: "Broker", request: SearchRequest) -> Found:
    """One bounded look. A page that is short may still have more behind `reached`."""
    step = await calls.letter_search(
        broker.reads.fetch,
        request.tenant,
        queue=request.queue,
        group=request.group,
        error=request.error,
        payload=None if request.payload is None else request.payload.encode(),
        since=request.since,
        until=request.until,
        newer=request.newer,
        place=request.place,
        # One more tells whether there is another page.
        limit=request.limit + 1,
        looks_max=SEARCH_LOOKS_MAX,
        bytes_max=SEARCH_BYTES_MAX,
    )
    lines, more = step.lines[: request.limit], len(step.lines) > request.limit
    reached = None if more or step.at_end else step.reached
    onward = lines[-1].place if more else reached
    back = lines[0].place if lines and request.place is not None else None
    return Found(
        lines=lines[::-1] if request.newer else lines,
        older=back if request.newer else onward,
        newer=onward if request.newer else back,
        reached=reached,
        looks=step.looks,
        unsearched=step.unsearched,
    )


async def look(broker: "Broker", letter_id: UUID, *, may_open: bool) -> Opened | None:
    """One letter of whichever tenant; None when there is none."""
    letter = await calls.letter_read(broker.reads.fetch, letter_id, bytes_max=READ_BYTES_MAX)
    if letter is None:
        return None
    payload = letter.payload
    if payload is None:
        return Opened(letter, None, f"the payload has more than {READ_BYTES_MAX:,} bytes")
    if not letter.encrypted:
        return Opened(letter, payload, None)
    if not may_open:
        return Opened(letter, None, "the payload is encrypted, and you may not see it")
    sealed = payload
    try:
        opened = await bounded(lambda: broker.keys.open(sealed), len(sealed))
    except UndecryptableError as error:
        return Opened(letter, None, str(error))
    return Opened(letter, opened, None)


async def tally(broker: "Broker", tenant: UUID, which: Filter) -> Tally:
    """How many match, as far as a bounded look finds out."""
    return await calls.letter_tally(broker.reads.fetch, tenant, which, looks_max=TALLY_LOOKS_MAX)


async def discard(broker: "Broker", letter_ids: Sequence[UUID]) -> int:
    """Delete these; how many were still there."""
    async with broker.admission.call_slot("maint"):
        return await calls.letter_discard(broker.store.fetch, letter_ids)


async def weed(broker: "Broker", tenant: UUID, which: Filter) -> Weeded:
    """Delete those that match and have failed by now, in bounded steps, for at most WEED_S.

    A failure leaves the rest for another call, and so does the end of the time.
    """
    ends = time.monotonic() + WEED_S
    deleted, place = 0, None
    while True:
        async with broker.admission.call_slot("maint"):
            step = await calls.letter_weed(
                broker.store.fetch,
                tenant,
                which,
                place=place,
                rows_max=WEED_ROWS_MAX,
                looks_max=WEED_LOOKS_MAX,
            )
        # The first step has said what "by now" means.
        which = replace(which, until=step.until)
        deleted += step.deleted
        place = step.reached
        if step.at_end or time.monotonic() > ends:
            return Weeded(deleted, step.at_end)
