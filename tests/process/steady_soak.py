"""Ten minutes of steady load: memory stays flat, and the last minute is as fast as the first.

    python -m tests.process.steady_soak --minutes 10 --held-minutes 10

starts a durable PostgreSQL and a broker of its own, finds the rate at which messages are pushed,
popped and acknowledged in a minute without a throttle, and pushes a part of it (`--share`) in
batches while consumers pop and acknowledge all of it; what was completed is deleted after half a
minute. Then the same again while another session
holds a transaction open, so that no dead row can be cleared away meanwhile.

Each minute tells p50 and p99 of a push, what was completed, what waits, the memory of the broker,
and the dead rows of the tables that are updated in place. The verdict is PASS when no push failed,
consumers kept up, the broker did not grow by a tenth from its second minute on, and no minute's p99
is more than 1.5 times that of the first. What the held transaction costs is told, not judged.
"""

import argparse
import http.client
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from tests.process.retention_soak import Load, Stack, forking, produce

LIMIT = 1.5
GROWTH = 1.1
GROUP = "steady"
POP = "batch=1000&partitions=20&wait=true&timeout=1000&leaseSeconds=60&subscriptionMode=all"
DEAD = """
SELECT sum(n_dead_tup)::bigint, pg_total_relation_size('queen_partition'),
       pg_total_relation_size('queen_cursor')
  FROM pg_stat_user_tables WHERE relname IN ('queen_partition', 'queen_cursor')
"""


@dataclass(frozen=True)
class Minute:
    p50_ms: float
    p99_ms: float
    pushed: int
    completed: int
    memory_mib: int


def consume(port: int, queue: str, seconds: float, completed: "Synchronized[int]") -> None:
    """Pop and acknowledge until the time is over."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        connection.request("GET", f"/api/v1/pop/queue/{queue}?consumerGroup={GROUP}&{POP}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            continue
        acks = [
            {
                "transactionId": message["transactionId"],
                "partitionId": message["partitionId"],
                "leaseId": message["leaseId"],
                "status": "completed",
            }
            for message in json.loads(body)["messages"]
        ]
        batch = json.dumps({"acknowledgments": acks, "consumerGroup": GROUP})
        connection.request("POST", "/api/v1/ack/batch", batch)
        results = json.loads(connection.getresponse().read())
        done = sum(bool(result["success"]) for result in results)
        with completed.get_lock():
            completed.value += done


def steady(
    stack: Stack, arguments: argparse.Namespace, queue: str, rate: float | None, minutes: int
) -> list[Minute]:
    """`rate`: messages a second; None: as many as go through."""
    stack.configure(
        queue, retentionEnabled=True, completedRetentionSeconds=30, dedupWindowSeconds=60
    )
    seconds = minutes * 60
    load = Load(
        port=stack.port,
        queue=queue,
        producers=arguments.producers,
        batch=arguments.batch,
        partitions=arguments.partitions,
        seconds=seconds,
        rate=rate,
    )
    completed, failed = forking.Value("q", 0), forking.Value("q", 0)
    slowest, answers = forking.Value("d", 0.0), forking.Queue()
    workers = [
        forking.Process(target=produce, args=(load, number, failed, slowest, answers), daemon=True)
        for number in range(load.producers)
    ] + [
        forking.Process(target=consume, args=(load.port, queue, seconds, completed), daemon=True)
        for _ in range(arguments.consumers)
    ]
    for worker in workers:
        worker.start()
    marks = []
    began = time.monotonic()
    while len(marks) < minutes:
        time.sleep(max(0.0, began + 60 * (len(marks) + 1) - time.monotonic()))
        dead, partitions, cursors = stack.db.execute(DEAD).fetchone() or (0, 0, 0)
        marks.append((completed.value, stack.memory_mib()))
        print(
            f"{time.strftime('%H:%M:%S')} completed {completed.value}, broker {marks[-1][1]} MiB,"
            f" {dead} dead rows, partitions {partitions >> 10} KiB, cursors {cursors >> 10} KiB",
            flush=True,
        )
    told = [answers.get(timeout=120) for _ in range(load.producers)]
    for worker in workers:
        worker.join()
    if failed.value:
        raise SystemExit(f"VERDICT: FAIL {failed.value} messages were not stored")
    found = []
    for number, (done, memory) in enumerate(marks):
        took = sorted(
            ms
            for _, _, times in told
            for answered_s, ms in times
            if 60 * number <= answered_s < 60 * (number + 1)
        )
        found.append(
            Minute(
                p50_ms=took[len(took) // 2],
                p99_ms=took[len(took) * 99 // 100],
                pushed=len(took) * load.batch,
                completed=done - (marks[number - 1][0] if number else 0),
                memory_mib=memory,
            )
        )
    return found


def tell(title: str, minutes: list[Minute]) -> None:
    print(f"{title}: minute, p50, p99 (ms), pushed/s, completed/s, MiB")
    for number, one in enumerate(minutes, 1):
        print(
            f"  {number:2d} {one.p50_ms:7.1f} {one.p99_ms:7.1f} {one.pushed / 60:8.0f}"
            f" {one.completed / 60:8.0f} {one.memory_mib:5d}"
        )


def judge(minutes: list[Minute]) -> list[str]:
    problems = []
    worst = max(one.p99_ms for one in minutes)
    if worst > LIMIT * minutes[0].p99_ms:
        problems.append(f"p99 of a minute {worst:.1f} ms, of the first {minutes[0].p99_ms:.1f}")
    memory = [one.memory_mib for one in minutes[1:]] or [minutes[0].memory_mib]
    if memory[-1] > memory[0] * GROWTH:
        problems.append(f"the broker grew from {memory[0]} to {memory[-1]} MiB")
    pushed, completed = (
        sum(getattr(one, what) for one in minutes) for what in ("pushed", "completed")
    )
    if completed < 0.98 * pushed:
        problems.append(f"{completed} of {pushed} messages were completed")
    return problems


def soak(stack: Stack, arguments: argparse.Namespace) -> list[str]:
    [top] = steady(stack, arguments, "top", None, 1)
    rate = top.completed / 60 * arguments.share
    print(f"unthrottled {top.completed / 60:.0f} messages/s; {rate:.0f}/s from now on", flush=True)
    free = steady(stack, arguments, "steady", rate, arguments.minutes)
    tell("steady", free)
    if arguments.held_minutes:
        with stack.postgres.database.connect(autocommit=False) as held:
            held.execute("SELECT pg_current_xact_id()")
            beside = steady(stack, arguments, "held", rate, arguments.held_minutes)
            tell("beside an open transaction", beside)
    print(*stack.checkpoints(), sep="\n")
    return judge(free)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--held-minutes", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.5, help="of the unthrottled rate")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=10)
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
