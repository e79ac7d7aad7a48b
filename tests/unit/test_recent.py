"""What was read lately is told again, for some seconds and no longer.

Method: a clock that the test moves.
"""

import asyncio

import pytest

from brokers.flow import recent
from brokers.flow.recent import Recent


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    def __init__(self) -> None:
        self.reads = 0

    async def read(self) -> int:
        self.reads += 1
        await asyncio.sleep(0)
        return self.reads


def test_an_answer_is_told_again_until_it_is_too_old():
    async def story() -> None:
        clock, source = Clock(), Source()
        kept = Recent(5.0, clock)
        assert await kept.get("a", source.read) == 1
        clock.now += 4.9
        assert await kept.get("a", source.read) == 1
        assert await kept.get("b", source.read) == 2
        clock.now += 0.2
        assert await kept.get("a", source.read) == 3

    asyncio.run(story())


def test_those_who_ask_at_once_share_one_reading_and_a_failure_is_not_kept():
    async def story() -> None:
        source = Source()
        kept = Recent(5.0, Clock())
        assert await asyncio.gather(*(kept.get("a", source.read) for _ in range(3))) == [1, 1, 1]

        async def fails() -> int:
            raise ValueError

        with pytest.raises(ValueError):
            await kept.get("b", fails)
        assert await kept.get("b", source.read) == 2

    asyncio.run(story())


def test_what_was_asked_long_before_it_was_kept_is_old():
    clock = Clock()
    kept = Recent(5.0, clock)
    asked_at = kept.now()
    clock.now += 4
    kept.keep("a", "answer", asked_at)
    assert kept.find("a") == "answer"
    clock.now += 1
    assert kept.find("a") is None


def test_without_a_time_everybody_reads():
    async def story() -> None:
        source = Source()
        kept = Recent(0.0, Clock())
        assert [await kept.get("a", source.read) for _ in range(2)] == [1, 2]

    asyncio.run(story())


def test_the_oldest_gives_way_to_what_is_read_next(monkeypatch):
    monkeypatch.setattr(recent, "ENTRIES_MAX", 2)

    async def story() -> None:
        source = Source()
        kept = Recent(5.0, Clock())
        for key in "abc":
            await kept.get(key, source.read)
        assert await kept.get("c", source.read) == 3
        assert await kept.get("b", source.read) == 2
        assert await kept.get("a", source.read) == 4

    asyncio.run(story())
