"""When a push call waits for consumers, and when it must not.

Method: a model of a loop that is the limit. It serves one request at a time, in rounds, as a
loop does with its sockets; producers and consumers ask again as soon as they are
answered. No real time passes.
"""

import asyncio
from collections import deque

from brokers.config import AdmissionConfig
from brokers.flow.admission import Admission
from brokers.flow.giving_way import GivingWay, Totals
from tests.virtual_time import VirtualLoop, simulate

CONFIG = AdmissionConfig(init=8, min=4, max=8, nosync_budget=8, pool_reserve=1)
CLIENTS = 16
REQUEST_S = 0.001
CALL_S = 0.001


class Model:
    """A broker of three lanes, each with one call in flight that takes all that waits."""

    def __init__(self, *, giving_way: bool) -> None:
        self.admission = Admission(CONFIG, clock=asyncio.get_running_loop().time)
        self.giving_way = GivingWay(self.admission, self.totals, enabled=giving_way)
        self.pushed = self.delivered = self.push_requests = self.consumer_requests = 0
        self._sent: list[tuple[str, asyncio.Future[None]]] = []
        self._sockets = asyncio.Event()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {
            lane: deque() for lane in ("push", "pop", "ack")
        }
        self._arrived = {lane: asyncio.Event() for lane in self._waiting}
        self._tasks: list[asyncio.Task[None]] = []

    def totals(self) -> Totals:
        return Totals(self.pushed, self.delivered, self.push_requests, self.consumer_requests)

    async def ask(self, lane: str) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent.append((lane, done))
        self._sockets.set()
        await done

    async def _serve(self) -> None:
        """Round after round: all that has come is read, and only then anything else runs."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        while True:
            await self._sockets.wait()
            self._sockets.clear()
            readable, self._sent = self._sent, []
            loop.now += len(readable) * REQUEST_S  # the loop is busy: no timer goes off
            await asyncio.sleep(0)
            for lane, done in readable:
                self._waiting[lane].append(done)
                self._arrived[lane].set()

    async def _combine(self, lane: str) -> None:
        waiting = self._waiting[lane]
        while True:
            await self._arrived[lane].wait()
            self._arrived[lane].clear()
            if lane == "push":
                slot = self.giving_way.slot(len(waiting))
            else:
                slot = self.admission.slot(lane)
            async with slot:
                taken = [waiting.popleft() for _ in range(len(waiting))]
                await asyncio.sleep(CALL_S)
            for one in taken:
                one.set_result(None)

    async def _produce(self) -> None:
        while True:
            self.push_requests += 1
            await self.ask("push")
            self.pushed += 1

    async def _consume(self) -> None:
        while True:
            if self.pushed <= self.delivered:
                await asyncio.sleep(0.001)
                continue
            self.delivered += 1
            self.consumer_requests += 1
            await self.ask("pop")
            self.consumer_requests += 1
            await self.ask("ack")

    async def run(self, producers: int, consumers: int, seconds: float) -> tuple[int, int]:
        """Messages pushed and delivered a second."""
        work = [self._serve(), *(self._combine(lane) for lane in self._waiting)]
        work += [self._produce() for _ in range(producers)]
        work += [self._consume() for _ in range(consumers)]
        tasks = [asyncio.create_task(one) for one in work]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return int(self.pushed / seconds), int(self.delivered / seconds)


def rates(producers: int, consumers: int, *, giving_way: bool) -> tuple[int, int]:
    async def work() -> tuple[int, int]:
        return await Model(giving_way=giving_way).run(producers, consumers, 3.0)

    return simulate(work())


def test_as_many_consumers_as_producers_keep_up_only_when_pushes_give_way():
    pushed, delivered = rates(CLIENTS, CLIENTS, giving_way=False)
    assert delivered < 0.6 * pushed
    pushed_less, delivered_more = rates(CLIENTS, CLIENTS, giving_way=True)
    assert delivered_more > 0.95 * pushed_less
    assert delivered_more > 1.1 * delivered


def test_one_slow_consumer_does_not_slow_down_many_producers():
    pushed, _ = rates(CLIENTS, 1, giving_way=False)
    pushed_too, _ = rates(CLIENTS, 1, giving_way=True)
    assert pushed_too > 0.9 * pushed


def test_pushes_lose_no_more_than_half_to_consumers_that_have_a_backlog():
    pushed, _ = rates(CLIENTS, 4 * CLIENTS, giving_way=False)
    pushed_too, _ = rates(CLIENTS, 4 * CLIENTS, giving_way=True)
    assert pushed_too > 0.45 * pushed


def test_a_push_that_is_not_combined_with_many_waits_for_nobody():
    async def work() -> None:
        model = Model(giving_way=True)
        await model.run(3, CLIENTS, 1.0)
        assert model.giving_way.held == 0

    simulate(work())


def test_pushes_without_consumers_wait_for_nobody():
    async def work() -> None:
        model = Model(giving_way=True)
        await model.run(CLIENTS, 0, 1.0)
        assert model.giving_way.held == 0

    simulate(work())
