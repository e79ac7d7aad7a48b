"""What was read lately is told again, for some seconds, until it is written to, and no longer.

Method: a clock that the test moves.
"""

import asyncio
from uuid import UUID

import pytest

from brokers.flow import recent
from brokers.flow.recent import CELL, Recent, Topic

A, B = UUID(int=1), UUID(int=2)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Answers with the number of the reading, which ends when it is let."""

    def __init__(self) -> None:
        self.reads = 0
        self.ends = asyncio.Event()
        self.ends.set()

    async def read(self) -> int:
        self.reads += 1
        mine = self.reads
        await self.ends.wait()
        await asyncio.sleep(0)
        return mine


async def test_an_answer_is_told_again_until_it_is_too_old():
    clock, source = Clock(), Source()
    kept = Recent(5.0, clock)
    assert await kept.get(A, "a", source.read) == 1
    clock.now += 4.9
    assert await kept.get(A, "a", source.read) == 1
    assert await kept.get(A, "b", source.read) == 2
    clock.now += 0.2
    assert await kept.get(A, "a", source.read) == 3


async def test_two_tenants_never_share_an_answer():
    source = Source()
    kept = Recent(5.0, Clock())
    told = await asyncio.gather(*(kept.get(whose, "a", source.read) for whose in (A, B, CELL)))
    assert told == [1, 2, 3]
    assert [await kept.get(whose, "a", source.read) for whose in (A, B, CELL)] == told


async def test_those_who_ask_at_once_share_one_reading_and_a_failure_is_not_kept():
    source = Source()
    kept = Recent(5.0, Clock())
    assert await asyncio.gather(*(kept.get(A, "a", source.read) for _ in range(3))) == [1, 1, 1]

    async def fails() -> int:
        raise ValueError

    with pytest.raises(ValueError):
        await kept.get(A, "b", fails)
    assert await kept.get(A, "b", source.read) == 2


async def test_one_who_goes_away_takes_the_reading_from_nobody():
    source = Source()
    source.ends.clear()
    kept = Recent(5.0, Clock())
    first, second = (asyncio.ensure_future(kept.get(A, "a", source.read)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    source.ends.set()
    assert await second == 1
    assert first.cancelled() and source.reads == 1


async def test_a_write_ends_what_was_read_before_it_and_nobody_elses():
    source = Source()
    kept = Recent(5.0, Clock())
    for whose in (A, B, CELL):
        await kept.get(whose, "a", source.read)
    kept.written(A)
    assert await kept.get(A, "a", source.read) == 4
    assert await kept.get(CELL, "a", source.read) == 5, "the cell's has what A wrote"
    assert await kept.get(B, "a", source.read) == 2
    kept.forget()
    assert await kept.get(B, "a", source.read) == 6


async def test_a_write_of_a_topic_ends_nothing_else_and_a_write_of_the_tenant_ends_its_topics():
    source = Source()
    kept = Recent(5.0, Clock())
    traces, other, entries = Topic(A, "traces"), Topic(B, "traces"), Topic(A, "kv")
    everybodys = (A, CELL, traces, other, entries)

    async def read_anew() -> list[object]:
        before = [await kept.get(one, "a", source.read) for one in everybodys]
        return [one for one, told in zip(everybodys, before, strict=True) if told > seen]

    seen = 0
    assert await read_anew() == list(everybodys)
    for tenant, topic, anew in (
        (A, "traces", [traces]),
        (B, "kv", []),
        (None, "traces", [traces, other]),
        (None, "kv", [entries]),
    ):
        seen = source.reads
        kept.topic_written(tenant, topic)
        assert await read_anew() == anew
    seen = source.reads
    kept.written(A)
    assert await read_anew() == [A, CELL, traces, entries]
    seen = source.reads
    kept.forget()
    assert await read_anew() == list(everybodys)


async def test_a_reading_that_began_before_a_write_is_told_to_nobody_who_asks_after_it():
    source = Source()
    source.ends.clear()
    kept = Recent(5.0, Clock())
    early = asyncio.ensure_future(kept.get(A, "a", source.read))
    await asyncio.sleep(0)
    kept.written(A)
    late = asyncio.ensure_future(kept.get(A, "a", source.read))
    await asyncio.sleep(0)
    source.ends.set()
    assert (await early, await late) == (1, 2)
    assert await kept.get(A, "a", source.read) == 2


async def test_a_reading_that_takes_too_long_is_joined_by_nobody_any_more():
    clock, source = Clock(), Source()
    source.ends.clear()
    kept = Recent(5.0, clock)
    early = asyncio.ensure_future(kept.get(A, "a", source.read))
    await asyncio.sleep(0)
    clock.now += 5
    late = asyncio.ensure_future(kept.get(A, "a", source.read))
    await asyncio.sleep(0)
    source.ends.set()
    assert (await early, await late) == (1, 2)


async def test_age_counts_from_before_the_reading():
    clock, source = Clock(), Source()
    kept = Recent(5.0, clock)

    async def slow() -> int:
        clock.now += 4
        return await source.read()

    assert await kept.get(A, "a", slow) == 1
    clock.now += 0.9
    assert await kept.get(A, "a", source.read) == 1
    clock.now += 0.2
    assert await kept.get(A, "a", source.read) == 2


async def test_what_has_a_longer_bound_is_told_until_then_and_a_shorter_one_is_none():
    clock, source = Clock(), Source()
    kept = Recent(5.0, clock)
    assert await kept.get(A, "long", source.read, fresh_s=30.0) == 1
    assert await kept.get(A, "short", source.read, fresh_s=1.0) == 2
    clock.now += 4.9
    assert await kept.get(A, "short", source.read, fresh_s=1.0) == 2
    clock.now += 25
    assert await kept.get(A, "long", source.read, fresh_s=30.0) == 1
    assert await kept.get(A, "short", source.read, fresh_s=1.0) == 3
    clock.now += 0.2
    assert await kept.get(A, "long", source.read, fresh_s=30.0) == 4
    kept.written(A)
    assert await kept.get(A, "long", source.read, fresh_s=30.0) == 5


async def test_without_a_time_everybody_reads():
    source = Source()
    kept = Recent(0.0, Clock())
    assert [await kept.get(A, "a", source.read, fresh_s=30.0) for _ in range(2)] == [1, 2]


async def test_the_oldest_gives_way_to_what_is_read_next():
    source = Source()
    kept = Recent(5.0, Clock(), entries_max=2)
    for key in "abc":
        await kept.get(A, key, source.read)
    assert await kept.get(A, "c", source.read) == 3
    assert await kept.get(A, "b", source.read) == 2
    assert await kept.get(A, "a", source.read) == 4


async def test_what_is_kept_is_bounded_in_bytes_and_what_has_no_size_is_not_kept():
    source = Source()
    kept = Recent(5.0, Clock(), bytes_max=100)
    for key in "abc":
        await kept.get(A, key, source.read, size=lambda answer: 40)
    assert await kept.get(A, "b", source.read) == 2
    assert await kept.get(A, "a", source.read, size=lambda answer: 40) == 4
    assert await kept.get(A, "big", source.read, size=lambda answer: 101) == 5
    assert await kept.get(A, "big", source.read, size=lambda answer: 101) == 6
    assert await kept.get(A, "none", source.read, size=lambda answer: None) == 7
    assert await kept.get(A, "none", source.read, size=lambda answer: None) == 8


async def test_a_tenant_whose_writes_are_not_remembered_any_more_reads_anew(monkeypatch):
    monkeypatch.setattr(recent, "TENANTS_MAX", 2)  # one tenant, and the cell
    source = Source()
    kept = Recent(5.0, Clock())
    kept.written(A)
    assert await kept.get(A, "a", source.read) == 1
    kept.written(B)
    assert await kept.get(A, "a", source.read) == 2
