"""History is told again for half the time between two writings, and not after one of our own.

Method: two brokers in the test's own loop, over one database, whose clock the test moves. What was
counted is written when the test says so.
"""

from datetime import UTC, datetime, timedelta

from brokers.domain import DEFAULT_TENANT
from brokers.flow.recent import Recent
from brokers.services import analytics
from brokers.store.history_calls import Filters
from tests.services.in_process import NO_FLOOR

# Nothing is written by itself.
SELDOM = {**NO_FLOOR, "METRICS_FLUSH_MS": "600000"}
HALF_S = 300.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Reader:
    """Asks one broker for the history of a queue, always of the same hour."""

    def __init__(self, client, queue: str, fresh_s: float = 5.0) -> None:
        self.clock = Clock()
        self._broker = client.broker
        self._broker.recent = Recent(fresh_s, self.clock)
        self._filters = Filters(queue=queue)
        until = datetime.now(UTC) + timedelta(minutes=5)
        self._window = analytics.window(until - timedelta(minutes=50), until)

    async def pushed(self) -> int:
        rows = await analytics.queue_series(
            self._broker, DEFAULT_TENANT, "queue", self._filters, self._window, keys_max=10
        )
        return sum(row.push_messages for row in rows)


async def test_what_this_broker_writes_is_seen_at_once(start_client, fresh_queue):
    client = await start_client(**SELDOM)
    reader = Reader(client, fresh_queue)
    for pushed in range(3):
        assert await reader.pushed() == pushed
        await client.push(fresh_queue, pushed)
        assert await reader.pushed() == pushed, "it is not written yet"
        await client.broker.history.flush()


async def test_what_another_broker_writes_is_seen_half_the_time_between_two_writings_later(
    start_client, fresh_queue
):
    client, other = await start_client(**SELDOM), await start_client(**SELDOM)
    reader = Reader(client, fresh_queue)
    await other.push(fresh_queue, 1)
    assert await reader.pushed() == 0
    await other.broker.history.flush()
    reader.clock.now += HALF_S - 1
    assert await reader.pushed() == 0
    reader.clock.now += 2
    assert await reader.pushed() == 1


async def test_without_a_time_each_request_reads_history(start_client, fresh_queue):
    client, other = await start_client(**SELDOM), await start_client(**SELDOM)
    reader = Reader(client, fresh_queue, fresh_s=0.0)
    await other.push(fresh_queue, 1)
    assert await reader.pushed() == 0
    await other.broker.history.flush()
    assert await reader.pushed() == 1
