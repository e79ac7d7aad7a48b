"""What spool_soak.py is made of: PostgreSQL and broker to kill, producers that keep books, a judge.

A producer writes down what each item was answered, in a file of its own and one write a
request, so that what it was told outlives whatever is killed. Messages carry their producer
and a number that rises per (producer, partition): the log shows by itself whether something
is lost, doubled or out of order.

Used by spool_soak.py. Imports soak (the line, the witness) and tests.harness.
"""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import KillablePostgres
from tests.process.soak import PROJECT, Line, Witness, records

START_S = 90.0
# What a push may be answered that was not refused; everything else is a problem.
STORED = ("queued", "duplicate")
HELD = (*STORED, "buffered")
forking = multiprocessing.get_context("fork")

Item = tuple[int, int]  # producer, number within (producer, partition)
Log = dict[str, list[Item]]


class Failed(Exception):
    """The run cannot go on; the text is the verdict."""


# --- what is killed -----------------------------------------------------------------------------


class Broker:
    """`manage.py broker` with a fixed port, name and data directory, so that it finds its spool."""

    def __init__(self, directory: Path, postgres: KillablePostgres, **environment: str) -> None:
        database = postgres.database
        self.directory = directory
        self.port = free_port()
        self.line = Line(self.port)
        self.environment = os.environ | {
            "QUEEN_DATA_DIR": str(directory / "broker"),
            "QUEEN_SERVER_ID": "soak",
            "QUEEN_BIND_ADDR": "127.0.0.1",
            "PORT": str(self.port),
            "PG_USER": "postgres",
            **database.environment,
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.process is None
        with (self.directory / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "broker"],
                cwd=PROJECT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, signum: int) -> None:
        if self.process is not None:
            self.process.send_signal(signum)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Failed("the broker did not end within 60 s of SIGTERM") from None
            self.process = None

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def until(self, path: str) -> None:
        """Until GET of the path is answered 200: /livez is alive, /readyz has its database."""
        deadline = time.monotonic() + START_S
        while not self.answers(path):
            if self.process is None or self.process.poll() is not None:
                raise Failed(f"the broker ended by itself; see {self.directory / 'broker.log'}")
            if time.monotonic() > deadline:
                raise Failed(f"{path} was not 200 within {START_S:.0f} s")
            time.sleep(0.02)

    def until_storing(self) -> None:
        """Until pushes go into the database again."""
        deadline = time.monotonic() + START_S
        item = {"queue": "probe", "payload": None}
        while (told := self.line.ask("POST", "/api/v1/push", {"items": [item]})) is None or (
            told[1][0]["status"] != "queued"
        ):
            if time.monotonic() > deadline:
                raise Failed(f"pushes are not stored within {START_S:.0f} s: {told}")
            time.sleep(0.02)

    def answers(self, path: str) -> bool:
        answer = self.line.ask("GET", path)
        return answer is not None and answer[0] == 200

    def pending(self) -> int:
        """Messages in the spool; -1 when the broker did not answer."""
        answer = self.line.ask("GET", "/api/v1/status/buffers")
        return int(answer[1]["pending"]) if answer is not None and answer[0] == 200 else -1

    def set_aside(self) -> Any:
        answer = self.line.ask("GET", "/api/v1/status/buffers")
        return answer[1]["spool"]["setAside"] if answer is not None else None

    def maintenance(self, enabled: bool) -> None:
        self.command("/api/v1/system/maintenance", {"enabled": enabled})

    def configure(self, queue: str, **options: Any) -> None:
        self.command("/api/v1/configure", {"queue": queue, "options": options})

    def command(self, path: str, body: Any) -> None:
        """A request that must be done before the run goes on."""
        deadline = time.monotonic() + 30
        while (answer := self.line.ask("POST", path, body)) is None or answer[0] >= 300:
            if time.monotonic() > deadline:
                raise Failed(f"{path} {body}: {answer}")
            time.sleep(0.05)

    def until_drained(self, timeout_s: float, *, each: Callable[[], None] = lambda: None) -> float:
        """Seconds until nothing is pending in the spool."""
        began = time.monotonic()
        while self.pending() != 0:
            if time.monotonic() - began > timeout_s:
                raise Failed(f"{self.pending()} still pending after {timeout_s:.0f} s")
            each()
            time.sleep(0.05)
        return time.monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- who pushes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A steady load on one queue. `rate` is messages a second of all its producers, 0 is as
    fast as they are answered. `insist`: what was not answered is sent again, as it was."""

    queue: str
    rate: float
    batch: int = 100
    producers: int = 4
    partitions: int = 100
    insist: bool = False
    filler: str = "x" * 100
    seed: int = 1


class Crew:
    """The producers of a load, each a process of its own; `stop` lets them finish a request."""

    def __init__(self, load: Load, directory: Path, port: int, *, name: str = "") -> None:
        self.load = load
        self.directory = directory
        self._stop = forking.Event()
        self._go = forking.Event()
        self._go.set()
        self._processes = [
            forking.Process(
                target=produce,
                args=(load, number, directory, port, name, self._stop, self._go),
                daemon=True,
            )
            for number in range(load.producers)
        ]
        for process in self._processes:
            process.start()

    def pause(self) -> None:
        """After the request that is under way."""
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    def stop(self) -> None:
        self._stop.set()
        self._go.set()
        for process in self._processes:
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join()
                raise Failed("a producer hung for a minute in one request")
            if process.exitcode:
                raise Failed(f"a producer ended with {process.exitcode}")

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *about: object) -> None:
        self._stop.set()
        self._go.set()
        for process in self._processes:
            process.join(5)
            process.kill()


def produce(load: Load, me: int, directory: Path, port: int, name: str, stop: Any, go: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dice = random.Random(f"{load.seed}-{name}-{me}")
    witness = Witness(directory / f"{load.queue}-{name}-{me}.jsonl")
    line = Line(port)
    numbers: dict[int, int] = defaultdict(int)
    every_s = load.batch * load.producers / load.rate if load.rate else 0.0
    # Producers are not in step with each other.
    due = time.monotonic() + every_s * me / load.producers
    while not stop.is_set():
        go.wait()
        if every_s:
            if stop.wait(max(due - time.monotonic(), 0.0)):
                break
            due = max(due + every_s, time.monotonic() - 1.0)
        chosen = [dice.randrange(load.partitions) for _ in range(load.batch)]
        items = []
        for partition in chosen:
            items.append((partition, numbers[partition]))
            numbers[partition] += 1
        push(load, me, line, witness, items, stop)


def push(
    load: Load, me: int, line: Line, witness: Witness, items: list[tuple[int, int]], stop: Any
) -> None:
    """One batch, and what became of it: `null` where nobody was told."""
    body = {
        "items": [
            {
                "queue": load.queue,
                "partition": f"p-{partition}",
                "transactionId": f"{me}:{partition}:{number}",
                "payload": [me, number, load.filler],
            }
            for partition, number in items
        ]
    }
    while True:
        began = time.monotonic()
        answer = line.ask("POST", "/api/v1/push", body)
        at = time.monotonic()
        told: list[str | None] = [None] * len(items)
        http_status, error = None, None
        if answer is not None:
            http_status = answer[0]
            if http_status == 201:
                told = [row["status"] for row in answer[1]]
                error = next((row["error"] for row in answer[1] if row.get("error")), None)
        witness.record(
            me=me, at=at, took=round(at - began, 4), http=http_status, error=error,
            items=items, told=told,
        )  # fmt: skip
        if all(one in HELD for one in told) or not load.insist or stop.is_set():
            return


# --- what they wrote down -----------------------------------------------------------------------


class Clerk:
    """Reads the witnesses of a load as they grow."""

    def __init__(self, directory: Path, load: Load, name: str = "") -> None:
        self._directory = directory
        self._pattern = f"{load.queue}-{name}-*.jsonl"
        self._read: dict[Path, int] = defaultdict(int)
        self.answers: list[tuple[float, Counter[str]]] = []

    def refresh(self) -> list[tuple[float, Counter[str]]]:
        """All (time, statuses) so far, those of one producer in order."""
        for path in self._directory.glob(self._pattern):
            with path.open("rb") as file:
                file.seek(self._read[path])
                while (line := file.readline()).endswith(b"\n"):
                    self._read[path] += len(line)
                    record = json.loads(line)
                    told = Counter(str(one) for one in record["told"])
                    self.answers.append((record["at"], told))
        return self.answers

    def count(self, status: str, since: float = 0.0, until: float = float("inf")) -> int:
        return sum(told[status] for at, told in self.refresh() if since <= at < until)

    def last(self, status: str) -> float:
        """When that was last answered; 0 when it never was."""
        return max((at for at, told in self.refresh() if told[status]), default=0.0)


def read_log(port: int, queue: str) -> Log:
    """Every message of the queue by partition, as a group that begins at the start gets them."""
    line = Line(port)
    log: Log = defaultdict(list)
    path = (
        f"/api/v1/pop/queue/{queue}?consumerGroup=audit-{time.time_ns()}&batch=10000&partitions=0"
        "&autoAck=true&subscriptionMode=all"
    )
    while True:
        answer = line.ask("GET", path)
        if answer is None or answer[0] not in (200, 204):
            raise Failed(f"the log of {queue} cannot be read: {answer}")
        if answer[0] == 204:
            return log
        for message in answer[1]["messages"]:
            producer, number, _ = message["data"]
            log[message["partition"]].append((producer, number))


# --- the judge ----------------------------------------------------------------------------------


@dataclass
class Judge:
    """Collects what is wrong, at most so much of a kind, and says it."""

    problems: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def blame(self, kind: str, text: str) -> None:
        self.kinds[kind] += 1
        if self.kinds[kind] <= 5:
            self.problems.append(f"{kind}: {text}")

    def limit(self, what: str, value: float, *, low: float = 0.0, high: float = 1e18) -> None:
        print(f"  {what}: {value:.2f}", flush=True)
        if not low <= value <= high:
            self.blame("speed", f"{what} is {value:.2f}, not within {low:g}..{high:g}")

    def queue(self, load: Load, directory: Path, log: Log, *, http_only: bool) -> None:
        """Hold the log of a queue against what its producers were told.

        `http_only`: every request was answered, with 201 and nothing but HELD; else requests
        may have ended without an answer, and then their items are in the log once or not.
        """
        told: dict[tuple[str, int, int], str | None] = {}
        statuses: Counter[str] = Counter()
        slowest = 0.0
        for record in records(directory, f"{load.queue}-*.jsonl"):
            slowest = max(slowest, record["took"])
            if record["http"] is None:
                if http_only:
                    self.blame("no answer", f"to a push of {load.queue}")
            elif record["http"] != 201:
                self.blame("not 201", f"{load.queue}: HTTP {record['http']}")
            for (partition, number), status in zip(record["items"], record["told"], strict=True):
                statuses[str(status)] += 1
                if status is not None and status not in HELD:
                    self.blame("refused", f"{load.queue}: {status}: {record['error']}")
                key = (f"p-{partition}", record["me"], number)
                told[key] = status if status in HELD else told.get(key)
        stored = sum(map(len, log.values()))
        print(
            f"  {load.queue}: told {dict(statuses)}, {stored} in the log,"
            f" slowest answer {slowest:.2f} s",
            flush=True,
        )
        self._order(load, log)
        self._presence(load, log, told)

    def _order(self, load: Load, log: Log) -> None:
        for partition, items in log.items():
            reached: dict[int, int] = {}
            seen: set[Item] = set()
            for producer, number in items:
                if (producer, number) in seen:
                    self.blame("doubled", f"{load.queue} {partition} {producer}:{number}")
                elif number <= reached.get(producer, -1):
                    behind = f"{producer}:{number} behind {producer}:{reached[producer]}"
                    self.blame("out of order", f"{load.queue} {partition} {behind}")
                seen.add((producer, number))
                reached[producer] = max(number, reached.get(producer, -1))

    def _presence(self, load: Load, log: Log, told: dict[tuple[str, int, int], str | None]) -> None:
        there = {(partition, *item) for partition, items in log.items() for item in items}
        for key, status in told.items():
            if status is not None and key not in there:
                self.blame("lost", f"{load.queue} {key} was answered {status}")
        for key in there - told.keys():
            self.blame("unheard of", f"{load.queue} {key} is in the log, nobody pushed it")

    def verdict(self) -> bool:
        for problem in self.problems:
            print("PROBLEM:", problem)
        for kind, count in self.kinds.items():
            print(f"PROBLEM: {count} times {kind}")
        return not self.problems


@contextlib.contextmanager
def scene(directory: Path, **environment: str) -> Iterator[tuple[KillablePostgres, Broker]]:
    """A PostgreSQL and a broker at work on it, both gone in the end."""
    data_dir = directory / "postgres-home"
    data_dir.mkdir(mode=0o711)
    postgres = KillablePostgres(data_dir)
    broker = Broker(directory, postgres, **environment)
    try:
        broker.start()
        broker.until_storing()
        yield postgres, broker
    finally:
        broker.kill()
        postgres.remove()
