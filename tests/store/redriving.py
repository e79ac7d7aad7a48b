"""What tests of redrives do: begin a job, look at its next letters, move them by hand.

Used by the tests of the redrive procedures. Imports the store's coroutines and calling.
"""

from typing import Any
from uuid import UUID

import psycopg

from brokers.domain import DEFAULT_TENANT
from brokers.store import redrive_calls as calls
from brokers.store.redrive_calls import Filter, RedriveMove, RedrivePage, RedriveRow, RedriveStep
from tests.store.calling import Lane, call, flush


def begin(db: psycopg.Connection[Any], queue: str, *, rate: int = 100_000, **named: Any) -> UUID:
    """A running job; what is named is its filter, or `target_queue`, `target_partition`."""
    target = {key: named.pop(key, None) for key in ("target_queue", "target_partition")}
    tenant = named.pop("tenant", DEFAULT_TENANT)
    limits = {"running_max": named.pop("running_max", 1000), "keep_days": 30}
    outcome, redrive_id = call(
        db,
        calls.redrive_create,
        tenant,
        Filter(queue=queue, **named),
        **target,
        **limits,
        rate=rate,
        total=None,
    )
    assert outcome == "created", outcome
    return redrive_id


def shown(
    db: psycopg.Connection[Any], redrive_id: UUID, tenant: UUID = DEFAULT_TENANT
) -> RedriveRow:
    [row] = call(db, calls.redrive_list, tenant, redrive_id=redrive_id)
    return row


def letters(
    db: psycopg.Connection[Any],
    redrive_id: UUID,
    *,
    rows_max: int = 500,
    bytes_max: int = 2**22,
    looks_max: int = 10_000,
) -> RedrivePage | None:
    return call(
        db,
        calls.redrive_letters,
        redrive_id,
        rows_max=rows_max,
        bytes_max=bytes_max,
        looks_max=looks_max,
    )


def move_to(page: RedrivePage, *lanes: Lane) -> RedriveMove:
    """Every letter of the page to these partitions in turn."""
    move = RedriveMove()
    shares = [page.letters[no :: len(lanes)] for no in range(len(lanes))]
    for lane, share in zip(lanes, shares, strict=True):
        if not share:
            continue
        move.letters += [letter.id for letter in share]
        move.numbers += [len(move.groups) + 1] * len(share)
        payloads = tuple(letter.payload for letter in share)
        move.groups.append(flush(lane.row, payloads, [f"dlq:{letter.id}" for letter in share]))
    return move


def step(
    db: psycopg.Connection[Any],
    token: int,
    redrive_id: UUID,
    page: RedrivePage,
    *lanes: Lane,
    wait_ms: int = 5000,
) -> RedriveStep:
    return call(
        db, calls.redrive_step, token, redrive_id, page, move_to(page, *lanes), wait_ms=wait_ms
    )


def turn(db: psycopg.Connection[Any], redrive_id: UUID, state: str, **named: Any) -> str | None:
    named = {"tenant": DEFAULT_TENANT, "running_max": 1000} | named
    return call(db, calls.redrive_turn, named.pop("tenant"), redrive_id, state, **named)


def payloads_of(lane: Lane) -> list[str]:
    """What lies in a partition, in its order."""
    rows = lane.db.execute(
        "SELECT queen_frame_get_v1(%s, no) FROM queen_partition,"
        " generate_series(log_start, last_offset) AS no WHERE id = %s ORDER BY no",
        [lane.id, lane.id],
    )
    return [frame.split(',"data":', 1)[1] for [frame] in rows]
