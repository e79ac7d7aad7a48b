"""What all workers of a broker have to say together, whichever of them was asked.

A broker in one process is the only worker that it has; then nothing is asked or added.

Imports domain, flow/siblings, merged_metrics, services/maintenance. Called by api/hot.py and
api/hot_system.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from brokers import merged_metrics
from brokers.domain import SpoolStatus
from brokers.flow.siblings import WorkerReport
from brokers.services import maintenance

if TYPE_CHECKING:
    from brokers.runtime import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Spools:
    """The disk spools of all workers as one, and of each; None for a worker that is missing.

    With a worker missing it is not known what waits on its disk: `total` is not healthy then.
    """

    total: SpoolStatus
    by_worker: Mapping[int, SpoolStatus | None]


class Merged(Collector):
    """What several workers count, as one registry to be written down."""

    def __init__(self, reports: Sequence[WorkerReport], missing: Sequence[int]) -> None:
        self._reports = reports
        self._missing = missing

    def collect(self) -> Iterator[Metric]:
        yield from merged_metrics.merged({one.worker: one.families for one in self._reports})
        yield merged_metrics.workers(len(self._reports), len(self._missing))


async def registry(broker: "Broker") -> Collector:
    if broker.siblings is None:
        return REGISTRY
    return Merged(*await broker.siblings.ask())


async def spools(broker: "Broker") -> Spools:
    if broker.siblings is None:
        own = maintenance.spool_status(broker)
        return Spools(total=own, by_worker={0: own})
    reports, missing = await broker.siblings.ask()
    by_worker: dict[int, SpoolStatus | None] = {one.worker: one.spool for one in reports}
    by_worker |= dict.fromkeys(missing)
    return Spools(total=_total([one.spool for one in reports], missing), by_worker=by_worker)


def _total(spools: Sequence[SpoolStatus], missing: Sequence[int]) -> SpoolStatus:
    return SpoolStatus(
        pending=sum(one.pending for one in spools),
        failed=sum(one.failed for one in spools),
        files=sum(one.files for one in spools),
        bytes=sum(one.bytes for one in spools),
        total_bytes=sum(one.total_bytes for one in spools),
        failed_files=sum(one.failed_files for one in spools),
        failed_events=sum(one.failed_events for one in spools),
        failed_bytes=sum(one.failed_bytes for one in spools),
        oldest_age_s=max(one.oldest_age_s for one in spools),
        free_bytes=min(one.free_bytes for one in spools),
        healthy=not missing and all(one.healthy for one in spools),
    )
