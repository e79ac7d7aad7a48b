"""The procedures behind the traffic, as one typed coroutine each: clearing, reclaiming.

Imports calls. Used by runtime.py.
"""

from brokers.store.calls import Fetch

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
