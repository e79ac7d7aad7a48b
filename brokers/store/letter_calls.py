"""The procedures by which operators search dead letters and clear them away, a coroutine each.

Imports calls, redrive_calls. Used by services/letters.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, array
from brokers.store.redrive_calls import Filter

LETTER_SEARCH = """
SELECT id::text, queue_name, partition_name, consumer_group, transaction_id, error, retry_count,
       failed_at, encrypted, size, payload, reached_at, reached_id::text, looks, unsearched,
       at_end
  FROM queen_dead_letter_search_v1(
       %s::uuid, %s::text, %s::text, %s::text, %b::bytea, %s::timestamptz, %s::timestamptz,
       %s::boolean, %s::timestamptz, %s::uuid, %s::integer, %s::integer, %s::bigint)
"""
LETTER_READ = """
SELECT id::text, tenant_id::text, queue_name, partition_name, partition_uid::text,
       consumer_group, message_offset, message_id::text, transaction_id, producer_sub, error,
       retry_count, failed_at, encrypted, size, payload, seals
  FROM queen_dead_letter_read_v1(%s::uuid, %s::bigint)
"""
LETTER_TALLY = """
SELECT matching, timers, more
  FROM queen_dead_letter_tally_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::timestamptz, %s::timestamptz, %s::integer)
"""
LETTER_DISCARD = "SELECT queen_dead_letter_discard_v1(%s::uuid[])"
LETTER_WEED = """
SELECT deleted, looks, reached_at, reached_id::text, at_end, until
  FROM queen_dead_letter_weed_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::timestamptz, %s::timestamptz,
       %s::timestamptz, %s::uuid, %s::integer, %s::integer)
"""


class Place(NamedTuple):
    """A dead letter, as the place behind which a look goes on."""

    failed_at: datetime
    id: str


class LetterLine(NamedTuple):
    """One dead letter of a list. `error` and `payload` are cut short; an encrypted payload
    is None. `size` is that of the payload as it is stored, in bytes."""

    id: str
    queue: str
    partition: str
    group: str
    transaction_id: str
    error: str
    retry_count: int
    failed_at: datetime
    encrypted: bool
    size: int
    payload: bytes | None

    @property
    def place(self) -> Place:
        return Place(self.failed_at, self.id)


class SearchStep(NamedTuple):
    """`reached` is the last letter looked at; `unsearched` those whose payload is encrypted."""

    lines: list[LetterLine]
    reached: Place | None
    looks: int
    unsearched: int
    at_end: bool


class Letter(NamedTuple):
    """One dead letter with all that is known of it; `transaction_id` is a JSON literal.

    `payload` is None when it has more bytes than were asked for, and an envelope if
    `encrypted`. `seals`: the queue it lies in encrypts what is pushed now.
    """

    id: str
    tenant: str
    queue: str
    partition: str
    partition_uid: str
    group: str
    offset: int
    message_id: str
    transaction_id: str
    producer_sub: str | None
    error: str
    retry_count: int
    failed_at: datetime
    encrypted: bool
    size: int
    payload: bytes | None
    seals: bool


class Tally(NamedTuple):
    """How many were found, and how many of these are timers; `more` were not looked at."""

    found: int
    timers: int
    more: bool


class WeedStep(NamedTuple):
    """`until` goes into the next step, so that all steps mean the same letters."""

    deleted: int
    looks: int
    reached: Place | None
    at_end: bool
    until: datetime


async def letter_search(
    fetch: Fetch,
    tenant: UUID,
    *,
    queue: str | None,
    group: str | None,
    error: str | None,
    payload: bytes | None,
    since: datetime | None,
    until: datetime | None,
    newer: bool,
    place: Place | None,
    limit: int,
    looks_max: int,
    bytes_max: int,
) -> SearchStep:
    """Behind `place`: the newest first, or with `newer` the oldest first."""
    at, id_ = (None, None) if place is None else place
    *rows, end = await fetch(
        LETTER_SEARCH,
        (
            str(tenant),
            queue,
            group,
            error,
            payload,
            since,
            until,
            newer,
            at,
            id_,
            limit,
            looks_max,
            bytes_max,
        ),
    )
    reached_at, reached_id, looks, unsearched, at_end = end[11:]
    return SearchStep(
        lines=[LetterLine(*row[:11]) for row in rows],
        reached=None if reached_at is None else Place(reached_at, reached_id),
        looks=looks,
        unsearched=unsearched,
        at_end=at_end,
    )


async def letter_read(fetch: Fetch, letter_id: UUID, *, bytes_max: int) -> Letter | None:
    """Of any tenant; None when there is none."""
    rows = await fetch(LETTER_READ, (str(letter_id), bytes_max))
    return Letter(*rows[0]) if rows else None


async def letter_tally(fetch: Fetch, tenant: UUID, which: Filter, *, looks_max: int) -> Tally:
    filters = (which.queue, which.group, which.error, which.since, which.until)
    [row] = await fetch(LETTER_TALLY, (str(tenant), *filters, looks_max))
    return Tally(*row)


async def letter_discard(fetch: Fetch, letter_ids: Sequence[UUID]) -> int:
    """How many of them were still there and are no more."""
    [[deleted]] = await fetch(LETTER_DISCARD, (array(letter_ids),))
    return int(deleted)


async def letter_weed(
    fetch: Fetch,
    tenant: UUID,
    which: Filter,
    *,
    place: Place | None,
    rows_max: int,
    looks_max: int,
) -> WeedStep:
    """Delete some of those that match and have failed by now, behind `place`."""
    filters = (which.queue, which.group, which.error, which.since, which.until)
    at, id_ = (None, None) if place is None else place
    [row] = await fetch(LETTER_WEED, (str(tenant), *filters, at, id_, rows_max, looks_max))
    deleted, looks, reached_at, reached_id, at_end, until = row
    reached = None if reached_at is None else Place(reached_at, reached_id)
    return WeedStep(deleted, looks, reached, at_end, until)
