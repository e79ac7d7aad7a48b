"""What a broker shows of its disk spool and of maintenance.

The first three names and that of push maintenance are the contract's, where `failed` counts
spool writes that failed. What was set aside in `failed/` is counted under names of ours, for
it is data that waits for somebody.

Imports domain. Used by metrics.py.
"""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from brokers.domain import SpoolStatus


def families(spool: SpoolStatus | None, *, ready: bool) -> Iterator[Metric]:
    """`spool` None: a process without one, which has no disk to tell of."""
    status = SpoolStatus(healthy=ready) if spool is None else spool
    for name, text, value in (
        ("pending", "Spooled messages that are not yet in the database", status.pending),
        ("failed", "Spool writes that failed since the start", status.failed),
        ("db_healthy", "1 while the drain believes that the database answers", status.healthy),
        ("failed_files", "Files that were set aside", status.failed_files),
        ("failed_events", "Messages that were set aside", status.failed_events),
        ("oldest_age_seconds", "Age of the oldest spooled message", status.oldest_age_s),
        ("bytes", "Bytes of the spool on disk", status.total_bytes),
    ):
        yield _gauge(f"queen_file_buffer_{name}", text, value)
    if spool is not None:
        yield _gauge("queen_file_buffer_free_bytes", "Free space for the spool", spool.free_bytes)


def modes(*, push_maintenance: bool, pop_maintenance: bool) -> Iterator[Metric]:
    yield _gauge("queen_maintenance_mode_enabled", "1 in push maintenance", push_maintenance)
    yield _gauge("queen_pop_maintenance_mode_enabled", "1 in pop maintenance", pop_maintenance)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))
