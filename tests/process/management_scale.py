"""The management API over full tables: how long each read takes, and what all of them cost.

    python -m tests.process.management_scale

starts a durable PostgreSQL and a broker of its own, fills the tables (1,000 queues, 100,000
partitions, ten million messages, a million dead letters; see management_fill.py), lets the
statistics be counted once, and

1. asks every route that only reads five times. Told: the median and the slowest, and how much
   processor time of the broker and of PostgreSQL the median one took, which other users of the
   machine do not change;
2. measures end to end with `manage.py bench`, by turns without and with all reads once a second.

The verdict is PASS when every median is under 300 ms and the reads cost less than 10 % of the
rate. `--by processor` judges the processor time instead, for a machine that is not its own.
A route that is in the table of routes and not in ADDRESSES is a failure, too.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from brokers.api.routes import ROUTES
from queen_project import embedded
from tests.harness import PROJECT_DIR, BrokerProcess, KillablePostgres
from tests.process.management_fill import TRACE_NAME, Known, Volume, fill, measure_bytes

LIMIT_MS, COST = 300.0, 0.10
ASKED = 5
SCENARIO = "e2e_b100"
SETTINGS = {"QUEEN_BIND_ADDR": "127.0.0.1", "PG_USER": "postgres"}
# The machine may be busy with others.
START_S = 300.0
# They read although they are posted.
POSTED = {"stream_state_get", "partitions_changed", "kv_list"}
# What a route is asked beside its plain address, by its name.
QUERIES: dict[str, tuple[str, ...]] = {
    "message_list": ("", "queue={queue}", "status=dead_letter", "status=pending&queue={queue}"),
    "message_search": ("queue={queue}&q=order&from=2020-01-01T00:00:00Z",
                       "queue={queue}&q=nowhere&from=2020-01-01T00:00:00Z"),
    "dlq_list": ("", "queue={queue}", "consumerGroup={group}",
                 "queue={queue}&consumerGroup={group}"),
    "dlq_signatures": ("queue={queue}",),
    "queue_depth": ("", "consumerGroup={group}"),
    "workload": ("", "groupBy=queue"),
    "retention_history": ("", "groupBy=queue"),
    "message_detail": ("",),
}  # fmt: skip


@dataclass
class Probe:
    name: str
    method: str
    path: str
    body: bytes | None = None
    took_ms: list[float] = field(default_factory=list)
    processor_ms: list[float] = field(default_factory=list)
    problem: str | None = None

    @property
    def median_ms(self) -> float:
        return statistics.median(self.took_ms)

    @property
    def median_processor_ms(self) -> float:
        return statistics.median(self.processor_ms)

    @property
    def first_processor_ms(self) -> float:
        """Of what is told again for some seconds only the first was read."""
        return self.processor_ms[0]


def probes(known: Known) -> list[Probe]:
    """Every route that only reads, with something that exists."""
    values = {
        "queue": known.queue,
        "group": known.group,
        "partitionId": known.partition_id,
        "transactionId": known.transaction_id,
        "id": known.redrive_id,
        "ns": "ns-1",
        "key": "key-1",
        "timerKey": "timer-1",
        "traceName": TRACE_NAME,
        "asset": "favicon-32x32.png",
    }
    bodies = {
        "stream_state_get": {"query_id": known.query_id, "partition_id": known.partition_id},
        "partitions_changed": {"entries": [{"queue": known.queue}]},
        "kv_list": {"namespace": "ns-1", "prefix": "key-"},
    }
    found = []
    for route in ROUTES:
        if route.handler.startswith("pop_") and route.handler != "pop_maintenance_get":
            continue
        if route.method != "GET" and route.handler not in POSTED:
            continue
        path = "/".join(
            quote(values[part[1:]], safe="") if part[:1] in (":", "*") else part
            for part in route.template.split("/")
        )
        body = json.dumps(bodies[route.handler]).encode() if route.handler in bodies else None
        for query in QUERIES.get(route.handler, ("",)):
            asked = query.format(queue=quote(known.queue), group=known.group)
            target = f"{path}?{asked}" if asked else path
            found.append(Probe(route.handler, route.method, target, body))
    dead = quote(known.dead_transaction_id, safe="")
    found.append(Probe("message_detail", "GET", f"/api/v1/messages/{known.partition_id}/{dead}"))
    return found


def ask(connection: http.client.HTTPConnection, probe: Probe) -> tuple[int, bytes]:
    connection.request(probe.method, probe.path, probe.body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def processor_ns(roots: Iterable[int]) -> int:
    """What the processes and their children have had of the processors until now."""
    spent, waiting = 0, list(roots)
    while waiting:
        pid = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat") as told:
                    spent += int(told.read().split()[0])
                with open(f"/proc/{pid}/task/{task}/children") as told:
                    waiting += map(int, told.read().split())
        except OSError:
            continue
    return spent


def ask_all(broker: BrokerProcess, postgres: KillablePostgres, asked: list[Probe]) -> None:
    roots = [broker.pid, embedded.status(postgres.data_dir).pid or 0]
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=120)
    for probe in asked:
        for _ in range(ASKED):
            spent, began = processor_ns(roots), time.monotonic()
            status, body = ask(connection, probe)
            probe.took_ms.append((time.monotonic() - began) * 1000)
            probe.processor_ms.append((processor_ns(roots) - spent) / 1e6)
            if status >= 400 and not probe.problem:
                probe.problem = f"answered {status} {body[:200]!r}"


class Readers:
    """All reads once a second, until they are stopped; what is not done in time comes late."""

    def __init__(self, port: int, asked: list[Probe]) -> None:
        self.rounds = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(port, asked))
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _read(self, port: int, asked: list[Probe]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        due = time.monotonic()
        while not self._over.is_set():
            for probe in asked:
                ask(connection, probe)
            self.rounds += 1
            due = max(due + 1, time.monotonic() - 1)
            self._over.wait(max(due - time.monotonic(), 0))


def bench_rate(directory: Path, port: int, environment: dict[str, str], seconds: float) -> float:
    """Messages a second, pushed, popped and acknowledged."""
    out = directory / "bench.json"
    url = f"http://127.0.0.1:{port}"
    arguments = ["--url", url, "--only", SCENARIO, "--seconds", str(seconds), "--json", str(out)]
    subprocess.run(
        [sys.executable, "manage.py", "bench", "--no-direct", *arguments],
        cwd=PROJECT_DIR,
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=600,
    )
    [row] = json.loads(out.read_text())["rows"]
    return float(row["rate"])


def cost(
    directory: Path,
    port: int,
    environment: dict[str, str],
    asked: list[Probe],
    arguments: argparse.Namespace,
) -> float:
    """The share of its rate that the message plane loses."""
    without, beside = [], []
    bench_rate(directory, port, environment, arguments.seconds)
    for _ in range(arguments.turns):
        without.append(bench_rate(directory, port, environment, arguments.seconds))
        readers = Readers(port, asked)
        began = time.monotonic()
        beside.append(bench_rate(directory, port, environment, arguments.seconds))
        took_s = time.monotonic() - began
        readers.stop()
        print(f"  {without[-1]:.0f} messages/s without reads, {beside[-1]:.0f} beside"
              f" {readers.rounds} rounds of them in {took_s:.0f} s", flush=True)  # fmt: skip
    return 1 - statistics.median(beside) / statistics.median(without)


def judge(asked: list[Probe], by: str) -> list[str]:
    problems = []
    print(f"{'route':24} median ms  slowest  processor  at first  address")
    for probe in sorted(asked, key=lambda one: -one.median_processor_ms):
        print(f"{probe.name:24} {probe.median_ms:9.1f} {max(probe.took_ms):8.1f}",
              f"{probe.median_processor_ms:10.1f} {probe.first_processor_ms:9.1f} ",
              probe.path[:80], flush=True)  # fmt: skip
        if probe.problem:
            problems.append(f"{probe.path} {probe.problem}")
        took_ms = (
            max(probe.median_processor_ms, probe.first_processor_ms)
            if by == "processor"
            else probe.median_ms
        )
        if took_ms > LIMIT_MS:
            problems.append(f"{probe.path} took {took_ms:.0f} ms")
    spent = sum(probe.median_processor_ms for probe in asked)
    print(f"all {len(asked)} together: {spent:.0f} ms of processor time")
    return problems


def measure(
    directory: Path, postgres: KillablePostgres, arguments: argparse.Namespace
) -> list[str]:
    environment = postgres.database.environment | SETTINGS
    environment["QUEEN_DATA_DIR"] = str(directory / "data")
    broker = BrokerProcess(directory / "broker.log", environment, start_timeout_s=START_S)
    try:
        began = time.monotonic()
        volume = Volume.scaled(arguments.scale)
        print(f"filling {volume.queues} queues, {volume.lanes} partitions,"
              f" {volume.messages} messages, {volume.letters} dead letters")  # fmt: skip
        with postgres.database.connect() as db:
            known = fill(db, volume)
            connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=600)
            counted = ask(connection, Probe("stats_refresh", "POST", "/api/v1/stats/refresh"))
            measure_bytes(db)
        print(f"filled and counted in {time.monotonic() - began:.0f} s: {counted}", flush=True)
        asked = probes(known)
        ask_all(broker, postgres, asked)
        problems = judge(asked, arguments.by)
        if arguments.turns:
            share = cost(directory, broker.port, environment, asked, arguments)
            print(f"all reads once a second cost {share:.1%} of the rate")
            if share >= COST:
                problems.append(f"the reads cost {share:.1%} of the rate")
        return problems
    finally:
        broker.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of the volume of the tables")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run of the bench")
    parser.add_argument("--turns", type=int, default=3, help="runs without and with reads; 0: none")
    parser.add_argument("--by", choices=("clock", "processor"), default="clock")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queen-scale-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o711)
        postgres = KillablePostgres(directory / "pg")
        try:
            problems = measure(directory, postgres, arguments)
        finally:
            postgres.remove()
    for problem in problems:
        print(problem)
    print("VERDICT:", "FAIL" if problems else "PASS")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
