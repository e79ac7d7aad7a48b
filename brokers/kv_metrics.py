"""What a broker counts of its key/value state, and how that is shown.

Counters are plain integers that the service adds to; metrics.py asks for the families when
somebody scrapes. Names are the contract's; where it leaves labels open, these are ours:
`path` is where an operation came by (route or transaction), `outcome` what became of it.

Imports domain. Used by flow/kv.py, services/kv.py and metrics.py.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from brokers.domain import KvOperation, KvResult

READS = frozenset({"get", "getMany", "getPrefix"})
DURATIONS_KEPT = 1024


class KvCounters:
    """Totals of this process since it started, and what the last prune saw."""

    def __init__(self) -> None:
        self.ops: Counter[tuple[str, str, str]] = Counter()
        self.rejected: Counter[str] = Counter()
        self.bytes_read = 0
        self.bytes_written = 0
        self.reads_shared = 0
        self.expired_waiting = 0
        self.expired_capped = False
        self.expired_oldest_s = 0.0
        self._durations: deque[float] = deque(maxlen=DURATIONS_KEPT)

    def took(self, seconds: float) -> None:
        self._durations.append(seconds)

    def count(self, path: str, results: Iterable[KvResult]) -> None:
        for one in results:
            op = one.operation.op
            self.ops[op, path, _outcome(one)] += 1
            if op in READS:
                entries = [one.entry] if one.entry else one.entries
                self.bytes_read += sum(len(entry.value or b"") for entry in entries)
            elif one.applied:
                self.bytes_written += len(one.value or b"")

    def lost(self, path: str, operation: KvOperation, reason: str) -> None:
        """A required operation did not apply, and undid its call."""
        self.ops[operation.op, path, reason] += 1

    def reject(
        self, reason: str, operations: Sequence[KvOperation], *, path: str = "route"
    ) -> None:
        """A call was turned away; only its reads are in the contract's counter."""
        reads = sum(one.op in READS for one in operations)
        self.rejected[reason] += reads
        for one in operations:
            self.ops[one.op, path, reason] += 1

    def quantile(self, part: float) -> float:
        if not self._durations:
            return 0.0
        ordered = sorted(self._durations)
        return 1000 * ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    def pruned(self, waiting: int, oldest_s: float, *, counted_max: int) -> None:
        self.expired_waiting = waiting
        self.expired_capped = waiting >= counted_max
        self.expired_oldest_s = oldest_s


def families(counters: KvCounters, pool: dict[str, int]) -> Iterator[Metric]:
    ops = CounterMetricFamily(
        "queen_kv_ops", "Key/value operations", labels=["op", "path", "outcome"]
    )
    for labels, count in counters.ops.items():
        ops.add_metric(labels, count)
    yield ops
    moved = CounterMetricFamily(
        "queen_kv_bytes", "Bytes of values read and written", labels=["direction"]
    )
    moved.add_metric(["read"], counters.bytes_read)
    moved.add_metric(["written"], counters.bytes_written)
    yield moved
    duration = GaugeMetricFamily(
        "queen_kv_op_duration_milliseconds",
        "Duration of the latest key/value calls",
        labels=["quantile"],
    )
    for part in (0.5, 0.99):
        duration.add_metric([str(part)], counters.quantile(part))
    yield duration
    connections = GaugeMetricFamily(
        "queen_kv_pool", "Connections of the key/value pool", labels=["state"]
    )
    for state, count in pool.items():
        connections.add_metric([state], count)
    yield connections
    rejected = CounterMetricFamily(
        "queen_kv_read_rejected", "Key/value reads turned away", labels=["reason"]
    )
    for reason in ("rate_limited", "pool", "disabled", "shed"):
        rejected.add_metric([reason], counters.rejected[reason])
    yield rejected
    yield CounterMetricFamily(
        "queen_kv_singleflight_coalesced",
        "Key/value reads that shared a query",
        value=counters.reads_shared,
    )
    for name, text, value in (
        ("expired_not_pruned", "Expired entries still stored", counters.expired_waiting),
        ("expired_not_pruned_capped", "1 when that is a floor", counters.expired_capped),
        ("expiry_lag_seconds", "Age of the oldest expired entry", counters.expired_oldest_s),
    ):
        yield GaugeMetricFamily(f"queen_kv_{name}", text, value=float(value))


def _outcome(result: KvResult) -> str:
    if result.operation.op == "get":
        return "found" if result.entry else "missing"
    if result.operation.op in READS:
        return "truncated" if result.truncated else "read"
    return "applied" if result.applied else result.reason or "unknown"
