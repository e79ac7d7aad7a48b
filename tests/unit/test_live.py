"""The loop of the live pictures and the collector, without a database: parts are given to it."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.config_live import LiveConfig
from brokers.domain import SpoolStatus
from brokers.errors import StoreError
from brokers.flow.pulse import COUNTERS, Pulse
from brokers.live import collector as collectors
from brokers.live import live as lives
from brokers.live.collector import Collector
from brokers.live.live import Live, Viewer
from brokers.live.parts import Part
from brokers.live.sessions import Pass
from brokers.live.traffic import Traffic
from tests.mesh_parts import until


def pulse(worker: int = 0, *, pushed: int = 0, up_s: float = 1.0) -> Pulse:
    counters = [pushed if name == "push_messages" else 0 for name in COUNTERS]
    return Pulse(
        worker=worker,
        server_id=f"broker/{worker}",
        counters=counters,
        parked=0,
        parked_queues=[],
        up_s=up_s,
        cpu_s=0.0,
        rss_bytes=0,
        loop_lag_max_ms=0.0,
        pool={"size": 1, "idle": 1, "waiting": 0},
        admission=[0, 0, 1],
        database_up=True,
        spool=SpoolStatus(),
    )


class Siblings:
    """What the workers tell, one list of pulses a look."""

    def __init__(self, *looks: tuple[list[Pulse], list[int]]) -> None:
        self.looks = list(looks)

    async def pulses(self) -> tuple[list[Pulse], list[int]]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def broker(*looks: tuple[list[Pulse], list[int]], ready: bool = True) -> Any:
    switches = SimpleNamespace(
        known=True,
        push_maintenance=False,
        pop_maintenance=False,
        kv_enabled=True,
        timers_schedule_enabled=True,
        timers_fire_enabled=True,
    )
    server = SimpleNamespace(workers=2, worker=0, server_id="broker/0")

    class Broker:  # that can be referred to weakly
        pass

    made: Any = Broker()
    made.siblings = Siblings(*(looks or (([pulse()], []),)))
    made.config = SimpleNamespace(server=server, live=LiveConfig(interval_ms=250))
    made.switches, made.ready = switches, ready
    return made


@pytest.fixture(autouse=True)
def no_pulse_of_our_own(monkeypatch):
    monkeypatch.setattr("brokers.live.traffic.pulse.take", lambda broker: pulse())


def part(name: str, *answers: Any) -> Part:
    """Answers one after the other; the last one again and again."""
    left = list(answers)

    async def read(broker: Any) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return Part(name, 0.0, read)


async def told(collector: Collector) -> dict[str, Any]:
    picture = json.loads(await collector.tick(2.0))
    await asyncio.sleep(0)  # what was begun reads on
    return picture


async def test_a_part_that_fails_loses_its_value_and_says_why_and_since_when():
    collector = Collector(broker(), (part("totals", {"pending": "3"}, StoreError("gone")),))
    first = await told(collector)
    assert first["parts"]["totals"]["value"] == {"pending": "3"}
    assert first["point"][7] == 3
    failed = await told(collector)
    while failed["parts"].get("totals", {}).get("ok", True):
        failed = await told(collector)
    assert "value" not in failed["parts"]["totals"]
    assert failed["parts"]["totals"]["error"] == "gone"
    again = await told(collector)
    assert again["parts"]["totals"]["since"] == failed["parts"]["totals"]["since"]
    assert again["point"][7] is None
    await collector.rest()


async def test_a_part_that_hangs_holds_up_no_picture(monkeypatch):
    monkeypatch.setattr(collectors, "FIRST_S", 0.01)
    never = asyncio.Event()

    async def hang(broker: Any) -> None:
        await never.wait()

    collector = Collector(broker(), (Part("postgres", 0.0, hang),))
    async with asyncio.timeout(2):
        assert "postgres" not in (await told(collector))["parts"]
        assert "traffic" in (await told(collector))["parts"]
    await collector.rest()


async def test_a_picture_has_what_is_new_and_the_whole_one_everything():
    slow = Part("minutes", 3600.0, part("minutes", {"points": []}).read)
    collector = Collector(broker(), (slow,))
    await told(collector)
    second = await told(collector)
    assert "minutes" not in second["parts"]
    whole = json.loads(collector.whole())
    assert whole["parts"]["minutes"]["value"] == {"points": []}
    assert len(whole["points"]) == 2
    assert collector.whole() is collector.whole(), "written down once"
    await collector.rest()


async def test_without_a_database_nothing_is_asked_and_everything_is_unknown():
    asked: list[str] = []

    async def read(broker: Any) -> None:
        asked.append("asked")

    collector = Collector(broker(ready=False), (Part("totals", 0.0, read),))
    assert not (await told(collector))["parts"]["totals"]["ok"]
    assert not asked
    await collector.rest()


async def test_rates_are_those_of_workers_that_can_be_compared():
    then, now = pulse(pushed=100, up_s=10.0), pulse(pushed=300, up_s=12.0)
    newcomer, restarted = pulse(1, pushed=50, up_s=1.0), pulse(2, pushed=5, up_s=0.5)
    before = [then, pulse(2, pushed=900, up_s=60.0)]
    traffic = Traffic(broker((before, []), ([now, newcomer, restarted], [3])))
    assert (await traffic.look())["rates"] is None
    second = await traffic.look()
    assert second["rates"]["pushed"] == 100.0
    assert second["totals"]["pushed"] == "355"
    assert second["missing"] == [3]


async def test_counts_beyond_floats_are_told_digit_for_digit():
    traffic = Traffic(broker(([pulse(pushed=2**53 + 1)], [])))
    assert (await traffic.look())["totals"]["pushed"] == "9007199254740993"


class Audience:
    """Viewers whose sockets take everything, or nothing."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()

    async def take(self, message: dict[str, Any]) -> None:
        self.taken.append(message)
        self.arrived.set()

    async def block(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            await asyncio.Event().wait()
        self.taken.append(message)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(lives, "Collector", lambda broker: Collector(broker, ()))
    monkeypatch.setattr(lives, "SEND_S", 0.05)
    monkeypatch.setattr(lives.Live, "_begin_recheck", lambda self: None)


async def test_all_viewers_are_sent_the_same_bytes(quick):
    live, audiences = Live(broker()), [Audience() for _ in range(9)]
    viewers = [Viewer(send=one.take, may_watch=Pass()) for one in audiences]
    for viewer in viewers:
        await live.join(viewer)
    await until(lambda: all(len(one.taken) > 2 for one in audiences))
    sent = {id(one.taken[2]["bytes"]) for one in audiences}
    assert len(sent) == 1
    await live.close()
    assert all(one.taken[-1] == {"type": "websocket.close", "code": 1001} for one in audiences)


async def test_a_transport_that_takes_nothing_is_given_up_and_holds_up_nobody(quick):
    live, stuck, fine = Live(broker()), Audience(), Audience()
    await live.join(Viewer(send=stuck.block, may_watch=Pass()))
    await live.join(Viewer(send=fine.take, may_watch=Pass()))
    await until(lambda: len(fine.taken) > 2)
    assert stuck.taken == [{"type": "websocket.close", "code": lives.TOO_SLOW}]
    assert len(live) == 1
    await live.close()


async def test_no_picture_is_made_while_nobody_watches(quick):
    live, one = Live(broker()), Audience()
    viewer = Viewer(send=one.take, may_watch=Pass())
    await live.join(viewer)
    await until(lambda: one.taken)
    live.leave(viewer)
    await until(lambda: live._running is None)
    assert not live._collector.has_picture


async def test_the_interval_grows_with_what_viewers_cost(quick):
    live = Live(broker())

    async def costly(self: Live) -> float:
        return 0.05

    lives.Live._round, kept = costly, lives.Live._round  # type: ignore[method-assign]
    try:
        await live.join(Viewer(send=Audience().take, may_watch=Pass()))
        await until(lambda: live.interval_s > 2)
    finally:
        lives.Live._round = kept  # type: ignore[method-assign]
    assert live.interval_s == pytest.approx(0.05 / lives.LOAD_MAX)
    await live.close()


async def test_a_viewer_cannot_have_seen_what_it_was_not_sent():
    viewer = Viewer(send=Audience().take, may_watch=Pass(), sent=3)
    viewer.saw(9_999_999)
    assert viewer.seen == 3
    viewer.saw(1)
    assert viewer.seen == 3
