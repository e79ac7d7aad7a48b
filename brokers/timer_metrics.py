"""What this broker counts of timers and of its sweeper.

Fire lag is kept as the last few hundred lags of each tenant, for a bounded number of
tenants; beyond them a tenant is counted and not measured.

Imports nothing of ours. Used by runtime.py, services/ and metrics.py.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

TENANTS_MAX = 1024
LAGS_KEPT = 512
QUANTILES = ("0.5", "0.99")


class TimerMetrics:
    def __init__(self) -> None:
        self.fired: Counter[str] = Counter(
            delivered=0, short=0, transient=0, permanent=0, dead_letter=0, unknown=0
        )
        self.fire_failures: Counter[str] = Counter()
        self.poisoned = 0
        self.dead_letters = 0
        self.schedule_rejected = 0
        self.due = 0
        self.due_capped = False
        self.oldest_late_s = 0.0
        self.cycle_ms = 0.0
        self.sleep_ms = 0.0
        self.rows: Counter[str] = Counter(claimed=0, fired=0)
        self.phases_skipped: Counter[str] = Counter(fire=0)
        self.skip_locked = 0
        self.tenants_dropped = 0
        self._lags: dict[str, deque[float]] = {}

    def lags(self, tenant: str, seconds: Iterable[float]) -> None:
        kept = self._lags.get(tenant)
        if kept is None:
            if len(self._lags) >= TENANTS_MAX:
                self.tenants_dropped += 1
                return
            kept = self._lags[tenant] = deque(maxlen=LAGS_KEPT)
        kept.extend(seconds)

    def collect(self) -> Iterator[Metric]:
        yield _gauge("queen_timers_due", "Timers due now, up to a cap", self.due)
        yield _gauge("queen_timers_due_capped", "1 when the number is a floor", self.due_capped)
        yield _gauge(
            "queen_timers_oldest_late_seconds", "Lateness of the oldest due", self.oldest_late_s
        )
        lag = GaugeMetricFamily(
            "queen_timers_fire_lag_seconds",
            "Lateness of fired timers",
            labels=["tenant", "quantile"],
        )
        for tenant, kept in self._lags.items():
            ordered = sorted(kept) or [0.0]
            for quantile in QUANTILES:
                position = min(int(float(quantile) * len(ordered)), len(ordered) - 1)
                lag.add_metric([tenant, quantile], ordered[position])
        yield lag
        yield _counter(
            "queen_timers_fire_lag_tenants_dropped", "Tenants too many", self.tenants_dropped
        )
        yield _labelled(
            "queen_timers_fired", "Timers by what became of them", "outcome", self.fired
        )
        yield _labelled(
            "queen_timers_fire_failures",
            "Failed fires by SQLSTATE class",
            "class",
            self.fire_failures,
        )
        yield _counter("queen_timers_poisoned", "Timers charged an attempt", self.poisoned)
        yield _counter("queen_timers_dlq", "Timers dead-lettered", self.dead_letters)
        yield _counter(
            "queen_timers_schedule_rejected", "Schedules refused", self.schedule_rejected
        )
        yield _gauge("queen_sweeper_cycle_milliseconds", "The last cycle", self.cycle_ms)
        yield _gauge("queen_sweeper_sleep_milliseconds", "The last sleep", self.sleep_ms)
        yield _labelled("queen_sweeper_rows", "Rows by what was done to them", "phase", self.rows)
        yield _labelled(
            "queen_sweeper_phase_skipped", "Phases left out", "phase", self.phases_skipped
        )
        yield _counter(
            "queen_sweeper_skip_locked", "Claims that found all due rows taken", self.skip_locked
        )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def _labelled(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
