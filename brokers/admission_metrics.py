"""Admission as prometheus_client sees it: the lanes, the budget, and what it is steered by.

Imports flow by type only. Used by metrics.py.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from brokers.flow.admission import Admission
    from brokers.flow.traffic import Traffic


def families(admission: "Admission", traffic: "Traffic") -> Iterator[Metric]:
    regulation, giving_way = traffic.regulation, traffic.giving_way
    lines = admission.lines.values()
    now = admission.clock()
    for name, text, values in (
        ("inflight", "Write transactions in flight", [line.in_flight for line in lines]),
        ("waiting", "Those who wait for a slot", [len(line.waiters) for line in lines]),
        ("cap", "Slots that a lane may have at most", [line.cap for line in lines]),
        (
            "oldest_wait_seconds",
            "For how long the first in line has waited",
            [line.oldest_wait_s(now) for line in lines],
        ),
    ):
        family = GaugeMetricFamily(f"queen_admission_{name}", text, labels=["lane"])
        for line, value in zip(lines, values, strict=True):
            family.add_metric([line.kind], value)
        yield family
    for name, text, counts in (
        ("granted", "Slots that were taken", [line.granted for line in lines]),
        ("queued", "Slots that had to be waited for", [line.queued for line in lines]),
    ):
        counter = CounterMetricFamily(f"queen_admission_{name}", text, labels=["lane"])
        for line, count in zip(lines, counts, strict=True):
            counter.add_metric([line.kind], count)
        yield counter
    for name, text, value in (
        ("budget", "Write transactions that may be in flight", admission.budget),
        ("trains_per_s", "Flushes of the log that our commits rode in", regulation.trains_per_s),
        ("txn_per_train", "Our commits in each", regulation.commits_per_train),
        ("cycle_ms", "Time from one to the next; 0 until seen", 1000 * (regulation.cycle_s or 0)),
        ("nosync", "1 when commit waits are too short to see", regulation.pinned),
    ):
        yield GaugeMetricFamily(f"queen_admission_{name}", text, value=float(value))
    yield CounterMetricFamily(
        "queen_admission_gave_way", "Push calls that let consumers go first", value=giving_way.held
    )
    yield CounterMetricFamily(
        "queen_admission_gave_way_seconds", "For how long in all", value=giving_way.held_s
    )
