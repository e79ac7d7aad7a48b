"""Scenarios of volume: many partitions, a long backlog, a full dedup window.

Each is the same load twice, without and with the volume; what decides is the one rate
divided by the other (targets.py).

Imports instrument, rows, throughput. Used by scenarios.py.
"""

from brokers.bench.instrument import Instrument
from brokers.bench.rows import Row
from brokers.bench.throughput import PARTITIONS, consume

CONSUMERS = 8
SPREAD = 100_000
SPREAD_OVER_ONE = 20_000
# Of fewer partitions the start of a process is most of the time.
FIRST_TOUCH_MIN = 10_000
BACKLOG = 1_000_000
WINDOW_IDS = 1_000_000


def partitions(bench: Instrument, name: str, *, count: int) -> list[Row]:
    """Pop and acknowledge on a queue of so many partitions, whose cursors exist already.

    The group has passed every partition once before, as it has in a broker that has been up
    for a while; the making of cursors is told apart, as `first_touch_rate`.
    """
    queue, group = bench.queue(name), bench.group()
    bench.seed(queue, partitions=count, total=count, run=1)
    first_touch_rate = bench.drain(queue, group, total=count)
    total = SPREAD if count > 1 else SPREAD_OVER_ONE
    bench.seed(queue, partitions=count, total=max(total, count), run=1 if count > 1 else 10)
    rows = []
    for batch, claims in ((1, 1), (100, 100)):
        what = f"pop + ack batch {batch}, {CONSUMERS} consumers, {count:,} partitions"
        row = Row(name=f"{name}_pop{batch}", what=what)
        job = consume(bench, queue, batch=batch, consumers=CONSUMERS, claims=claims, group=group)
        rows.append(bench.fill(row, bench.run(job), "consumer"))
    if count >= FIRST_TOUCH_MIN:
        rows[0].figures["first_touch_rate"] = first_touch_rate
        rows[0].notes.append(f"cursors were made at {first_touch_rate:,.0f} partitions/s")
    return rows


def backlog(bench: Instrument, name: str) -> list[Row]:
    """Pop and acknowledge with a million messages waiting, and with no more than are taken."""
    rows = []
    seconds = bench.options.seconds + bench.options.warmup_s
    for label, total in (("none", int(80_000 * seconds)), ("full", BACKLOG)):
        queue = bench.queue(f"{name}-{label}")
        bench.seed(queue, partitions=PARTITIONS, total=total, run=100)
        for batch in (1, 100):
            what = f"pop + ack batch {batch}, {CONSUMERS} consumers, {total:,} waiting"
            row = Row(name=f"{name}_{label}_pop{batch}", what=what)
            outcome = bench.run(consume(bench, queue, batch=batch, consumers=CONSUMERS))
            rows.append(bench.fill(row, outcome, "consumer"))
    return rows


def dedup(bench: Instrument, name: str) -> list[Row]:
    """Push before and after the same partitions' window was filled with a million ids."""
    queue = bench.queue(name, dedupWindowSeconds=3600)
    rows = []
    for label in ("empty", "full"):
        if label == "full":
            bench.seed(queue, partitions=PARTITIONS, total=WINDOW_IDS, run=100)
        for batch, producers in ((1, 64), (100, 8)):
            what = f"push batch {batch}, {producers} producers, dedup window {label}"
            row = Row(name=f"{name}_{label}_push{batch}", what=what)
            role = {"role": "producer", "queue": queue, "count": producers, "batch": batch}
            outcome = bench.run(bench.http_job({**role, "partitions": PARTITIONS}))
            rows.append(bench.fill(row, outcome, "producer"))
    return rows
