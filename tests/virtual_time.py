"""A loop whose clock moves only when everybody waits, and a model of PostgreSQL's group commit.

What is simulated takes no real time and comes out the same each time. A simulation in which
everybody waits for something that will not come fails.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now` may be moved on by a task, too: it then keeps the loop busy for so long."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(LeapingSelector(self))

    def time(self) -> float:
        return self.now


class LeapingSelector(selectors.SelectSelector):
    """Instead of waiting, the clock leaps to the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits, and nothing will come"
        self._loop.now += max(timeout, 0.0)
        return super().select(0)


def simulate(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class Log:
    """One flush at a time, of `cycle_s`; it carries what waited when it began, at most `room`."""

    def __init__(self, cycle_s: float, *, room: int = 10_000) -> None:
        self.cycle_s = cycle_s
        self._room = room
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self.commits = 0

    async def commit(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        await done

    async def _flush(self) -> None:
        while self._waiting:
            train = [self._waiting.popleft() for _ in range(min(self._room, len(self._waiting)))]
            await asyncio.sleep(self.cycle_s)
            self.commits += len(train)
            for one in train:
                if not one.done():
                    one.set_result(None)
