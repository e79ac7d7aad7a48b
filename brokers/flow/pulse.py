"""The pulse: what this process has done since its start and how it is, in one short record.

It is taken while somebody watches, every second or two, so it asks nothing that waits: counters,
gauges, the state of the spool. Rates are made of two pulses by whoever compares them.

Imports domain, metrics. Used by flow/siblings.py and live/.
"""

import resource
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from brokers import metrics
from brokers.domain import SpoolStatus

if TYPE_CHECKING:
    from brokers.runtime import Broker

# Attributes of metrics.Counters.
COUNTERS = (
    "push_messages",
    "pop_messages",
    "acks_succeeded",
    "acks_failed",
    "dead_letters",
    "pop_empty",
    "transactions",
    "push_requests",
    "pop_requests",
    "ack_requests",
)
PARKED_QUEUES_MAX = 20


class Pulse(NamedTuple):
    """`counters` are in the order of COUNTERS. `parked_queues`: those at which most pops wait.

    `loop_lag_max_ms` is the worst since the history was last written. `admission`: write
    transactions in flight, those that wait for a slot, the budget.
    """

    worker: int
    server_id: str
    counters: list[int]
    parked: int
    parked_queues: list[tuple[str, int]]
    up_s: float
    cpu_s: float
    rss_bytes: int
    loop_lag_max_ms: float
    pool: dict[str, int]
    admission: list[int]
    database_up: bool
    spool: SpoolStatus


def take(broker: "Broker") -> Pulse:
    counters, admission = broker.counters, broker.admission
    parked = broker.gates.parked()
    used = resource.getrusage(resource.RUSAGE_SELF)
    lines = admission.lines.values()
    return Pulse(
        worker=broker.config.server.worker,
        server_id=broker.config.server.server_id,
        counters=[getattr(counters, name) for name in COUNTERS],
        parked=sum(parked.values()),
        parked_queues=sorted(parked.items(), key=lambda one: (-one[1], one[0]))[:PARKED_QUEUES_MAX],
        up_s=time.monotonic() - counters.started,
        cpu_s=used.ru_utime + used.ru_stime,
        rss_bytes=metrics.resident_bytes(),
        loop_lag_max_ms=broker.history.loop_lag_max_ms,
        pool=broker.store.stats(),
        admission=[admission.taken, sum(len(line.waiters) for line in lines), admission.budget],
        database_up=broker.ready,
        spool=SpoolStatus(healthy=broker.ready) if broker.spool is None else broker.spool.status(),
    )


def read(document: Sequence[Any]) -> Pulse:
    """One that was told as JSON. Raises TypeError or ValueError when it is none."""
    pulse = Pulse(*document)
    return pulse._replace(
        spool=SpoolStatus(*pulse.spool),
        parked_queues=[(str(queue), int(count)) for queue, count in pulse.parked_queues],
    )
