"""A redrive of very many letters under live traffic, and a broker killed in the middle of it.

    python -m tests.process.redrive_load --letters 100000 --rate 5000

starts a durable PostgreSQL and a broker of its own, puts the letters into ten partitions, and
starts the job while producers push into and pop from the same broker. At half of the letters the
broker is killed with SIGKILL and another one started.

The verdict is PASS when every letter is a message exactly once and no letter is left, the job
says so, the pace was not above the rate, and every live push that was answered is stored once.
The time that the job took, and the median and p99 of a live push with and without it, are shown.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import httpx
import psycopg

from tests.harness import BrokerProcess, KillablePostgres

QUEUE, LIVE = "redrive-load", "redrive-live"
PARTITIONS = 10
QUIET_S = 5.0
SETTINGS = {"QUEEN_LEADER_LEASE_MS": "5000", "QUEEN_BIND_ADDR": "127.0.0.1", "PG_USER": "postgres"}
# The machine may be busy with others.
START_S = 300.0

BURY = """
INSERT INTO queen_dead_letter (tenant_id, queue_id, partition_id, consumer_group, message_offset,
                               message_id, transaction_id, transaction_hash, payload, error,
                               retry_count)
SELECT queue.tenant_id, queue.id, lane.id, 'g', no, gen_random_uuid(), to_json('t' || no)::text,
       hashtextextended(to_json('t' || no)::text, 0),
       convert_to(json_build_object('letter', no, 'text', repeat('x', 200))::text, 'UTF8'),
       'load', 3
  FROM generate_series(1, %s) AS no
  JOIN queen_queue queue ON queue.name = %s
  JOIN queen_partition lane ON lane.queue_id = queue.id AND lane.name = 'p' || no %% %s
"""
# A frame starts with 61 bytes before the transactionId's literal.
STORED = """
SELECT count(*), count(DISTINCT frame.transaction_id)
  FROM queen_queue queue
  JOIN queen_partition lane ON lane.queue_id = queue.id
  JOIN queen_segment segment ON segment.partition_id = lane.id
 CROSS JOIN LATERAL (
    SELECT split_part(substr(text, 62), ',"traceId":', 1) AS transaction_id
      FROM string_to_table(convert_from(segment.frames, 'UTF8'), chr(30)) AS text
 ) AS frame
 WHERE queue.name = %s AND frame.transaction_id LIKE %s
"""


class Traffic:
    """A producer and a consumer of another queue, until they are stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.took_ms: list[float] = []
        self.stored: set[str] = set()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._push, self._pop)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _push(self) -> None:
        with httpx.Client(timeout=10) as http:
            while not self._over.is_set():
                name = str(uuid.uuid4())
                item = {"queue": LIVE, "transactionId": name, "payload": name}
                began = time.monotonic()
                try:
                    answer = http.post(f"{self.url}/api/v1/push", json={"items": [item]})
                except httpx.HTTPError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 201 and answer.json()[0]["status"] == "queued":
                    self.took_ms.append((time.monotonic() - began) * 1000)
                    self.stored.add(name)

    def _pop(self) -> None:
        path = f"/api/v1/pop/queue/{LIVE}?batch=100&autoAck=true&wait=true&timeout=500"
        with httpx.Client(timeout=10) as http:
            while not self._over.is_set():
                try:
                    http.get(self.url + path)
                except httpx.HTTPError:
                    time.sleep(0.05)


def quantiles(took_ms: list[float]) -> str:
    if len(took_ms) < 100:
        return "too few"
    cuts = statistics.quantiles(took_ms, n=100)
    return f"median {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms of {len(took_ms)}"


def redrive(directory: Path, arguments: argparse.Namespace) -> list[str]:
    postgres = KillablePostgres(directory / "postgres")
    running: list[BrokerProcess] = []

    def broker() -> BrokerProcess:
        log = directory / f"broker-{len(running)}.log"
        settings = SETTINGS | {"QUEEN_DATA_DIR": str(directory / "data")}
        environment = postgres.database.environment | settings
        running.append(BrokerProcess(log, environment, start_timeout_s=START_S))
        return running[-1]

    try:
        first = broker()
        with postgres.database.connect() as db:
            items = [
                {"queue": QUEUE, "partition": f"p{no}", "payload": 0} for no in range(PARTITIONS)
            ]
            httpx.post(f"{first.url}/api/v1/push", json={"items": items}).raise_for_status()
            db.execute(BURY, [arguments.letters, QUEUE, PARTITIONS])
            traffic = Traffic(first.url)
            try:
                time.sleep(QUIET_S)
                print("without a redrive:", quantiles(traffic.took_ms))
                traffic.took_ms.clear()
                problems = watch(traffic, first, broker, arguments)
                print("beside a redrive:", quantiles(traffic.took_ms))
            finally:
                traffic.stop()
            return problems + judge(db, traffic, arguments)
    finally:
        for process in running:
            process.kill()
        postgres.kill()


def watch(traffic: Traffic, first: BrokerProcess, broker, arguments) -> list[str]:  # type: ignore[no-untyped-def]
    body = {"queue": QUEUE, "rate": arguments.rate}
    began = time.monotonic()
    path = (
        "/api/v1/dlq/redrive/"
        + httpx.post(f"{first.url}/api/v1/dlq/redrive", json=body, timeout=60)
        .raise_for_status()
        .json()["id"]
    )
    url, killed = first.url, False
    while True:
        job = httpx.get(url + path, timeout=60).json()
        if job["state"] != "running":
            break
        if not killed and job["moved"] >= arguments.letters // 2:
            killed = True
            first.kill()
            print(f"killed after {job['moved']} letters and {time.monotonic() - began:.1f} s")
            url = traffic.url = broker().url
        time.sleep(0.1)
    took_s = time.monotonic() - began
    print(f"{job['moved']} letters in {took_s:.1f} s, {job['moved'] / took_s:.0f} a second")
    problems = [] if killed else ["the broker was not killed"]
    if (job["state"], job["moved"], job["skipped"]) != ("done", arguments.letters, 0):
        problems.append(f"the job says {job}")
    if took_s < arguments.letters / arguments.rate - 2:
        problems.append("that was quicker than the rate")
    return problems


def judge(db: psycopg.Connection, traffic: Traffic, arguments: argparse.Namespace) -> list[str]:
    problems = []
    moved = db.execute(STORED, [QUEUE, '"dlq:%']).fetchone()
    if moved != (arguments.letters, arguments.letters):
        problems.append(f"(messages, distinct ones) are {moved}")
    [left] = db.execute("SELECT count(*) FROM queen_dead_letter").fetchone() or [None]
    if left:
        problems.append(f"{left} letters are left")
    [live, distinct] = db.execute(STORED, [LIVE, "%"]).fetchone() or [0, 0]
    if live != distinct or distinct < len(traffic.stored):
        problems.append(f"of {len(traffic.stored)} live pushes {distinct} are stored, {live} times")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=5000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queen-redrive-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o711)
        problems = redrive(directory, arguments)
    for problem in problems:
        print(problem)
    print("VERDICT:", "FAIL" if problems else "PASS")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
