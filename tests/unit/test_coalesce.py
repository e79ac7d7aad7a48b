"""The coalescer: requests that share calls, one call at a time.

Method: a flush that the test holds open at its own events, so that who shares a call with
whom, and what happens in mid-call, is decided here and never by chance.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from brokers.flow.coalesce import Coalescer

TIMEOUT_S = 5.0


class Flush:
    """Doubles what it is asked; stays in mid-call while `hold` is not set."""

    def __init__(self, *, held: bool = False) -> None:
        self.calls: list[list[int]] = []
        self.started = asyncio.Event()
        self.hold = asyncio.Event()
        self.refused: int | None = None
        if not held:
            self.hold.set()

    async def __call__(self, asked: Sequence[int]) -> list[int]:
        self.calls.append(list(asked))
        self.started.set()
        await self.hold.wait()
        if self.refused in asked:
            raise RuntimeError("the world broke")
        return [2 * one for one in asked]


def coalescer(flush: Flush, **options: Any) -> Coalescer[int, int]:
    return Coalescer("test", flush, **{"weight_max": 100, **options})


async def within(work: Any) -> Any:
    return await asyncio.wait_for(work, TIMEOUT_S)


async def ask_all(shared: Coalescer[int, int], numbers: Sequence[int]) -> list[asyncio.Task[int]]:
    """Tasks that have asked, and wait."""
    tasks = [asyncio.create_task(shared.ask(number)) for number in numbers]
    await asyncio.sleep(0)
    return tasks


async def test_a_request_alone_goes_at_once_in_a_call_of_its_own():
    flush = Flush()
    assert await within(coalescer(flush).ask(1)) == 2
    assert flush.calls == [[1]]


async def test_who_asks_again_as_soon_as_it_is_answered_is_answered_again():
    """The worker that has just finished must not be taken for one that will look again."""
    shared = coalescer(Flush())

    async def ask_in_a_row() -> list[int]:
        return [await shared.ask(number) for number in range(5)]

    assert await within(ask_in_a_row()) == [0, 2, 4, 6, 8]


async def test_what_arrives_during_a_call_shares_the_next_one():
    flush = Flush(held=True)
    shared = coalescer(flush)
    tasks = await ask_all(shared, [1])
    await within(flush.started.wait())
    tasks += await ask_all(shared, [2, 3, 4])
    flush.hold.set()
    assert await within(asyncio.gather(*tasks)) == [2, 4, 6, 8]
    assert flush.calls == [[1], [2, 3, 4]]
    assert (shared.calls, shared.items) == (2, 4)


async def test_one_call_is_under_way_at_a_time():
    under_way = most = 0

    async def flush(asked: Sequence[int]) -> list[int]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return list(asked)

    shared: Coalescer[int, int] = Coalescer("test", flush, weight_max=3)

    async def client(number: int) -> list[int]:
        return [await shared.ask(number) for _ in range(10)]

    answers = await within(asyncio.gather(*map(client, range(20))))
    assert answers == [[number] * 10 for number in range(20)]
    assert most == 1


async def test_a_call_carries_no_more_than_its_weight_but_a_heavy_request_goes_alone():
    flush = Flush(held=True)
    shared = coalescer(flush, weight_max=10, weight=lambda asked: asked)
    tasks = await ask_all(shared, [1])
    await within(flush.started.wait())
    tasks += await ask_all(shared, [6, 4, 50, 3, 8])
    flush.hold.set()
    assert await within(asyncio.gather(*tasks)) == [2, 12, 8, 100, 6, 16]
    assert flush.calls == [[1], [6, 4], [50], [3], [8]]


async def test_an_error_is_everyones_of_that_call_and_nobodys_of_the_next():
    flush = Flush(held=True)
    shared = coalescer(flush)
    flush.refused = 1
    failing = await ask_all(shared, [1, 2])
    await within(flush.started.wait())
    after = await ask_all(shared, [3])
    flush.hold.set()
    for task in failing:
        with pytest.raises(RuntimeError, match="the world broke"):
            await within(task)
    assert await within(after[0]) == 6


async def test_a_request_cancelled_while_it_waits_is_never_sent():
    flush = Flush(held=True)
    shared = coalescer(flush)
    tasks = await ask_all(shared, [1])
    await within(flush.started.wait())
    waiting = await ask_all(shared, [2, 3])
    waiting[0].cancel()
    await asyncio.sleep(0)
    flush.hold.set()
    assert await within(asyncio.gather(*tasks, waiting[1])) == [2, 6]
    assert flush.calls == [[1], [3]]


async def test_the_answer_to_a_request_cancelled_in_mid_call_is_handed_to_the_orphanage():
    orphans: list[tuple[int, int]] = []
    flush = Flush(held=True)
    shared = coalescer(flush, orphaned=lambda asked, answer: orphans.append((asked, answer)))
    gone, stays = await ask_all(shared, [1, 2])
    await within(flush.started.wait())
    gone.cancel()
    flush.hold.set()
    assert await within(stays) == 4
    assert orphans == [(1, 2)]
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_a_request_cancelled_between_its_answer_and_its_waking_is_an_orphan_too():
    """The answer is there, its task has not run yet, and never will."""
    orphans: list[tuple[int, int]] = []
    tasks: list[asyncio.Task[int]] = []

    async def flush(asked: Sequence[int]) -> list[int]:
        # Runs after the answer was set, and before the asker is woken by it.
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        return list(asked)

    shared: Coalescer[int, int] = Coalescer(
        "test",
        flush,
        weight_max=10,
        orphaned=lambda asked, answer: orphans.append((asked, answer)),
    )
    tasks.append(asyncio.create_task(shared.ask(7)))
    with pytest.raises(asyncio.CancelledError):
        await within(tasks[0])
    assert orphans == [(7, 7)]


async def test_a_stop_leaves_nobody_waiting():
    flush = Flush(held=True)
    shared = coalescer(flush)
    under_way = await ask_all(shared, [1])
    await within(flush.started.wait())
    waiting = await ask_all(shared, [2])
    await within(shared.stop())
    ends = await within(asyncio.gather(*under_way, *waiting, return_exceptions=True))
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 2
