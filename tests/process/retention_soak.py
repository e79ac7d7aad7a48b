"""Retention keeps up: pushes for a while under a short window, and the tables stop growing.

    python -m tests.process.retention_soak --minutes 30

starts a durable PostgreSQL and a broker of its own and finds the rate that the producers reach
unthrottled. At half that rate it first pushes for some minutes into a queue without any rule, then
for so many minutes into one with `retentionSeconds` 10 and `dedupWindowSeconds` 60, then for some
minutes without a rule again: where others use the machine too, their part is seen. Every ten
seconds it writes down how large the tables are and how many messages are retained.

The verdict is PASS when no push failed, the retained messages never exceed what the window and a
few cycles of retention explain, the segments have stopped growing in the second half, the
transaction index has after its first three slots (of five minutes each, a quarter of an hour), and
the p99 of a push is at most twice that of the slower run without rules. The index goes up and down
with its slots, so its highest stands are compared: it takes a run of twenty minutes to judge it.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import psycopg

from tests.harness import KillablePostgres

PROJECT = Path(__file__).resolve().parents[2]
WINDOW_S = 10
RETENTION_MS = 2000
SAMPLE_S = 10.0
LIMIT = 2.0
SLOT_S = 300
GROWTH = 1.1
SETTINGS = {"QUEEN_TXN_FLOOR_S": "60", "RETENTION_INTERVAL": str(RETENTION_MS)}
forking = multiprocessing.get_context("fork")

SIZES = """
SELECT pg_total_relation_size('queen_segment'),
       (SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits
         WHERE inhparent = 'queen_txn'::regclass),
       pg_total_relation_size('queen_partition'),
       (SELECT coalesce(sum(last_offset - log_start + 1), 0) FROM queen_partition
          JOIN queen_queue queue ON queue.id = queue_id WHERE queue.name = %s)
"""


@dataclass(frozen=True)
class Load:
    port: int
    queue: str
    producers: int
    batch: int
    partitions: int
    seconds: float
    rate: float | None  # messages a second, all producers together; None: as fast as it goes


@dataclass(frozen=True)
class Outcome:
    rate: float
    failed: int
    p50_ms: float
    p99_ms: float
    minutes_ms: tuple[float, ...]  # p99 of each minute


class Stack:
    """A durable PostgreSQL and `manage.py broker` on it."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.postgres = KillablePostgres(directory / "pg", settings=settings or None)
        self.db: psycopg.Connection[Any] = self.postgres.database.connect()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = {
            **os.environ,
            **self.postgres.database.environment,
            "PG_USER": "postgres",
            "QUEEN_DATA_DIR": str(directory / "broker"),
            "QUEEN_BIND_ADDR": "127.0.0.1",
            "PORT": str(self.port),
            **SETTINGS,
        }
        self.log = (directory / "broker.log").open("wb")
        self.broker = subprocess.Popen(
            [sys.executable, "manage.py", "broker"],
            cwd=PROJECT,
            env=environment,
            stdout=self.log,
            stderr=self.log,
        )
        self.until_ready()

    def until_ready(self) -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and self.broker.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2)
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"VERDICT: FAIL the broker did not become ready; see {self.log.name}")

    def configure(self, queue: str, **options: Any) -> None:
        body = json.dumps({"queue": queue, "options": options}).encode()
        url = f"http://127.0.0.1:{self.port}/api/v1/configure"
        urllib.request.urlopen(urllib.request.Request(url, body), timeout=30)

    def sizes(self, queue: str) -> tuple[int, int, int, int]:
        row = self.db.execute(SIZES, [queue]).fetchone()
        assert row is not None
        return tuple(map(int, row))  # type: ignore[return-value]

    def memory_mib(self) -> int:
        """What the broker has resident."""
        pages = Path(f"/proc/{self.broker.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") >> 20

    def checkpoints(self) -> list[str]:
        """What PostgreSQL wrote into its log about them."""
        logs = sorted(self.postgres.data_dir.glob("**/log/*.log"))
        lines = [line for log in logs for line in log.read_text().splitlines()]
        return [line for line in lines if "checkpoint" in line]

    def close(self) -> None:
        self.broker.terminate()
        self.broker.wait(30)
        self.db.close()
        self.postgres.remove()


def produce(
    load: Load,
    number: int,
    failed: "Synchronized[int]",
    slowest: "Synchronized[float]",
    answers: Any,
) -> None:
    """Push on a schedule of its own and note how long each push took, from when it was due."""
    dice = random.Random(f"{load.queue}-{number}")
    connection = http.client.HTTPConnection("127.0.0.1", load.port, timeout=60)
    every_s = None if load.rate is None else load.batch * load.producers / load.rate
    began = time.monotonic()
    due = began + (every_s or 0) * dice.random()
    took: list[tuple[float, float]] = []  # when it was answered, in s since the start, and the ms
    pushed = 0
    while (now := time.monotonic()) < began + load.seconds:
        if every_s is not None:
            if due > now:
                time.sleep(due - now)
            now, due = max(due, time.monotonic() - 60), due + every_s
        partition = f"p{dice.randrange(load.partitions)}"
        body = json.dumps(
            {
                "items": [
                    {"queue": load.queue, "partition": partition, "payload": "x" * 100}
                    for _ in range(load.batch)
                ]
            }
        )
        connection.request("POST", "/api/v1/push", body)
        rows = json.loads(connection.getresponse().read())
        answered = time.monotonic()
        took.append((answered - began, (answered - now) * 1000))
        if took[-1][1] > slowest.value:
            slowest.value = took[-1][1]
        good = sum(row["status"] == "queued" for row in rows)
        pushed += good
        if good < load.batch:
            with failed.get_lock():
                failed.value += load.batch - good
    answers.put((pushed, time.monotonic() - began, took))


def run(load: Load, watch: Any = lambda slowest_ms: None) -> Outcome:
    """All producers to their end; every ten seconds `watch` hears of the slowest push in them."""
    failed = forking.Value("q", 0)
    slowest = forking.Value("d", 0.0)
    answers = forking.Queue()
    workers = [
        forking.Process(target=produce, args=(load, number, failed, slowest, answers), daemon=True)
        for number in range(load.producers)
    ]
    for worker in workers:
        worker.start()
    ends = time.monotonic() + load.seconds
    while (left_s := ends - time.monotonic()) > 0:
        time.sleep(min(left_s, SAMPLE_S))
        watch(slowest.value)
        slowest.value = 0.0
    told = [answers.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    took = sorted(ms for _, _, times in told for _, ms in times)
    minutes: dict[int, list[float]] = {}
    for _, _, times in told:
        for answered_s, ms in times:
            minutes.setdefault(int(min(answered_s, load.seconds - 1) // 60), []).append(ms)
    return Outcome(
        rate=sum(pushed / seconds for pushed, seconds, _ in told),
        failed=failed.value,
        p50_ms=took[len(took) // 2],
        p99_ms=took[len(took) * 99 // 100],
        minutes_ms=tuple(
            round(sorted(times)[len(times) * 99 // 100], 1) for _, times in sorted(minutes.items())
        ),
    )


def tell(slowest_ms: float) -> None:
    print(f"{time.strftime('%H:%M:%S')}          slowest push {slowest_ms:.0f} ms", flush=True)


def soak(stack: Stack, arguments: argparse.Namespace) -> list[str]:
    """The problems that were found; prints what it sees."""
    shape = {
        "port": stack.port,
        "producers": arguments.producers,
        "batch": arguments.batch,
        "partitions": arguments.partitions,
    }
    run(Load(queue="warm", seconds=3, rate=None, **shape))
    top = run(Load(queue="top", seconds=10, rate=None, **shape))
    half = top.rate / 2
    print(f"unthrottled: {top.rate:.0f} messages/s, p99 {top.p99_ms:.1f} ms; half is {half:.0f}/s")

    stack.configure("plain", dedupWindowSeconds=60)
    plain_s = arguments.plain_seconds
    before = run(Load(queue="plain", seconds=plain_s, rate=half, **shape), tell)
    print(f"without rules: {before}", flush=True)

    stack.configure("kept", retentionEnabled=True, retentionSeconds=WINDOW_S, dedupWindowSeconds=60)
    samples: list[tuple[int, int, int, int]] = []

    def watch(slowest_ms: float) -> None:
        samples.append(stack.sizes("kept"))
        segments, transactions, partitions, retained = samples[-1]
        print(
            f"{time.strftime('%H:%M:%S')} {len(samples) * SAMPLE_S:6.0f} s "
            f" segments {segments >> 20} MiB,"
            f" transactions {transactions >> 20} MiB, partitions {partitions >> 10} KiB,"
            f" retained {retained} messages, slowest push {slowest_ms:.0f} ms,"
            f" broker {stack.memory_mib()} MiB",
            flush=True,
        )

    kept = run(Load(queue="kept", seconds=arguments.minutes * 60, rate=half, **shape), watch)
    print(f"with retention: {kept}", flush=True)
    plain = [before]
    if not arguments.once:
        plain.append(run(Load(queue="plain", seconds=plain_s, rate=half, **shape), tell))
        print(f"without rules: {plain[-1]}")
    print(*stack.checkpoints(), sep="\n")
    return judge(plain, kept, samples)


def judge(
    plain: list[Outcome], kept: Outcome, samples: list[tuple[int, int, int, int]]
) -> list[str]:
    problems = []
    failed = kept.failed + sum(one.failed for one in plain)
    if failed:
        problems.append(f"{failed} messages were not stored")
    explained = kept.rate * (WINDOW_S + 5 * RETENTION_MS / 1000)
    most = max(retained for *_, retained in samples)
    if most > explained:
        problems.append(f"{most} messages were retained, where {explained:.0f} would be explained")
    half, last = (samples[at][0] for at in (len(samples) // 2, -1))
    if last > half * GROWTH:
        problems.append(f"segments grew from {half >> 20} to {last >> 20} MiB in the second half")
    three_slots = int(3 * SLOT_S / SAMPLE_S)
    index = [transactions for _, transactions, *_ in samples]
    if len(samples) < three_slots + SLOT_S / SAMPLE_S:
        print("the transaction index was not judged: that takes twenty minutes")
    elif (later := max(index[three_slots:])) > (first := max(index[:three_slots])) * GROWTH:
        problems.append(f"transactions grew from {first >> 20} to {later >> 20} MiB at most")
    usual_ms = max(one.p99_ms for one in plain)
    if kept.p99_ms > LIMIT * usual_ms:
        problems.append(f"p99 {kept.p99_ms:.1f} ms, and {usual_ms:.1f} without retention")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=3.0)
    # Long enough for a checkpoint: the run with retention sees several.
    parser.add_argument("--plain-seconds", type=float, default=300.0)
    parser.add_argument("--once", action="store_true", help="without rules before, not after too")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--set", action="append", default=[], help="a setting of PostgreSQL")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queen-keep-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o711)
        stack = Stack(directory, dict(setting.split("=", 1) for setting in arguments.set))
        try:
            problems = soak(stack, arguments)
        finally:
            stack.close()
    for problem in problems:
        print(problem)
    print("VERDICT:", "FAIL" if problems else "PASS")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
