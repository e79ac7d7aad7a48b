"""What the mesh brings, and what a dead peer costs: measured over brokers as separate processes.

    python -m tests.process.mesh_soak

starts a durable PostgreSQL of its own, and on it

1. two brokers that know each other: a push on one, a consumer parked at the other, again and
   again. Told: how long from the push's request to the message in the consumer's hands;
2. the same without a mesh, where the floor of a second finds the message;
3. the pair again: pushes of ten messages at 10,000 messages/s for a while, then the same while
   the peer is stopped with SIGSTOP, and once more with it awake. Told: the latencies of a push,
   and what the outbox dropped;
4. three brokers and 10,000 transactionIds, pushed to all three at once, each in an order of its
   own. Told: how many messages the queue holds.

The verdict is PASS when the medians, 99th percentiles and ratios keep to LIMITS.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness import KillablePostgres
from tests.mesh_parts import free_port
from tests.process.retention_soak import Load, Outcome, forking, run

PROJECT = Path(__file__).resolve().parents[2]
SECRET = "what the brokers of this measurement have in common"
STATS = "/internal/api/shared-state/stats"
P50_MS, P99_MS, CUT_MS, STOPPED_RATIO = 10.0, 50.0, 1100.0, 1.2
BATCH = 10
IDS = 10_000
IDS_BATCH = 50


class Broker:
    """`manage.py broker` with what the environment of this run says of PostgreSQL."""

    def __init__(self, directory: Path, postgres: KillablePostgres, **settings: str) -> None:
        self.port = free_port()
        name = f"broker-{self.port}"
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "broker"],
                cwd=PROJECT,
                env={
                    **os.environ,
                    **postgres.database.environment,
                    "PG_USER": "postgres",
                    "QUEEN_DATA_DIR": str(directory / name),
                    "QUEEN_SERVER_ID": name,
                    "QUEEN_BIND_ADDR": "127.0.0.1",
                    "PORT": str(self.port),
                    **settings,
                },
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.get("/readyz")
                return
            time.sleep(0.1)
        raise SystemExit(f"VERDICT: FAIL a broker did not become ready; see {self.log}")

    def get(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(60)


@contextlib.contextmanager
def brokers(
    directory: Path, postgres: KillablePostgres, count: int, *, meshed: bool
) -> Iterator[list[Broker]]:
    ports = [free_port() for _ in range(count)]
    started: list[Broker] = []
    try:
        for port in ports:
            settings = {}
            if meshed:
                others = (other for other in ports if other != port)
                settings = {
                    "QUEEN_MESH_PORT": str(port),
                    "QUEEN_MESH_BIND_ADDR": "127.0.0.1",
                    "QUEEN_MESH_PEERS": ",".join(f"127.0.0.1:{other}" for other in others),
                    "QUEEN_SYNC_SECRET": SECRET,
                }
            started.append(Broker(directory, postgres, **settings))
        while meshed and any(one.get(STATS)["servers_alive"] < count - 1 for one in started):
            time.sleep(0.05)
        yield started
    finally:
        for one in started:
            one.stop()


def request(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
) -> Any:
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse().read()
    return json.loads(answer) if answer else None


def handovers(here: Broker, there: Broker, count: int) -> list[float]:
    """Milliseconds from a push on `here` to the message at a consumer parked on `there`."""
    pusher, popper = here.connect(), there.connect()
    queue = f"handover-{time.time_ns()}"
    item = {"items": [{"queue": queue, "payload": 0}]}
    request(pusher, "POST", "/api/v1/push", item)
    pop = f"/api/v1/pop/queue/{queue}?wait=true&timeout=30000&autoAck=true"
    request(popper, "GET", pop)
    took: list[float] = []
    arrived: list[float] = []

    def wait_for_one() -> None:
        answer = request(popper, "GET", pop)
        arrived.append(time.monotonic() if answer and answer["messages"] else 0.0)

    for _ in range(count):
        consumer = threading.Thread(target=wait_for_one)
        consumer.start()
        # Parked, and not found by its own first look.
        time.sleep(random.uniform(0.1, 0.3))
        began = time.monotonic()
        request(pusher, "POST", "/api/v1/push", item)
        consumer.join()
        took.append((arrived[-1] - began) * 1000)
    return sorted(took)


def rows_told(took: list[float]) -> tuple[float, float]:
    return took[len(took) // 2], took[min(len(took) * 99 // 100, len(took) - 1)]


def stopped_peer(
    pair: list[Broker], seconds: float, rate: float
) -> tuple[list[Outcome], list[Outcome], Any]:
    """Outcomes with the peer awake and with it stopped, by turns, and the mesh's own figures."""
    here, peer = pair

    def pushes(seconds: float) -> Outcome:
        return run(
            Load(
                port=here.port,
                queue="steady",
                producers=16,
                batch=BATCH,
                partitions=100,
                seconds=seconds,
                rate=rate,
            )
        )

    pushes(5)
    awake, stopped = [], []
    for _ in range(2):
        awake.append(pushes(seconds))
        peer.process.send_signal(signal.SIGSTOP)
        stopped.append(pushes(seconds))
        figures = here.get(STATS)
        peer.process.send_signal(signal.SIGCONT)
        time.sleep(2)
    return awake, stopped, figures


def push_ids(broker: Broker, seed: int, statuses: Any) -> None:
    ids = list(range(IDS))
    random.Random(seed).shuffle(ids)
    connection = broker.connect()
    seen: dict[str, int] = {}
    for at in range(0, IDS, IDS_BATCH):
        items = [
            {
                "queue": "once",
                "partition": f"p{one % 20}",
                "transactionId": f"id-{one}",
                "payload": one,
            }
            for one in ids[at : at + IDS_BATCH]
        ]
        for row in request(connection, "POST", "/api/v1/push", {"items": items}):
            seen[row["status"]] = seen.get(row["status"], 0) + 1
    statuses.put(seen)


def pushed_thrice(trio: list[Broker], postgres: KillablePostgres) -> tuple[int, dict[str, int]]:
    """Messages that the queue holds afterwards, and how the pushes were answered."""
    statuses = forking.Queue()
    pushers = [
        forking.Process(target=push_ids, args=(one, seed, statuses))
        for seed, one in enumerate(trio)
    ]
    for pusher in pushers:
        pusher.start()
    told: dict[str, int] = {}
    for _ in pushers:
        for status, count in statuses.get(timeout=300).items():
            told[status] = told.get(status, 0) + count
    for pusher in pushers:
        pusher.join()
    with postgres.database.connect() as db:
        row = db.execute(
            "SELECT sum(last_offset + 1) FROM queen_partition lane"
            " JOIN queen_queue queue ON queue.id = queue_id WHERE queue.name = 'once'"
        ).fetchone()
    assert row is not None
    return int(row[0]), told


def measure(
    directory: Path, postgres: KillablePostgres, arguments: argparse.Namespace
) -> list[str]:
    problems = []
    with brokers(directory, postgres, 2, meshed=True) as pair:
        p50, p99 = rows_told(handovers(*pair, arguments.handovers))
        print(f"push on A, consumer parked on B: p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)
        if p50 > P50_MS or p99 > P99_MS:
            problems.append(f"a hand-over took {p50:.1f} / {p99:.1f} ms")
        awake, stopped, figures = stopped_peer(pair, arguments.seconds, arguments.rate)
        for name, outcomes in (("awake", awake), ("stopped", stopped)):
            for one in outcomes:
                print(f"peer {name}: {one}")
        print(f"the mesh of the pushed one: {json.dumps(figures)}", flush=True)
        for measure in ("p50_ms", "p99_ms"):
            usual = sum(getattr(one, measure) for one in awake)
            ratio = sum(getattr(one, measure) for one in stopped) / usual
            print(f"{measure}, peer stopped against awake: {ratio:.2f}", flush=True)
            if ratio > STOPPED_RATIO:
                problems.append(f"{measure} rose to {ratio:.2f} of what it was")
    with brokers(directory, postgres, 2, meshed=False) as pair:
        took = handovers(*pair, max(arguments.handovers // 5, 10))
        print(
            f"without a mesh: p50 {rows_told(took)[0]:.0f} ms, slowest {took[-1]:.0f} ms",
            flush=True,
        )
        if took[-1] > CUT_MS:
            problems.append(f"without a mesh a message took {took[-1]:.0f} ms")
    with brokers(directory, postgres, 3, meshed=True) as trio:
        stored, told = pushed_thrice(trio, postgres)
        print(f"{IDS} ids at three brokers at once: {stored} stored, answered {told}", flush=True)
        if stored != IDS or told.get("queued") != IDS:
            problems.append(f"{stored} messages stored of {IDS} ids")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--handovers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run of pushes")
    parser.add_argument("--rate", type=float, default=10_000, help="messages a second")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queen-mesh-", dir="/tmp") as name:
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
