"""What a broker counts, as prometheus_client sees it.

Counters are plain integers that the hot paths add to; a collector reads them when somebody
scrapes. Names and labels are the contract's.

Imports domain, admission_metrics, kv_metrics, mesh_metrics, spool_metrics. Used by services/
(through Broker.counters) and runtime.py.
"""

import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from brokers import admission_metrics, kv_metrics, mesh_metrics, spool_metrics
from brokers.domain import AckOutcome

if TYPE_CHECKING:
    from brokers.runtime import Broker


QUANTILES = ("0.5", "0.99")


class Counters:
    """Totals of this process since it started."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.push_requests = 0
        self.push_messages = 0
        self.pop_requests = 0
        self.pop_messages = 0
        self.pop_empty = 0
        self.ack_requests = 0
        self.ack_messages = 0
        self.acks_succeeded = 0
        self.acks_failed = 0
        self.dead_letters = 0
        self.undecryptable = 0
        self.transactions = 0
        self.pop_targeted = 0
        self.fill_waits = 0
        self.fill_wait_us = 0
        self.claim_calls = 0
        self.probe_calls = 0

    def count_auto_acks(self, messages: int) -> None:
        """What an auto-ack pop was handed is acked by that."""
        self.ack_requests += 1
        self.ack_messages += messages
        self.acks_succeeded += messages

    def count_acks(self, outcomes: Sequence[AckOutcome]) -> None:
        succeeded = sum([outcome.success for outcome in outcomes])
        self.ack_messages += len(outcomes)
        self.acks_succeeded += succeeded
        self.acks_failed += len(outcomes) - succeeded
        self.dead_letters += sum([outcome.dlq for outcome in outcomes])


class BrokerCollector(Collector):
    """The process part of the exposition: it is there whatever the database does. What is known of
    the cell stands behind it (cell_metrics.py)."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        broker, counters = self._broker, self._broker.counters
        yield gauge(
            "queen_uptime_seconds", "Age of the process", time.monotonic() - counters.started
        )
        yield gauge(
            "queen_process_resident_memory_bytes",
            "Resident memory",
            resident_bytes(),
        )
        yield gauge(
            "queen_event_loop_lag_avg_milliseconds",
            "Mean delay of the event loop since the start",
            broker.loop_lag_ms,
        )
        parked = GaugeMetricFamily(
            "queen_parked_long_polls", "Parked pops by queue", labels=["queue"]
        )
        for queue, count in broker.gates.parked().items():
            parked.add_metric([queue], count)
        yield parked
        for name, text in (
            ("push_requests", "Push requests"),
            ("push_messages", "Messages pushed"),
            ("pop_requests", "Pop requests"),
            ("pop_messages", "Messages delivered"),
            ("ack_requests", "Ack requests"),
            ("ack_messages", "Acknowledgments"),
        ):
            yield counter(f"queen_process_{name}", text, getattr(counters, name))
        yield counter("queen_process_transactions", "Transactions committed", counters.transactions)
        yield counter("queen_process_dead_letters", "Messages dead-lettered", counters.dead_letters)
        yield counter(
            "queen_undecryptable_messages",
            "Messages delivered with an error because no key opens their payload",
            counters.undecryptable,
        )
        yield counter("queen_claim_calls", "Claim calls to the database", counters.claim_calls)
        yield counter("queen_probe_calls", "Probe calls to the database", counters.probe_calls)
        yield from _batches(broker)
        yield from _pops(counters)
        yield from admission_metrics.families(broker.admission, broker.traffic)
        stats = broker.store.stats()
        yield gauge("queen_db_pool_size", "Connections of the pool", stats["size"])
        yield gauge("queen_db_pool_idle", "Idle connections", stats["idle"])
        yield gauge("queen_db_pool_active", "Connections in use", stats["size"] - stats["idle"])
        yield from kv_metrics.families(broker.kv.counters, broker.kv.pool.stats())
        yield from broker.timer_metrics.collect()
        yield from broker.leader_metrics.collect()
        spool = None if broker.spool is None else broker.spool.status()
        yield from spool_metrics.families(spool, ready=broker.ready)
        yield from spool_metrics.modes(
            push_maintenance=broker.switches.push_maintenance,
            pop_maintenance=broker.switches.pop_maintenance,
        )
        yield from mesh_metrics.families(None if broker.mesh is None else broker.mesh.status())
        yield gauge("queen_database_up", "1 when the database answered last", broker.ready)


def _batches(broker: "Broker") -> Iterator[Metric]:
    fired = CounterMetricFamily(
        "queen_batches_fired", "Combined calls to the database", labels=["op"]
    )
    items = CounterMetricFamily("queen_batch_items_fired", "Items in combined calls", labels=["op"])
    share = GaugeMetricFamily(
        "queen_fusion_items_per_batch", "Items a combined call, on average", labels=["op"]
    )
    took = GaugeMetricFamily(
        "queen_batch_rtt_milliseconds",
        "Duration of the latest combined calls",
        labels=["op", "quantile"],
    )
    for op, calls, carried, seconds in broker.combined():
        fired.add_metric([op], calls)
        items.add_metric([op], carried)
        share.add_metric([op], carried / calls if calls else 0.0)
        ordered = sorted(seconds) or [0.0]
        for quantile in QUANTILES:
            position = min(int(float(quantile) * len(ordered)), len(ordered) - 1)
            took.add_metric([op, quantile], 1000 * ordered[position])
    yield from (fired, items, share, took)


def _pops(counters: Counters) -> Iterator[Metric]:
    yield counter(
        "queen_pop_fill_wait", "Pops that waited for their batch to fill", counters.fill_waits
    )
    yield counter("queen_pop_fill_wait_microseconds", "How long they waited", counters.fill_wait_us)
    targeted = counters.pop_targeted
    yield counter("queen_pop_targeted", "Pops of a named partition", targeted)
    wildcard = counters.pop_requests - targeted
    yield counter("queen_pop_wildcard", "Pops of any partition", wildcard)


def register(broker: "Broker") -> BrokerCollector:
    collector = BrokerCollector(broker)
    REGISTRY.register(collector)
    return collector


def unregister(collector: BrokerCollector) -> None:
    REGISTRY.unregister(collector)


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
