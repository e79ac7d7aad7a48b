"""One exposition made of those of several workers.

A scrape reaches any of the workers. Counters and histograms are added up; a gauge gets a
label `worker`, unless its sum is what one wants to know, or unless it tells of something
that all workers see alike (the database, the disk) and perhaps not all of them at once.

Imports nothing of ours. Used by flow/siblings.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

Value = tuple[str, tuple[tuple[str, str], ...]]

SUMMED_GAUGES = frozenset(
    {
        "queen_parked_long_polls",
        "queen_admission_budget",
        "queen_admission_inflight",
        "queen_admission_waiting",
        "queen_admission_cap",
        "queen_admission_trains_per_s",
        "queen_db_pool_size",
        "queen_db_pool_idle",
        "queen_db_pool_active",
        "queen_kv_pool",
        "queen_file_buffer_pending",
        "queen_file_buffer_failed",
        "queen_file_buffer_failed_files",
        "queen_file_buffer_failed_events",
        "queen_file_buffer_bytes",
    }
)
GREATEST_GAUGES = frozenset(
    {
        "python_info",
        "queen_admission_oldest_wait_seconds",
        "queen_file_buffer_oldest_age_seconds",
        "queen_maintenance_mode_enabled",
        "queen_pop_maintenance_mode_enabled",
        "queen_kv_expired_not_pruned",
        "queen_kv_expired_not_pruned_capped",
        "queen_kv_expiry_lag_seconds",
        "queen_timers_due",
        "queen_timers_due_capped",
        "queen_timers_oldest_late_seconds",
    }
)
LEAST_GAUGES = frozenset({"queen_file_buffer_free_bytes"})
# Of the database, or of the parent's mesh node, whoever tells it: to add them up would count
# everything again.
SHARED = ("queen_cluster_", "queen_queue_", "queen_dlq_", "queen_mesh_")
CREATED = "_created"


def packed(families: Iterable[Metric]) -> list[Any]:
    """Families as JSON takes them."""
    return [
        [one.name, one.documentation, one.type, [[s.name, s.labels, s.value] for s in one.samples]]
        for one in families
    ]


def unpacked(document: Iterable[Any]) -> list[Metric]:
    """Raises ValueError, TypeError, KeyError on what `packed` has not made."""
    families = []
    for name, text, kind, samples in document:
        family = Metric(name, text, kind)
        for sample, labels, value in samples:
            family.add_sample(sample, labels, float(value))
        families.append(family)
    return families


def merged(reports: Mapping[int, Iterable[Metric]]) -> Iterator[Metric]:
    """`reports`: the families of each worker, by its number."""
    by_name: dict[str, list[tuple[int, Metric]]] = {}
    for worker in sorted(reports):
        for family in reports[worker]:
            by_name.setdefault(family.name, []).append((worker, family))
    for parts in by_name.values():
        yield _merge(parts)


def workers(answering: int, missing: int) -> Metric:
    family = GaugeMetricFamily(
        "queen_workers",
        "Workers of this broker, by whether they are in these figures",
        labels=["state"],
    )
    family.add_metric(["answering"], answering)
    family.add_metric(["missing"], missing)
    return family


def _merge(parts: list[tuple[int, Metric]]) -> Metric:
    first = parts[0][1]
    family = Metric(first.name, first.documentation, first.type)
    fold = _fold(first)
    if fold is None:
        for worker, part in parts:
            for sample in part.samples:
                labels = {**sample.labels, "worker": str(worker)}
                family.add_sample(sample.name, labels, sample.value)
        return family
    values: dict[Value, float] = {}
    for _, part in parts:
        for sample in part.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            by = min if sample.name.endswith(CREATED) else fold
            values[key] = by(values[key], sample.value) if key in values else sample.value
    for (name, labelled), value in values.items():
        family.add_sample(name, dict(labelled), value)
    return family


def _fold(family: Metric) -> Callable[[float, float], float] | None:
    """How two workers' values of one sample become one; None: they stay apart."""
    if family.name.startswith(SHARED) or family.name in GREATEST_GAUGES:
        return max
    if family.name in LEAST_GAUGES:
        return min
    if family.type in ("counter", "histogram", "summary") or family.name in SUMMED_GAUGES:
        return _add
    return None


def _add(one: float, other: float) -> float:
    return one + other
