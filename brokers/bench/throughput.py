"""Scenarios of throughput: push, pop and acknowledge, end to end, and latency.

Each HTTP figure of push and of pop + ack stands beside its direct twins: as many
connections as there were clients, and one connection that carries them all in each call.

Imports instrument, rows. Used by scenarios.py.
"""

from typing import Any

from brokers.bench.crew import Outcome
from brokers.bench.instrument import Instrument, per_message_us
from brokers.bench.rows import Row

PARTITIONS = 64
LATENCY_RATE = 50.0
COMMITS = 100
LATENCY_SECONDS_MIN = 5.0
# End to end, producers may be ahead by so many batches of 100: a pipe that is full, not a backlog.
LEAD_BATCHES = 40
# Enough that a quick broker does not run dry within the window.
SINGLES_PER_SECOND = 6_000
BATCHES_PER_SECOND = 60_000


def push(bench: Instrument, name: str, *, batch: int, producers: int) -> Row:
    row = Row(name=name, what=f"push batch {batch}, {producers} producers")
    queue = bench.queue(name)
    partitions = max(PARTITIONS, producers)
    role = {"role": "producer", "queue": queue, "count": producers}
    outcome = bench.run(bench.http_job({**role, "batch": batch, "partitions": partitions}))
    bench.fill(row, outcome, "producer")
    _twins(bench, row, "push", queue, producers, partitions=partitions, batch=batch)
    return row


def pop(bench: Instrument, name: str, *, batch: int, consumers: int) -> Row:
    row = Row(name=name, what=f"pop + ack batch {batch}, {consumers} consumers")
    queue = bench.queue(name)
    per_second = SINGLES_PER_SECOND if batch == 1 else BATCHES_PER_SECOND
    total = int(per_second * (bench.options.seconds + bench.options.warmup_s))
    bench.seed(queue, partitions=PARTITIONS, total=total, run=batch)
    outcome = bench.run(consume(bench, queue, batch=batch, consumers=consumers))
    bench.fill(row, outcome, "consumer")
    _twins(bench, row, "pop", queue, consumers, partitions=PARTITIONS, batch=batch)
    return row


def consume(
    bench: Instrument,
    queue: str,
    *,
    batch: int,
    consumers: int,
    claims: int = 1,
    group: str | None = None,
) -> dict[str, Any]:
    """The job of consumers; of a new group, which reads the queue from its first message."""
    return bench.http_job(
        {
            "role": "consumer",
            "queue": queue,
            "count": consumers,
            "batch": batch,
            "claims": claims,
            "group": group or bench.group(),
        }
    )


def _twins(
    bench: Instrument,
    row: Row,
    verb: str,
    queue: str,
    clients: int,
    *,
    partitions: int,
    batch: int,
) -> None:
    if not bench.options.with_direct:
        return

    def run(connections: int, groups: int) -> Outcome:
        return bench.direct(
            verb,
            queue,
            clients=connections,
            groups=groups,
            partitions=partitions,
            batch=batch,
            group=bench.group(),
        )

    outcome = run(clients, 1)
    row.direct = outcome.rate(verb)
    row.direct_postgres_us = per_message_us(outcome, outcome.roles[verb]["messages"])[1]
    if outcome.roles[verb]["ran_dry"]:
        row.notes.append("direct ran dry")
    if clients > 1:
        outcome = run(1, clients)
        row.combined = outcome.rate(verb)
        if outcome.roles[verb]["ran_dry"]:
            row.notes.append("combined ran dry")


def end_to_end_batches(bench: Instrument, name: str) -> Row:
    """Producers and consumers at once; producers wait when they are a full pipe ahead."""
    batch, clients = 100, 8
    row = Row(name=name, what=f"push + pop + ack batch {batch}, {clients} + {clients}")
    queue = bench.queue(name)
    job = consume(bench, queue, batch=batch, consumers=clients)
    role = {"role": "producer", "queue": queue, "count": clients, "batch": batch}
    producers = bench.http_job({**role, "partitions": PARTITIONS})["roles"]
    job = {**job, "roles": [*producers, *job["roles"]], "lead": LEAD_BATCHES * batch}
    outcome = bench.run(job)
    bench.fill(row, outcome, "consumer")
    row.figures["pushed_rate"] = outcome.rate("producer")
    return row


def end_to_end_singles(bench: Instrument, name: str) -> Row:
    """Nobody waits for anybody: do the consumers keep up?"""
    clients = 64
    row = Row(name=name, what=f"push + pop + ack batch 1, {clients} + {clients}, free running")
    queue = bench.queue(name)
    role = {"role": "producer", "queue": queue, "count": clients, "batch": 1}
    outcome = bench.run(
        bench.http_job({**role, "partitions": clients}),
        consume(bench, queue, batch=1, consumers=clients),
    )
    bench.fill(row, outcome, "consumer")
    pushed, acked = (outcome.roles[one]["messages_in_all"] for one in ("producer", "consumer"))
    pushed_rate = outcome.rate("producer")
    row.figures |= {"pushed_rate": pushed_rate, "backlog_at_end": pushed - acked}
    share = row.rate / pushed_rate if row.rate and pushed_rate else 0.0
    row.figures["consumed_share"] = share
    row.notes.append(
        f"pushed {pushed_rate:,.0f}/s, consumed {share:.0%} of it, backlog {pushed - acked:,}"
    )
    return row


def latency(bench: Instrument, name: str) -> Row:
    """From the send of a push to the arrival of its message at a parked consumer."""
    row = Row(name=name, what=f"push -> parked consumer at {LATENCY_RATE:.0f} msg/s")
    queue = bench.queue(name)
    role = {"role": "paced", "queue": queue, "count": 1, "rate": LATENCY_RATE}
    consumer = consume(bench, queue, batch=1, consumers=1)
    consumer["roles"][0]["stamped"] = True
    outcome = bench.run(
        bench.http_job(role), consumer, seconds=max(LATENCY_SECONDS_MIN, bench.options.seconds)
    )
    bench.fill(row, outcome, "consumer")
    arrivals = sorted(outcome.latencies_us)
    if not arrivals:
        row.errors.append("nothing arrived")
        return row
    row.p50_ms = arrivals[len(arrivals) // 2] / 1000
    row.p99_ms = arrivals[min(len(arrivals) - 1, int(len(arrivals) * 0.99))] / 1000
    row.figures["latency_max_ms"] = arrivals[-1] / 1000
    push_p50 = outcome.quantile_ms("paced", 0.5)
    row.notes.append(f"{len(arrivals)} messages, worst {arrivals[-1] / 1000:.1f} ms")
    if push_p50 is not None:
        commit_p50 = bench.database.commit_p50_ms(COMMITS)
        row.figures |= {"push_p50_ms": push_p50, "commit_p50_ms": commit_p50}
        row.figures["push_above_commit_ms"] = push_p50 - commit_p50
        row.notes.append(f"push itself p50 {push_p50:.1f} ms, a bare commit {commit_p50:.1f} ms")
    return row
