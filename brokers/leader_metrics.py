"""What this broker did as the leader of a task.

Each broker shows its own share: the sum over brokers is what the cell did.

Imports nothing of ours. Used by runtime.py, services/ and metrics.py.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

RULES = ("retention", "completed", "eviction")


class LeaderMetrics:
    def __init__(self) -> None:
        self.cycles: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.fenced: Counter[str] = Counter()
        self.cycle_ms: dict[str, float] = {}
        self.deleted_messages: Counter[str] = Counter(dict.fromkeys(RULES, 0))
        self.deleted_segments = 0
        self.deleted_bytes = 0
        self.removed_partitions = 0
        self.blocked = 0
        self.busy = 0

    def knows(self, task: str) -> None:
        """Shown from the start, with zeros."""
        for counts in (self.cycles, self.failures, self.fenced):
            counts[task] += 0
        self.cycle_ms.setdefault(task, 0.0)

    def collect(self) -> Iterator[Metric]:
        for name, text, counts in (
            ("cycles", "Cycles that this broker led", self.cycles),
            ("failures", "Cycles that ended in an error", self.failures),
            ("fenced", "Cycles that ended because the lease was lost", self.fenced),
        ):
            yield _counters(f"queen_leader_{name}", text, "task", counts)
        took = GaugeMetricFamily(
            "queen_leader_cycle_milliseconds", "Length of the last cycle here", labels=["task"]
        )
        for task, value in self.cycle_ms.items():
            took.add_metric([task], value)
        yield took
        yield _counters(
            "queen_retention_messages",
            "Messages that retention deleted, by rule",
            "rule",
            self.deleted_messages,
        )
        for name, text, value in (
            ("segments", "Segments that retention deleted", self.deleted_segments),
            ("bytes", "Bytes of the frames that retention deleted", self.deleted_bytes),
            ("partitions", "Partitions removed because long empty", self.removed_partitions),
            ("blocked", "Looks at messages that a group has yet to consume", self.blocked),
            ("busy", "Steps given up because the partition was held", self.busy),
        ):
            yield CounterMetricFamily(f"queen_retention_{name}", text, value=float(value))


def _counters(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, count in counts.items():
        family.add_metric([key], count)
    return family
