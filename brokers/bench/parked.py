"""Scenario of the long poll: thousands of parked pops, and one push among them.

What it asks: how many claims does one push cause, what do parked pops cost the database
while nothing happens, and how much memory does each take in the broker.

Imports crew, instrument, rows. Used by scenarios.py.
"""

import time
from collections.abc import Callable
from urllib.parse import urlencode

from brokers.bench import wire
from brokers.bench.crew import BenchError, Crew
from brokers.bench.instrument import Instrument
from brokers.bench.payloads import partition_name
from brokers.bench.rows import Row

POPS = 2000
POPS_QUICK = 500
WAIT_MS = 600_000
SEATED_TIMEOUT_S = 120.0
# PostgreSQL's idle backends tell their transactions up to ten seconds late.
SETTLE_S = 12.0
IDLE_S_PER_SECOND = 12  # `--seconds 5` watches for the minute that the goal speaks of
AFTERMATH_S = 1.0
ARRIVAL_TIMEOUT_S = 10.0

PARKED = "queen_parked_long_polls"
MEMORY = "queen_process_resident_memory_bytes"
CLAIMS = "queen_claim_calls_total"
PROBES = "queen_probe_calls_total"
DELIVERED = "queen_process_pop_messages_total"


def parked(bench: Instrument, name: str, *, pops: int | None = None) -> Row:
    pops = pops or (POPS_QUICK if bench.options.quick else POPS)
    row = Row(name=name, what=f"{pops:,} parked pops on one queue, then one push")
    queue, group = bench.queue(name), bench.group()
    _subscribe(bench, queue, group)
    role = {"role": "consumer", "queue": queue, "group": group, "count": pops, "batch": 1}
    job = bench.http_job({**role, "wait_ms": WAIT_MS, "stamped": True})
    before = bench.target.metrics()
    baseline = _database_calls(bench, bench.options.seconds)
    with Crew([job]) as waiters:
        waiters.go(warmup_s=0.0, seconds=WAIT_MS / 1000)
        _until(lambda: bench.target.metrics()[PARKED] >= pops, SEATED_TIMEOUT_S, "pops to park")
        time.sleep(SETTLE_S)
        seated = bench.target.metrics()
        mib = (seated[MEMORY] - before[MEMORY]) / 1024 / 1024
        kib = (seated[MEMORY] - before[MEMORY]) / 1024 / pops
        idle_s = IDLE_S_PER_SECOND * bench.options.seconds
        bench.say(f"{pops} pops are parked; watching them for {idle_s:.0f} s")
        cpu = bench.cpu()
        transactions = _database_calls(bench, idle_s)
        used_s = (bench.cpu() - cpu).broker_s
        idle = bench.target.metrics()
        bench.target.push_one(queue, partition_name(0), {"wake": True})
        _until(
            lambda: bench.target.metrics()[DELIVERED] > idle[DELIVERED],
            ARRIVAL_TIMEOUT_S,
            "the message to be delivered",
        )
        time.sleep(AFTERMATH_S)
        woken = bench.target.metrics()
    calls = sum(idle[one] - seated[one] for one in (CLAIMS, PROBES)) / idle_s
    row.figures = {
        "parked": pops,
        "memory_kib_per_pop": kib,
        "memory_mib": mib,
        "idle_calls_per_s": calls,
        "idle_transactions_per_s": transactions,
        "idle_transactions_per_s_without": baseline,
        "claims_of_one_push": woken[CLAIMS] - idle[CLAIMS],
        "probes_of_one_push": woken[PROBES] - idle[PROBES],
    }
    if used_s is not None:
        row.figures["idle_cpu_share"] = used_s / idle_s
    row.notes += [
        f"one push: {row.figures['claims_of_one_push']:.0f} claim calls,"
        f" {row.figures['probes_of_one_push']:.0f} probe calls within {AFTERMATH_S:.0f} s",
        f"idle: {calls:.2f} claim and probe calls/s; {transactions:.2f} transactions/s of"
        f" everybody, {baseline:.2f} before the pops parked",
        f"memory: {kib:.1f} KiB a parked pop, its connection included",
    ]
    return row


def _subscribe(bench: Instrument, queue: str, group: str) -> None:
    """The group's first contact is not what is measured."""
    query = urlencode({"consumerGroup": group, "batch": 1})
    status, body = bench.target.call("GET", f"{wire.queue_path(queue)}?{query}")
    if status != 204:
        raise BenchError(f"pop: {status} {body[:200]!r}")


def _database_calls(bench: Instrument, seconds: float) -> float:
    """Transactions a second of the whole database while we watch; our own look is not counted."""
    before = bench.database.transactions()
    time.sleep(seconds)
    return max(0.0, bench.database.transactions() - before - 1) / seconds


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise BenchError(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(0.05)
