"""Nothing is lost: many producers and consumers, and kill -9 of all of them but the database.

    python tests/process/soak.py --messages 1000000 --producers 8 --consumers 8 --partitions 100

starts a broker of its own (`manage.py broker`; the environment says where its PostgreSQL is), lets
producers push to random partitions and two groups of consumers pop and ack, and meanwhile kills
consumers and the broker without warning and starts them again. A producer repeats a batch with its
transactionIds until each item was answered `queued` or `duplicate`. Whatever a process was told, it
first writes to its own append-only file, so that the file of a killed process is still a witness.

At the end a third group reads the whole log, and the files are held against it:

- every message that was pushed is in the log once, in its producer's order in each partition;
- every message was handed to both groups;
- a delivery is a piece of the log without a gap, and starts nowhere but behind a cursor: it never
  skips what was not acked, and a pop sent after an ack was answered hands out nothing below it;
- no offset of a group was completed by two acks that both say they moved the cursor.

The last line is the verdict; the exit status is 0 only when it is PASS. Imports nothing of ours.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
GROUPS = ("billing", "shipping")
AUDIT = "audit"
LEASE_S = 3
STALL_S = 120
forking = multiprocessing.get_context("fork")

Key = tuple[int, int]  # producer, number within (producer, partition)


@dataclass(frozen=True)
class Plan:
    messages: int
    producers: int
    consumers: int
    partitions: int
    batch: int
    broker_kills: int
    consumer_kill_every_s: float
    port: int
    queue: str
    directory: Path
    seed: int


class Line:
    """One keep-alive connection that reconnects for as long as the broker is being restarted."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float = 30) -> Any:
        """(status, decoded body), or None when no answer came: then anything may have happened."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout_s)
            self.connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = self.connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        except (OSError, http.client.HTTPException):
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            time.sleep(0.05)
            return None


class Witness:
    """An append-only file; a record is one write, so a kill leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record(self, **fields: Any) -> None:
        os.write(self.file, json.dumps(fields, separators=(",", ":")).encode() + b"\n")


class Count:
    """How many messages the producers have had answered, read on from where it stopped."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.messages = 0
        self.read: dict[Path, int] = defaultdict(int)

    def refresh(self) -> int:
        for path in self.directory.glob("producer-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self.read[path])
                while (line := file.readline()).endswith(b"\n"):
                    self.messages += json.loads(line)["n"]
                    self.read[path] += len(line)
        return self.messages


def records(directory: Path, pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob(pattern)):
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


# --- the processes ------------------------------------------------------------------------------


def produce(plan: Plan, producer: int) -> None:
    dice = random.Random(f"{plan.seed}-{producer}")
    line = Line(plan.port)
    witness = Witness(plan.directory / f"producer-{producer}.jsonl")
    share = plan.messages // plan.producers + (producer < plan.messages % plan.producers)
    numbers: dict[int, int] = defaultdict(int)
    sent = 0
    while sent < share:
        items = []
        for _ in range(min(plan.batch, share - sent)):
            partition = dice.randrange(plan.partitions)
            number = numbers[partition]
            numbers[partition] += 1
            items.append(
                {
                    "queue": plan.queue,
                    "partition": f"p-{partition}",
                    "transactionId": f"{producer}:{partition}:{number}",
                    "payload": [producer, number],
                }
            )
        statuses = push_until_stored(line, items)
        witness.record(n=len(items), statuses=statuses)
        sent += len(items)


def push_until_stored(line: Line, items: list[dict[str, Any]]) -> dict[str, int]:
    """Push a batch until every item is stored; the answers by status, of all attempts."""
    statuses: dict[str, int] = defaultdict(int)
    while True:
        answer = line.ask("POST", "/api/v1/push", {"items": items})
        if answer is None:
            statuses["no answer"] += 1
            continue
        status, rows = answer
        if status != 201:
            statuses[f"HTTP {status}"] += 1
            time.sleep(0.05)
            continue
        for row in rows:
            statuses[row["status"]] += 1
        if all(row["status"] in ("queued", "duplicate") for row in rows):
            return statuses
        time.sleep(0.02)


def consume(plan: Plan, group: str, name: str) -> None:
    dice = random.Random(f"{plan.seed}-{name}")
    line = Line(plan.port)
    witness = Witness(plan.directory / f"consumer-{group}-{name}.jsonl")
    path = (
        f"/api/v1/pop/queue/{plan.queue}?consumerGroup={group}&batch=200&partitions=4"
        f"&wait=true&timeout=1000&subscriptionMode=all&leaseSeconds={LEASE_S}"
    )
    while True:
        asked = time.monotonic()
        answer = line.ask("GET", path)
        if answer is None or answer[0] != 200:
            if answer is not None and answer[0] != 204:
                witness.record(http=answer[0])
                time.sleep(0.05)
            continue
        handed: dict[str, list[Key]] = defaultdict(list)
        for message in answer[1]["messages"]:
            handed[message["partition"]].append(tuple(message["data"]))
        witness.record(asked=asked, handed=handed)
        acks = choose_acks(dice, answer[1]["messages"])
        body = {"consumerGroup": group, "acknowledgments": [ack for ack, _ in acks]}
        answer = line.ask("POST", "/api/v1/ack/batch", body)
        if answer is None or answer[0] != 200:
            continue
        moved: dict[str, list[Key]] = defaultdict(list)
        for (ack, message), row in zip(acks, answer[1], strict=True):
            if ack["status"] == "completed" and row["success"] and not row["noop"]:
                moved[message["partition"]].append(tuple(message["data"]))
        if all(ack["status"] == "completed" for ack, _ in acks):
            witness.record(answered=time.monotonic(), moved=moved)


def choose_acks(
    dice: random.Random, messages: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Mostly the whole batch; sometimes only the last of each partition, or a nack somewhere."""
    chosen = messages
    way = dice.random()
    if way < 0.3:
        chosen = list({message["partition"]: message for message in messages}.values())
    acks = [
        (
            {
                "transactionId": message["transactionId"],
                "partitionId": message["partitionId"],
                "leaseId": message["leaseId"],
                "status": "completed",
            },
            message,
        )
        for message in chosen
    ]
    if way > 0.95:
        dice.choice(acks)[0]["status"] = "retry"
    return acks


class Broker:
    """The real process, started again after each kill -9 on the same port."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.log = (plan.directory / "broker.log").open("ab")
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"QUEEN_SERVER_ID": "soak"}
        command = [sys.executable, "manage.py", "broker", "--port", str(self.plan.port)]
        return subprocess.Popen(
            [*command, "--bind", "127.0.0.1"],
            cwd=PROJECT,
            env=environment,
            stdout=self.log,
            stderr=self.log,
        )

    def until_ready(self) -> None:
        line = Line(self.plan.port)
        deadline = time.monotonic() + STALL_S
        while (answer := line.ask("GET", "/readyz")) is None or answer[0] != 200:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit("VERDICT: FAIL the broker did not become ready; see its log")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self.start()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# --- the run ------------------------------------------------------------------------------------


def run(plan: Plan) -> bool:
    broker = Broker(plan)
    producers: list[Any] = []
    consumers: dict[int, Any] = {}
    try:
        broker.until_ready()
        producers = [started(produce, plan, n) for n in range(plan.producers)]
        born = 0
        for seat in range(plan.consumers):
            consumers[seat] = started(consume, plan, GROUPS[seat % 2], f"{born}")
            born += 1
        shoot(plan, broker, producers, consumers, born)
    finally:
        for process in [*producers, *consumers.values()]:
            process.kill()
            process.join()
    try:
        broker.until_ready()
        log = read_log(plan)
    finally:
        broker.stop()
    return judge(plan, log)


def started(target: Any, *arguments: Any) -> Any:
    process = forking.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def shoot(
    plan: Plan, broker: Broker, producers: list[Any], consumers: dict[int, Any], born: int
) -> None:
    """Kill and start again until everything is pushed and both groups have nothing left."""
    dice = random.Random(plan.seed)
    line = Line(plan.port)
    count = Count(plan.directory)
    began = moved = time.monotonic()
    next_shot = began + plan.consumer_kill_every_s
    next_word = began
    shots, broker_shots, seen = 0, 0, (-1, -1)
    while True:
        time.sleep(0.2)
        now = time.monotonic()
        pushed = count.refresh()
        if now >= next_shot:
            seat = dice.choice(list(consumers))
            consumers[seat].kill()
            consumers[seat].join()
            consumers[seat] = started(consume, plan, GROUPS[seat % 2], f"{born}")
            born, shots = born + 1, shots + 1
            next_shot = now + dice.uniform(0.5, 1.5) * plan.consumer_kill_every_s
        # The kills of the broker are spread over the pushing.
        due = plan.messages * (broker_shots + 1) // (plan.broker_kills + 1)
        if broker_shots < plan.broker_kills and pushed >= due:
            broker.kill()
            broker_shots += 1
        left = sum(pending(line, plan, group) for group in GROUPS)
        if (pushed, left) != seen:
            seen, moved = (pushed, left), now
        if now >= next_word:
            told = f"{pushed} pushed, {left} pending, {shots} + {broker_shots} kills"
            print(f"{now - began:7.1f} s  {told}", flush=True)
            next_word = now + 5
        if now - moved > STALL_S:
            raise SystemExit(f"VERDICT: FAIL nothing moves any more: {pushed=} {left=}")
        if pushed == plan.messages and left == 0 and broker_shots == plan.broker_kills:
            print(f"{now - began:7.1f} s  drained after {shots} + {broker_shots} kills", flush=True)
            return


def pending(line: Line, plan: Plan, group: str) -> int:
    answer = line.ask("GET", f"/api/v1/resources/queues/{plan.queue}/depth?group={group}")
    return answer[1]["pending"] if answer is not None and answer[0] == 200 else 1


def read_log(plan: Plan) -> dict[str, list[Key]]:
    """The whole log by partition, as a group that starts at the beginning is handed it."""
    line = Line(plan.port)
    log: dict[str, list[Key]] = defaultdict(list)
    path = (
        f"/api/v1/pop/queue/{plan.queue}?consumerGroup={AUDIT}&batch=10000&partitions=0"
        "&autoAck=true&subscriptionMode=all"
    )
    while True:
        answer = line.ask("GET", path)
        if answer is None or answer[0] not in (200, 204):
            raise SystemExit(f"VERDICT: FAIL the log cannot be read: {answer}")
        if answer[0] == 204:
            return log
        for message in answer[1]["messages"]:
            log[message["partition"]].append(tuple(message["data"]))


# --- the verdict --------------------------------------------------------------------------------


@dataclass
class Findings:
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(problem)


def judge(plan: Plan, log: dict[str, list[Key]]) -> bool:
    found = Findings()
    statuses: dict[str, int] = defaultdict(int)
    for record in records(plan.directory, "producer-*.jsonl"):
        for status, count in record["statuses"].items():
            statuses[status] += count
    print("push answers:", dict(statuses))

    stored = sum(map(len, log.values()))
    if stored != plan.messages:
        found.add(f"{plan.messages} messages were pushed, {stored} are in the log")
    for partition, keys in log.items():
        following: dict[int, int] = defaultdict(int)
        for producer, number in keys:
            if number != following[producer]:
                found.add(f"{partition}: {producer}:{number} where {following[producer]} was due")
            following[producer] = number + 1
    for group in GROUPS:
        judge_group(plan, group, log, found)

    for problem in found.problems:
        print("PROBLEM:", problem)
    verdict = "FAIL" if found.problems else "PASS"
    print(f"VERDICT: {verdict} {stored} messages, {len(log)} partitions, {len(GROUPS)} groups")
    return not found.problems


def judge_group(plan: Plan, group: str, log: dict[str, list[Key]], found: Findings) -> None:
    place = {
        (partition, key): offset
        for partition, keys in log.items()
        for offset, key in enumerate(keys)
    }
    handed: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    moves: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for record in records(plan.directory, f"consumer-{group}-*.jsonl"):
        if "http" in record and record["http"] >= 500:
            # Without its database a broker may say 500 to a pop; that loses nothing.
            continue
        for partition, keys in record.get("handed", {}).items():
            offsets = [place.get((partition, tuple(key)), -1) for key in keys]
            if offsets != list(range(offsets[0], offsets[0] + len(offsets))) or offsets[0] < 0:
                found.add(f"{group} {partition}: handed {offsets[:20]}, with gaps")
            handed[partition].append((record["asked"], offsets[0], offsets[-1]))
        for partition, keys in record.get("moved", {}).items():
            offsets = [place.get((partition, tuple(key)), -1) for key in keys]
            moves[partition] += [(record["answered"], offset) for offset in offsets]
    for partition, keys in log.items():
        judge_deliveries(f"{group} {partition}", len(keys), handed[partition], found)
        judge_moves(f"{group} {partition}", handed[partition], moves[partition], found)


def judge_deliveries(
    where: str, length: int, handed: list[tuple[float, int, int]], found: Findings
) -> None:
    """Every offset was handed out, and none was stepped over."""
    reached = -1
    for _, first, last in sorted(handed, key=lambda one: one[1]):
        if first > reached + 1:
            found.add(f"{where}: offsets {reached + 1}..{first - 1} were never handed out")
        reached = max(reached, last)
    if reached != length - 1:
        found.add(f"{where}: ends at {reached}, the log at {length - 1}")


def judge_moves(
    where: str,
    handed: list[tuple[float, int, int]],
    moves: list[tuple[float, int]],
    found: Findings,
) -> None:
    """No offset is completed twice, and no later pop gets what was completed before it."""
    offsets = [offset for _, offset in moves]
    if len(offsets) != len(set(offsets)):
        found.add(f"{where}: an offset was completed twice")
    answered = sorted(moves)
    done, at = -1, 0
    for asked, first, _ in sorted(handed):
        while at < len(answered) and answered[at][0] < asked:
            done = max(done, answered[at][1])
            at += 1
        if first <= done:
            found.add(f"{where}: offset {first} was handed out after {done} was completed")


# --- the command line ---------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stop_postgres() -> None:
    subprocess.run([sys.executable, "manage.py", "postgres", "--stop"], cwd=PROJECT, check=False)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Push, consume, kill; then count what is left.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument("--consumers", type=int, default=8, help="half of them in each group")
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100, help="messages a push")
    parser.add_argument("--broker-kills", type=int, default=3)
    parser.add_argument("--consumer-kill-every", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")
    parser.add_argument("--directory", type=Path, help="where the witnesses write; else temporary")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        directory = asked.directory
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
            # PostgreSQL may run under another account, which has to pass through.
            directory.chmod(0o711)
        directory.mkdir(parents=True, exist_ok=True)
        if "PG_HOST" not in os.environ and "QUEEN_DATA_DIR" not in os.environ:
            os.environ["QUEEN_DATA_DIR"] = str(directory / "data")
            stack.callback(stop_postgres)
        plan = Plan(
            messages=asked.messages,
            producers=asked.producers,
            consumers=asked.consumers,
            partitions=asked.partitions,
            batch=asked.batch,
            broker_kills=asked.broker_kills,
            consumer_kill_every_s=asked.consumer_kill_every,
            port=asked.port or free_port(),
            queue=f"soak-{os.getpid()}-{int(time.time())}",
            directory=directory,
            seed=asked.seed,
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("VERDICT: FAIL stopped from outside"))
        return 0 if run(plan) else 1


if __name__ == "__main__":
    sys.exit(main())
