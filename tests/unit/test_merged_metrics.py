"""What several workers count becomes one exposition that means the same.

Method: families made by hand, merged, and written down as a scrape sees them.
"""

import json

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from brokers import merged_metrics


class Given(Collector):
    def __init__(self, families):
        self._families = families

    def collect(self):
        return iter(self._families)


def written(*by_worker: list[Metric]) -> list[str]:
    merged = list(merged_metrics.merged(dict(enumerate(by_worker))))
    return [
        line for line in generate_latest(Given(merged)).decode().splitlines() if line[:1] != "#"
    ]


def counter(value: float, *labels: str) -> Metric:
    family = CounterMetricFamily("calls", "Calls", labels=["op"])
    for label in labels:
        family.add_metric([label], value)
    return family


def gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, "A gauge", value=value)


def test_counters_are_added_label_by_label():
    lines = written([counter(2, "push", "pop")], [counter(3, "push", "ack")])
    assert lines == [
        'calls_total{op="push"} 5.0',
        'calls_total{op="pop"} 2.0',
        'calls_total{op="ack"} 3.0',
    ]


def test_histograms_are_added_and_their_beginning_is_the_earliest():
    registries = []
    for values in ([0.1, 3.0], [0.1]):
        registry = CollectorRegistry()
        histogram = Histogram("took", "Seconds", registry=registry, buckets=(1, 2))
        for value in values:
            histogram.observe(value)
        Counter("made", "Things", registry=registry).inc(len(values))
        registries.append(list(registry.collect()))
    lines = dict(line.rsplit(" ", 1) for line in written(*registries))
    assert lines['took_bucket{le="1.0"}'] == "2.0"
    assert lines['took_bucket{le="+Inf"}'] == "3.0"
    assert (lines["took_count"], lines["made_total"]) == ("3.0", "3.0")
    created = [
        s.value
        for families in registries
        for f in families
        for s in f.samples
        if s.name == "took_created"
    ]
    assert float(lines["took_created"]) == min(created)


def test_a_gauge_keeps_apart_whose_it_is():
    lines = written([gauge("queen_uptime_seconds", 5)], [gauge("queen_uptime_seconds", 7)])
    assert lines == [
        'queen_uptime_seconds{worker="0"} 5.0',
        'queen_uptime_seconds{worker="1"} 7.0',
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("queen_file_buffer_pending", 5),
        ("queen_db_pool_size", 5),
        ("queen_timers_due", 3),
        ("queen_maintenance_mode_enabled", 3),
        ("queen_file_buffer_free_bytes", 2),
        ("queen_queue_parked_consumers", 3),
        ("queen_dlq_depth", 3),
    ],
)
def test_a_gauge_of_all_together_is_one_number(name: str, expected: float):
    assert written([gauge(name, 2)], [gauge(name, 3)]) == [f"{name} {float(expected)}"]


@pytest.mark.parametrize("name", ["queen_cluster_push_messages", "queen_mesh_messages_sent"])
def test_counters_that_all_workers_share_are_not_counted_once_a_worker(name: str):
    family = CounterMetricFamily(name, "Shared", value=9)
    assert written([family], [family]) == [f"{name}_total 9.0"]


def test_families_pass_between_processes_as_they_are():
    families = [counter(2, "push"), gauge("lag", float("nan")), gauge("far", float("inf"))]
    passed = merged_metrics.unpacked(json.loads(json.dumps(merged_metrics.packed(families))))
    assert generate_latest(Given(passed)) == generate_latest(Given(families))


@pytest.mark.parametrize("document", [[["name"]], [["n", "t", "gauge", [["n", {}, None]]]], 7])
def test_what_is_no_report_is_an_error(document: object):
    with pytest.raises((ValueError, TypeError)):
        merged_metrics.unpacked(document)
