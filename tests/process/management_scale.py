"""The management API over full tables: how long each read takes, and what all of them cost.

    python -m tests.process.management_scale

starts a durable PostgreSQL and a broker of its own, fills the tables (1,000 queues, 100,000
partitions, ten million messages, a million dead letters; see management_fill.py), lets the
statistics be counted once, and

1. asks every route that only reads five times, with nothing told again and nothing counted
   beside it. Told: the median and the slowest, and how much processor time of the broker and of
   PostgreSQL the median one took, less what they take at rest;
2. starts the broker anew with the defaults and measures end to end with `manage.py bench`, by turns
   without and with all reads once a second.

The verdict is PASS when every median is under 300 ms and the reads cost less than 10 % of the
rate. `--by processor` judges the processor time instead, for a machine that is not its own: what a
message took of the broker's and of PostgreSQL's, without and beside the reads. Rounds of reads that
came late were not once a second: then there is no verdict on their cost.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from brokers.api.routes import ROUTES
from queen_project import embedded
from tests.harness import PROJECT_DIR, BrokerProcess, KillablePostgres
from tests.process.management_fill import TRACE_NAME, Known, Volume, fill, measure_bytes

LIMIT_MS, COST = 300.0, 0.10
# Which share of the rounds is still once a second.
IN_TIME = 0.9
REST_S = 20.0
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
    "queue_depth": ("", "group={group}"),
    "workload": ("", "groupBy=queue"),
    "retention_history": ("", "groupBy=queue"),
    "message_detail": ("",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time, ms."""

    broker_ms: float
    postgres_ms: float

    @property
    def ms(self) -> float:
        return self.broker_ms + self.postgres_ms

    def since(self, before: "Spent") -> "Spent":
        return Spent(self.broker_ms - before.broker_ms, self.postgres_ms - before.postgres_ms)

    def less(self, a_second: "Spent", seconds: float) -> "Spent":
        return Spent(
            max(self.broker_ms - a_second.broker_ms * seconds, 0),
            max(self.postgres_ms - a_second.postgres_ms * seconds, 0),
        )


@dataclass
class Run:
    """One run of the bench, and what it had of the processors."""

    rate: float
    seconds: float
    spent: Spent
    rounds: int = 0

    @property
    def spent_per_message_ms(self) -> float:
        return self.spent.ms / (self.rate * self.seconds)


@dataclass
class Probe:
    name: str
    method: str
    path: str
    body: bytes | None = None
    took_ms: list[float] = field(default_factory=list)
    spent: list["Spent"] = field(default_factory=list)
    problem: str | None = None

    @property
    def median_ms(self) -> float:
        return statistics.median(self.took_ms)

    @property
    def median_spent(self) -> "Spent":
        return sorted(self.spent, key=lambda one: one.ms)[len(self.spent) // 2]


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


def processor_ms(root: int) -> float:
    """What the process and its children have had of the processors until now, with their threads
    that have ended: views are answered in threads that come and go."""
    spent, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            spent += time.clock_gettime_ns(_processor_clock(pid))
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as told:
                    waiting += map(int, told.read().split())
        except OSError:
            continue
    return spent / 1e6


def _processor_clock(pid: int) -> int:
    """The clock of a process, as clock_getcpuclockid(3) makes its number on Linux."""
    return (~pid << 3) | 2


def spent_until_now(broker_pid: int, postgres_data_dir: Path) -> Spent:
    """What a broker and a PostgreSQL have had of the processors."""
    postmaster = embedded.status(postgres_data_dir).pid or 0
    return Spent(processor_ms(broker_pid), processor_ms(postmaster))


class Machine:
    """The broker and the PostgreSQL that are measured."""

    def __init__(
        self, directory: Path, postgres: KillablePostgres, environment: dict[str, str]
    ) -> None:
        self.directory = directory
        self.postgres = postgres
        self.environment = environment
        self.broker = self._start()

    def _start(self, **more: str) -> BrokerProcess:
        return BrokerProcess(
            self.directory / "broker.log", self.environment | more, start_timeout_s=START_S
        )

    def restart(self, **more: str) -> None:
        """With the code and procedures of now, and the settings that everybody has but these."""
        self.broker.stop()
        self.broker = self._start(**more)

    def rest(self) -> Spent:
        """What they take in a second of which nobody asks anything."""
        before = self.spent()
        time.sleep(REST_S)
        spent = self.spent().since(before)
        return Spent(spent.broker_ms / REST_S, spent.postgres_ms / REST_S)

    def spent(self) -> Spent:
        return spent_until_now(self.broker.pid, self.postgres.data_dir)


def ask_all(machine: Machine, asked: list[Probe]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", machine.broker.port, timeout=120)
    rest = machine.rest()
    for probe in asked:
        for _ in range(ASKED):
            before, began = machine.spent(), time.monotonic()
            status, body = ask(connection, probe)
            took_s = time.monotonic() - began
            probe.took_ms.append(took_s * 1000)
            probe.spent.append(machine.spent().since(before).less(rest, took_s))
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


def bench(machine: Machine, seconds: float, readers: Callable[[], Readers] | None) -> Run:
    """Messages a second, pushed, popped and acknowledged; with the rounds that were done beside."""
    out = machine.directory / "bench.json"
    url = f"http://127.0.0.1:{machine.broker.port}"
    arguments = ["--url", url, "--only", SCENARIO, "--seconds", str(seconds), "--json", str(out)]
    before, began = machine.spent(), time.monotonic()
    reading = readers() if readers else None
    subprocess.run(
        [sys.executable, "manage.py", "bench", "--no-direct", *arguments],
        cwd=PROJECT_DIR,
        env={**os.environ, **machine.environment},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=600,
    )
    rounds = 0 if reading is None else reading.rounds
    took_s, spent = time.monotonic() - began, machine.spent().since(before)
    if reading is not None:
        reading.stop()
    [row] = json.loads(out.read_text())["rows"]
    return Run(float(row["rate"]), took_s, spent, rounds)


def cost(
    machine: Machine, asked: list[Probe], arguments: argparse.Namespace
) -> tuple[float, str | None]:
    """The share of its rate that the message plane loses, and why that is no verdict."""
    machine.restart()
    rest = machine.rest()
    print(f"at rest, with queues counted every ten seconds: {rest.broker_ms:.0f} ms of the broker"
          f" and {rest.postgres_ms:.0f} of PostgreSQL a second")  # fmt: skip
    without, beside = [], []
    port = machine.broker.port
    bench(machine, arguments.seconds, None)
    for _ in range(arguments.turns):
        without.append(bench(machine, arguments.seconds, None))
        beside.append(bench(machine, arguments.seconds, lambda: Readers(port, asked)))
        print(f"  {without[-1].rate:.0f} messages/s without reads, {beside[-1].rate:.0f} beside"
              f" {beside[-1].rounds} rounds of them in {beside[-1].seconds:.0f} s;"
              f" {1000 * without[-1].spent_per_message_ms:.0f} and"
              f" {1000 * beside[-1].spent_per_message_ms:.0f} us of processor a message",
              flush=True)  # fmt: skip
    rate = statistics.median(one.rate for one in beside)
    share = 1 - rate / statistics.median(one.rate for one in without)
    spent_without = statistics.median(one.spent_per_message_ms for one in without)
    by_processor = 1 - spent_without / statistics.median(one.spent_per_message_ms for one in beside)
    a_second = statistics.median(
        (one.spent.ms - spent_without * one.rate * one.seconds) / one.seconds for one in beside
    )
    print(f"all reads once a second cost {share:.1%} of the rate, {by_processor:.1%} of the"
          f" processor time of a message: {a_second:.0f} ms a second")  # fmt: skip
    late = [one for one in beside if one.rounds < IN_TIME * one.seconds]
    undecided = None
    if late:
        done = ", ".join(f"{one.rounds} of {one.seconds:.0f}" for one in beside)
        undecided = f"the reads were not once a second: {done} rounds"
    return (by_processor if arguments.by == "processor" else share), undecided


def judged(machine: Machine, asked: list[Probe], arguments: argparse.Namespace) -> list[str]:
    """What is wrong with how long each took."""
    machine.restart(QUEEN_ANALYTICS_FRESH_MS="0", STATS_INTERVAL_MS="86400000")
    ask_all(machine, asked)
    problems = []
    print(f"{'route':20} median ms  slowest  processor = broker + postgres  address")
    for probe in sorted(asked, key=lambda one: -one.median_spent.ms):
        spent = probe.median_spent
        print(f"{probe.name:20} {probe.median_ms:9.1f} {max(probe.took_ms):8.1f}",
              f"{spent.ms:10.1f} {spent.broker_ms:8.1f} {spent.postgres_ms:10.1f} ",
              probe.path[:80], flush=True)  # fmt: skip
        if probe.problem:
            problems.append(f"{probe.path} {probe.problem}")
        took_ms = spent.ms if arguments.by == "processor" else probe.median_ms
        if took_ms > LIMIT_MS:
            problems.append(f"{probe.path} took {took_ms:.0f} ms")
    broker_ms = sum(probe.median_spent.broker_ms for probe in asked)
    postgres_ms = sum(probe.median_spent.postgres_ms for probe in asked)
    print(f"all {len(asked)} together: {broker_ms + postgres_ms:.0f} ms of processor time,"
          f" {broker_ms:.0f} of the broker and {postgres_ms:.0f} of PostgreSQL")  # fmt: skip
    return problems


def measure(
    directory: Path, postgres: KillablePostgres, arguments: argparse.Namespace
) -> tuple[list[str], str | None]:
    """What is wrong, and what is undecided."""
    environment = postgres.database.environment | SETTINGS
    environment["QUEEN_DATA_DIR"] = str(directory / "data")
    machine = Machine(directory, postgres, environment)
    try:
        began = time.monotonic()
        volume = Volume.scaled(arguments.scale)
        print(f"filling {volume.queues} queues, {volume.lanes} partitions,"
              f" {volume.messages} messages, {volume.letters} dead letters")  # fmt: skip
        with postgres.database.connect() as db:
            known = fill(db, volume)
            connection = http.client.HTTPConnection("127.0.0.1", machine.broker.port, timeout=600)
            counted = ask(connection, Probe("stats_refresh", "POST", "/api/v1/stats/refresh"))
            measure_bytes(db)
        print(f"filled and counted in {time.monotonic() - began:.0f} s: {counted}", flush=True)
        asked = probes(known)
        problems, undecided = judged(machine, asked, arguments), None
        if arguments.turns:
            share, undecided = cost(machine, asked, arguments)
            if share >= COST and undecided is None:
                problems.append(f"the reads cost {share:.1%}")
        while arguments.hold and (line := input("ask, cost, or nothing to end: ")):
            if line == "ask":
                judged(machine, probes(known), arguments)
            elif line == "cost":
                cost(machine, asked, arguments)
        return problems, undecided
    finally:
        machine.broker.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of the volume of the tables")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run of the bench")
    parser.add_argument("--turns", type=int, default=3, help="runs without and with reads; 0: none")
    parser.add_argument("--by", choices=("clock", "processor"), default="clock")
    parser.add_argument("--hold", action="store_true", help="go on over the same tables, as told")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queen-scale-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o711)
        postgres = KillablePostgres(directory / "pg")
        try:
            problems, undecided = measure(directory, postgres, arguments)
        finally:
            postgres.remove()
    for problem in problems:
        print(problem)
    if undecided is not None:
        print(undecided)
    print("VERDICT:", "FAIL" if problems else "UNDECIDED" if undecided else "PASS")
    return 1 if problems or undecided else 0


if __name__ == "__main__":
    sys.exit(main())
