"""The procedures behind the traffic, as one typed coroutine each: clearing, reclaiming, counting.

Imports calls. Used by runtime.py.
"""

from collections.abc import Sequence

from brokers.store.calls import Fetch, array

QUEUE_COUNTER_ADD = "SELECT queen_queue_counter_add_v1(%s::text, %s::bigint[], %s::bigint[])"
TXN_FLOOR_SET = "SELECT queen_txn_floor_set_v1(%s::bigint)"
TXN_SLOT_CLEAR = "SELECT queen_txn_slot_clear_v1(%s::bigint, %s::integer, %s::integer)"
# Spools that grew while the server was away report what they hold within this time.
SETTLE_S = 60
QUEUE_RECLAIM = "SELECT queen_queue_reclaim_v1(%s::integer)"


async def txn_floor_set(fetch: Fetch, floor_s: int) -> int:
    """Ids shall be remembered that long at least; how many queues that moved to longer slots."""
    [[moved]] = await fetch(TXN_FLOOR_SET, (floor_s,))
    return moved


async def txn_slot_clear(
    fetch: Fetch, *, longest_s: int, rows_max: int, settle_s: int = SETTLE_S
) -> int:
    """Slots emptied. Nothing is, until the server has been up for `settle_s`."""
    [[cleared]] = await fetch(TXN_SLOT_CLEAR, (longest_s, rows_max, settle_s))
    return cleared


async def queue_reclaim(fetch: Fetch, *, rows_max: int) -> int:
    """Rows removed by one bounded step behind deleted queues."""
    [[removed]] = await fetch(QUEUE_RECLAIM, (rows_max,))
    return removed


async def queue_counter_add(
    fetch: Fetch, server_id: str, counts: Sequence[tuple[int, Sequence[int]]]
) -> None:
    """Add (queue id, the ten counts in the columns' order) to the present minute."""
    await fetch(
        QUEUE_COUNTER_ADD,
        (
            server_id,
            array(queue_id for queue_id, _ in counts),
            array(one for _, numbers in counts for one in numbers),
        ),
    )
