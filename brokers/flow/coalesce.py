"""Coalescing: one call in flight, and the next one takes all that waits.

The push combiner's idea for requests that need no gate of their own: claims, acks,
probes. Alone, a request goes at once; under load many share a call.

Imports flow/ending. Used by runtime.py, flow/ and services/.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar

from brokers.flow.ending import ended

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Hashable)

DURATIONS_KEPT = 512


class Coalescer(Generic[Asked, Answer]):
    """`flush` gets what waits, at most `weight_max` in all, and answers in the same order.

    An exception of `flush` is everyone's of that call. A request that is cancelled before
    its answer reached it is answered to nobody: `orphaned` gets that answer.
    """

    def __init__(
        self,
        name: str,
        flush: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]],
        *,
        weight_max: int,
        weight: Callable[[Asked], int] = lambda asked: 1,
        orphaned: Callable[[Asked, Answer], None] | None = None,
        workers: int = 1,
    ) -> None:
        self._name = name
        self._flush = flush
        self._weight_max = weight_max
        self._weight = weight
        self._orphaned = orphaned
        self._waiting: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._workers_max = workers
        self.calls = 0
        self.items = 0
        # Of the latest calls, in seconds.
        self.durations: deque[float] = deque(maxlen=DURATIONS_KEPT)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def ask(self, asked: Asked) -> Answer:
        future = self.put(asked)
        try:
            return await future
        except asyncio.CancelledError:
            # Answered, but cancelled before it woke to read the answer.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._orphan(asked, future.result())
            raise

    def put(self, asked: Asked) -> asyncio.Future[Answer]:
        """The same for whoever does not wait in a task, and to whom an answer is never lost."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if len(self._workers) < self._workers_max:
            task = asyncio.create_task(self._work(), name=self._name)
            self._workers.add(task)
            task.add_done_callback(self._workers.discard)
        return future

    async def _work(self) -> None:
        await self._flush_all()
        # Not left to the callback: whom the last answers wake runs before it, may ask at
        # once, and must not take this worker for one that will look again.
        task = asyncio.current_task()
        assert task is not None
        self._workers.discard(task)

    async def _flush_all(self) -> None:
        while self._waiting:
            # One turn of the loop: what has arrived but is not read yet rides along.
            await asyncio.sleep(0)
            taken = self._take()
            if not taken:
                continue
            self.calls += 1
            self.items += len(taken)
            began = time.monotonic()
            try:
                answers = await self._flush([asked for asked, _ in taken])
                if len(answers) != len(taken):
                    raise RuntimeError(f"{self._name}: {len(answers)} answers to {len(taken)}")
            except asyncio.CancelledError:
                for _, future in taken:
                    future.cancel()
                raise
            except Exception as error:
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)
                continue
            self.durations.append(time.monotonic() - began)
            for (asked, future), answer in zip(taken, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
                else:
                    self._orphan(asked, answer)

    def _orphan(self, asked: Asked, answer: Answer) -> None:
        if self._orphaned is not None:
            self._orphaned(asked, answer)

    def _take(self) -> list[tuple[Asked, asyncio.Future[Answer]]]:
        taken: list[tuple[Asked, asyncio.Future[Answer]]] = []
        weight = 0
        while self._waiting:
            asked, future = self._waiting[0]
            if future.done():  # cancelled while it waited
                self._waiting.popleft()
                continue
            weight += self._weight(asked)
            if taken and weight > self._weight_max:
                break
            taken.append(self._waiting.popleft())
        return taken

    async def stop(self) -> None:
        await ended(self._workers)
        for _, future in self._waiting:
            future.cancel()


class SingleFlight(Generic[Key, Answer]):
    """Whoever asks for the same key while the answer is being fetched gets that answer."""

    def __init__(self) -> None:
        self._flights: dict[Key, asyncio.Task[Answer]] = {}

    async def run(self, key: Key, fetch: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(fetch())
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        # One that is cancelled must not take the answer from the others.
        return await asyncio.shield(flight)

    async def stop(self) -> None:
        await ended(self._flights.values())
