"""The instrument: one broker, its database, and runs of load against either.

Scenarios say what to load; this knows how. It names queues so that runs never meet, and
deletes what it made.

Imports crew, database, machine, target, rows. Used by scenarios and the bench command.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from brokers.bench import crew, machine, payloads
from brokers.bench.crew import BenchError, Crew, Outcome
from brokers.bench.database import Database
from brokers.bench.rows import Row
from brokers.bench.target import Target

UNMEASURED_S_MAX = 900.0
SEED_CLIENTS = 4
# Segments of single messages come from one client: several would be combined.
SEED_CLIENTS_OF_SINGLES = 1
DRAIN_CLIENTS = 4
DRAIN_BATCH = 1000
DRAIN_WAIT_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`seconds` is the measured window of each run, after a warm-up."""

    seconds: float = 5.0
    warmup_s: float = 0.5
    payload_bytes: int = payloads.PAYLOAD_BYTES
    quick: bool = False
    with_direct: bool = True


class Instrument:
    def __init__(
        self, target: Target, database: Database, options: Options, say: Callable[[str], None]
    ) -> None:
        self.target = target
        self.database = database
        self.options = options
        self.say = say
        self._run = uuid.uuid4().hex[:8]
        self._queues: list[str] = []
        self._groups = 0
        self._clock = machine.CpuClock(target.pid, database.postmaster_pid())

    def queue(self, name: str, **options: Any) -> str:
        """A queue of this run's own, made now."""
        queue = f"bench-{self._run}-{name}-{len(self._queues)}"
        self._queues.append(queue)
        self.target.configure(queue, leaseTime=60, **options)
        return queue

    def group(self) -> str:
        """A consumer group that nobody has used: it reads a queue from its first message."""
        self._groups += 1
        return f"group-{self._groups}"

    def check_database(self) -> None:
        """The direct twin must load the broker's own database, else the ratios mean nothing."""
        if not self.database.has_queue(self.queue("check")):
            raise BenchError(
                "the configuration leads to another database than the broker's: give the bench"
                " the broker's environment (PG_HOST, PG_DATABASE, QUEEN_DATA_DIR, ...)"
            )

    def clean_up(self) -> None:
        """Delete every queue of this run; their rows are reclaimed behind it."""
        for queue in self._queues:
            try:
                deleted = self.target.delete(queue)
            except OSError:
                deleted = False
            if not deleted:
                self.say(f"could not delete {queue}")
        self._queues.clear()

    def cpu(self) -> machine.CpuUse:
        """What broker and PostgreSQL have used so far."""
        return self._clock.read()

    def http_job(self, *roles: dict[str, Any], **rest: Any) -> dict[str, Any]:
        size = {"payload_bytes": self.options.payload_bytes}
        return {
            "kind": "http",
            "host": self.target.host,
            "port": self.target.port,
            "roles": [{**size, **role} for role in roles],
            **rest,
        }

    def run(self, *jobs: dict[str, Any], seconds: float | None = None) -> Outcome:
        return crew.run(
            jobs,
            warmup_s=self.options.warmup_s,
            seconds=seconds or self.options.seconds,
            clock=self._clock,
        )

    def direct(self, verb: str, queue: str, *, clients: int, groups: int, **rest: Any) -> Outcome:
        """`clients` connections whose calls carry `groups` partitions each."""
        job = {
            "kind": "direct",
            "postgres": asdict(self.database.config),
            "verb": verb,
            "queue": queue,
            "clients": clients,
            "groups": groups,
            "payload_bytes": self.options.payload_bytes,
            **rest,
        }
        return self.run(job)

    def seed(self, queue: str, *, partitions: int, total: int, run: int) -> None:
        """Fill a queue; `run` messages a segment."""
        role = {
            "role": "seeder",
            "queue": queue,
            "partitions": partitions,
            "total": total,
            "run": run,
            "count": SEED_CLIENTS if run > 1 else SEED_CLIENTS_OF_SINGLES,
        }
        self._until_done("seeding", self.http_job(role, progress=True), total)

    def drain(self, queue: str, group: str, *, total: int) -> float:
        """Pop and acknowledge everything in large pops; messages a second."""
        role = {"role": "consumer", "queue": queue, "group": group, "count": DRAIN_CLIENTS}
        role |= {"batch": DRAIN_BATCH, "claims": DRAIN_BATCH, "wait_ms": DRAIN_WAIT_MS}
        job = self.http_job(role, progress=True, consumed_max=total)
        return self._until_done("draining", job, total)

    def _until_done(self, what: str, job: dict[str, Any], total: int) -> float:
        """Run one unmeasured job until its messages are through."""
        began = time.monotonic()
        with Crew([job]) as workers:
            workers.go(warmup_s=0.0, seconds=UNMEASURED_S_MAX)
            [heard] = workers.results(
                UNMEASURED_S_MAX + 10, lambda count: self.say(f"{what}: {count:,} of {total:,}")
            )
        [result] = heard["result"].values()
        if result["errors"] or result["messages_in_all"] < total:
            raise BenchError(f"{what}: {result['messages_in_all']}: {result['first_error']}")
        return total / (time.monotonic() - began)

    def fill(self, row: Row, outcome: Outcome, role: str) -> Row:
        """Put what a run over HTTP has shown into a row."""
        row.rate = outcome.rate(role)
        row.p50_ms = outcome.quantile_ms(role, 0.50)
        row.p99_ms = outcome.quantile_ms(role, 0.99)
        row.others_share = outcome.others_share
        row.errors += outcome.errors()
        if outcome.roles[role]["ran_dry"]:
            row.notes.append("ran dry")
        messages = outcome.roles[role]["messages"]
        row.broker_us, row.postgres_us = per_message_us(outcome, messages)
        row.generator_us = outcome.generator_s * 1e6 / messages if messages else None
        return row


def per_message_us(outcome: Outcome, messages: int) -> tuple[float | None, float | None]:
    """CPU of the broker and of PostgreSQL; the window's whole, as both idle outside of it."""
    cpu = outcome.cpu
    if cpu is None or not messages:
        return None, None
    return (
        None if cpu.broker_s is None else cpu.broker_s * 1e6 / messages,
        None if cpu.postgres_s is None else cpu.postgres_s * 1e6 / messages,
    )
