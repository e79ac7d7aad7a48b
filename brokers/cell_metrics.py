"""What the database knows of the whole cell, as families: totals, queues, dead letters.

They are read just before a scrape and shown only while they are new: a scrape that finds no
database shows none. They are the same at every broker, so they are to be aggregated by max. Of
thousands of queues they are a long text: it is written once for each reading.

Imports nothing of ours. Used by runtime.py, services/cell.py and api/hot.py.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

FRESH_S = 10.0
SCOPE = "cluster"
TOTALS = (
    ("push_requests", "Push requests of all brokers"),
    ("push_messages", "Messages pushed through all brokers"),
    ("pop_requests", "Pop requests of all brokers"),
    ("pop_messages", "Messages delivered by all brokers"),
    ("ack_requests", "Ack requests of all brokers"),
    ("ack_messages", "Acknowledgments of all brokers"),
    ("transactions", "Transactions committed by all brokers"),
    ("db_errors", "Calls to the database that failed"),
    ("dlq", "Messages dead-lettered"),
)
# A queue's own: name, text, label besides the queue.
RATES = (
    ("push_requests_per_minute", "Push requests in the latest minute"),
    ("push_messages_per_minute", "Messages pushed in the latest minute"),
    ("pop_messages_per_minute", "Messages delivered in the latest minute"),
    ("pop_empty_per_minute", "Pops that found nothing in the latest minute"),
    ("transactions_per_minute", "Transactions in the latest minute"),
    ("conflated_per_minute", "Messages retired unread in the latest minute"),
    ("parked_consumers", "Parked pops at the end of the latest minute"),
)
COLUMNS = {
    "push_requests_per_minute": "push_requests",
    "push_messages_per_minute": "push_messages",
    "pop_messages_per_minute": "pop_messages",
    "pop_empty_per_minute": "pop_empty",
    "transactions_per_minute": "transactions",
    "conflated_per_minute": "conflated",
    "parked_consumers": "parked",
}


class CellMetrics(Collector):
    """`rates`: rows of queen_queue_rates_v1, by the names of their columns."""

    def __init__(self) -> None:
        self._totals: Mapping[str, int] = {}
        self._rates: Sequence[Any] = ()
        self._read_at = -FRESH_S
        self._text: bytes | None = None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._read_at

    def learn(self, totals: Mapping[str, int], rates: Sequence[Any]) -> None:
        self._totals = {**totals, "dlq": totals.get("dead_letters", 0)}
        self._rates = rates
        self._read_at = time.monotonic()
        self._text = None

    def exposition(self) -> bytes:
        """As a scrape is told it."""
        if self.age_s > FRESH_S:
            return b""
        if self._text is None:
            self._text = generate_latest(self)
        return self._text

    def collect(self) -> Iterator[Metric]:
        for name, text in TOTALS:
            family = CounterMetricFamily(f"queen_cluster_{name}", text, labels=["scope"])
            family.add_metric([SCOPE], self._totals.get(name, 0))
            yield family
        acks = CounterMetricFamily(
            "queen_cluster_ack", "Acknowledgments by result", labels=["scope", "result"]
        )
        acks.add_metric([SCOPE, "success"], self._totals.get("ack_success", 0))
        acks.add_metric([SCOPE, "failed"], self._totals.get("ack_failed", 0))
        yield acks
        yield from self._queues()
        yield from self._dead_letters()

    def _queues(self) -> Iterator[Metric]:
        """Those that have a minute in the last five."""
        seen = [row for row in self._rates if row.age_s is not None]
        for name, text in RATES:
            family = GaugeMetricFamily(f"queen_queue_{name}", text, labels=["queue"])
            for row in seen:
                family.add_metric([row.name], getattr(row, COLUMNS[name]))
            yield family
        acks = GaugeMetricFamily(
            "queen_queue_ack_per_minute",
            "Acknowledgments in the latest minute by result",
            labels=["queue", "result"],
        )
        lag = GaugeMetricFamily(
            "queen_queue_pop_lag_milliseconds",
            "Age of messages when they were delivered, in the latest minute",
            labels=["queue", "stat"],
        )
        age = GaugeMetricFamily(
            "queen_queue_metrics_age_seconds", "Age of the latest minute", labels=["queue"]
        )
        for row in seen:
            acks.add_metric([row.name, "success"], row.ack_success)
            acks.add_metric([row.name, "failed"], row.ack_failed)
            if row.pop_lag_count:
                lag.add_metric([row.name, "avg"], row.pop_lag_ms / row.pop_lag_count)
                lag.add_metric([row.name, "max"], row.pop_lag_max_ms)
            age.add_metric([row.name], row.age_s)
        yield from (acks, lag, age)

    def _dead_letters(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily(
            "queen_dlq_depth_by_queue", "Dead letters that are stored", labels=["queue"]
        )
        for row in self._rates:
            if row.dead_letters:
                depth.add_metric([row.name], row.dead_letters)
        yield depth
        whole = GaugeMetricFamily(
            "queen_dlq_depth", "Dead letters that are stored, of all queues", labels=["scope"]
        )
        whole.add_metric([SCOPE], self._totals.get("dead_letters_stored", 0))
        yield whole
