"""Sweeps: the same load along one dimension, so that a cliff can be seen.

A sweep is a list of points; each is one measured run with its x. Every sweep says what it
varies and what it holds fast; curves.py draws it.

Imports crew, instrument, parked, rows, throughput, volume. Used by curves.py and the bench
command.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from brokers.bench import parked, throughput, volume
from brokers.bench.crew import BenchError
from brokers.bench.instrument import Instrument
from brokers.bench.rows import Row

CLIENTS = 8
PUSH_PARTITIONS = 8
POP_PER_SECOND = 120_000
GROUP_MESSAGES_PER_SECOND = 4_000
KIB = 1024


@dataclass(frozen=True, slots=True)
class Point:
    """One run: `series` names the line it belongs to, `x` where on it."""

    series: str
    x: float
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """`points` measures them one by one, `at` holds the default values of x."""

    title: str
    x_label: str
    y_label: str
    at: tuple[int, ...]
    points: Callable[[Instrument, str, int], Iterator[Point]]
    value: Callable[[Row], float | None] = lambda row: row.rate


def over_partitions(bench: Instrument, name: str, count: int) -> Iterator[Point]:
    one, many = volume.partitions(bench, f"{name}_{count}", count=count)
    yield Point("batch 1", count, one)
    yield Point("batch 100 over 100 partitions", count, many)


def over_backlog(bench: Instrument, name: str, total: int) -> Iterator[Point]:
    queue = bench.queue(f"{name}-{total}")
    bench.seed(queue, partitions=throughput.PARTITIONS, total=total, run=100)
    for batch in (1, 100):
        row = Row(name=f"{name}_{total}_{batch}", what=f"pop + ack batch {batch}")
        job = throughput.consume(bench, queue, batch=batch, consumers=CLIENTS)
        yield Point(f"batch {batch}", total, bench.fill(row, bench.run(job), "consumer"))


def over_batch(bench: Instrument, name: str, batch: int) -> Iterator[Point]:
    queue = bench.queue(f"{name}-{batch}")
    role = {"role": "producer", "queue": queue, "count": CLIENTS, "batch": batch}
    outcome = bench.run(bench.http_job({**role, "partitions": PUSH_PARTITIONS}))
    row = Row(name=f"{name}_{batch}_push", what=f"push, {CLIENTS} producers")
    yield Point("push", batch, bench.fill(row, outcome, "producer"))
    queue = bench.queue(f"{name}-{batch}-pop")
    per_second = min(POP_PER_SECOND, throughput.SINGLES_PER_SECOND * batch)
    total = int(per_second * (bench.options.seconds + bench.options.warmup_s))
    partitions = throughput.PARTITIONS
    bench.seed(queue, partitions=partitions, total=total, run=batch)
    row = Row(name=f"{name}_{batch}_pop", what=f"pop + ack, {CLIENTS} consumers")
    job = throughput.consume(bench, queue, batch=batch, consumers=CLIENTS)
    yield Point("pop + ack", batch, bench.fill(row, bench.run(job), "consumer"))


def over_payload(bench: Instrument, name: str, size: int) -> Iterator[Point]:
    for batch in (1, 10):
        queue = bench.queue(f"{name}-{size}-{batch}")
        role = {"role": "producer", "queue": queue, "count": CLIENTS, "batch": batch}
        role |= {"partitions": PUSH_PARTITIONS, "payload_bytes": size}
        row = Row(name=f"{name}_{size}_{batch}", what=f"push batch {batch}, {CLIENTS} producers")
        bench.fill(row, bench.run(bench.http_job(role)), "producer")
        row.figures["mib_per_s"] = (row.rate or 0) * size / KIB / KIB
        yield Point(f"batch {batch}", size, row)


def over_groups(bench: Instrument, name: str, count: int) -> Iterator[Point]:
    """Every group reads everything; the rate is of all deliveries together."""
    queue = bench.queue(f"{name}-{count}")
    seconds = bench.options.seconds + bench.options.warmup_s
    total = int(GROUP_MESSAGES_PER_SECOND * seconds * max(1, CLIENTS // count))
    bench.seed(queue, partitions=throughput.PARTITIONS, total=total, run=100)
    each = max(1, CLIENTS // count)
    jobs = [
        throughput.consume(bench, queue, batch=100, consumers=each)["roles"] for _ in range(count)
    ]
    job = bench.http_job(*(role for roles in jobs for role in roles))
    row = Row(name=f"{name}_{count}", what=f"pop + ack batch 100, {count} groups")
    yield Point("all groups together", count, bench.fill(row, bench.run(job), "consumer"))


def over_parked(bench: Instrument, name: str, pops: int) -> Iterator[Point]:
    yield Point("parked pops", pops, parked.parked(bench, f"{name}_{pops}", pops=pops))


SWEEPS: dict[str, Sweep] = {
    "partitions": Sweep(
        title="Partitions of a queue",
        x_label="partitions",
        y_label="messages/s popped and acknowledged",
        at=(1, 100, 1000, 10_000, 100_000),
        points=over_partitions,
    ),
    "backlog": Sweep(
        title="Messages that wait",
        x_label="backlog, messages",
        y_label="messages/s popped and acknowledged",
        at=(10_000, 100_000, 1_000_000, 10_000_000),
        points=over_backlog,
    ),
    "batch": Sweep(
        title="Messages of one request",
        x_label="batch",
        y_label="messages/s",
        at=(1, 10, 100, 1000, 10_000),
        points=over_batch,
    ),
    "payload": Sweep(
        title="Size of a payload",
        x_label="payload, bytes",
        y_label="messages/s pushed",
        at=(10, 100, KIB, 10 * KIB, 100 * KIB, KIB * KIB),
        points=over_payload,
    ),
    "groups": Sweep(
        title="Consumer groups of one queue",
        x_label="groups",
        y_label="deliveries/s, all groups together",
        at=(1, 2, 5, 10, 20, 50),
        points=over_groups,
    ),
    "parked": Sweep(
        title="Long polls that wait",
        x_label="parked pops",
        y_label="MiB above an idle broker",
        at=(100, 1000, 10_000),
        points=over_parked,
        value=lambda row: row.figures["memory_mib"],
    ),
}


def chosen(names: Sequence[str]) -> dict[str, Sweep]:
    """All sweeps for no name at all."""
    unknown = [name for name in names if name not in SWEEPS]
    if unknown:
        raise BenchError(f"no sweep {unknown[0]!r}; there are: {', '.join(SWEEPS)}")
    return {name: one for name, one in SWEEPS.items() if not names or name in names}


def measure(bench: Instrument, name: str, sweep: Sweep) -> Iterator[Point]:
    """The points of one sweep, along its x."""
    for x in sweep.at:
        if bench.options.quick and x > sweep.at[len(sweep.at) // 2]:
            return
        bench.say(f"{name}: {sweep.x_label} {x:,}")
        yield from sweep.points(bench, name, x)
