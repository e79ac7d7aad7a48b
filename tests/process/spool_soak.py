"""The disk spool under fire: PostgreSQL and the broker are killed, and nothing may be lost for it.

    python tests/process/spool_soak.py outage --rate 5000 --away 60
    python tests/process/spool_soak.py kills --kills 200

Each scenario starts a durable PostgreSQL and a broker of its own, kills them without warning,
and holds the log, as a fresh group reads it from the start, against what the producers were
told: every message that was answered `queued` or `buffered` is there, once, and in the order
in which its producer pushed to its partition.

outage    a steady load on 100 partitions; PostgreSQL is killed and away for a while. No push is
          answered anything but 201 and queued, buffered or duplicate. How soon the spool is
          empty again, and what pushes to other partitions are slowed down meanwhile.
one       the same with the whole load on one partition: it has to get out of the spool again.
spooling  PostgreSQL away, pushes as fast as they are answered: messages a second into the spool.
kills     the broker is killed at random moments while it spools and while it drains; half of
          the queues have deduplication, the other half has not.
restart   a1 queued, a2 buffered, the broker restarted or killed, a3 before and after
          PostgreSQL's return: a1, a2, a3.
all       every one of them

With --no-limits speeds are told and not judged. The last line is the verdict; the exit status is
0 only when it is PASS.
"""

import argparse
import contextlib
import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.harness import KillablePostgres
from tests.process.spool_load import (
    HELD,
    Broker,
    Clerk,
    Crew,
    Failed,
    Judge,
    Load,
    read_log,
    scene,
)

UNLIMITED = 1e18
# Small files and batches: more moments between them for a kill to meet.
FINE_GRAINED = {"FILE_BUFFER_EVENTS_PER_FILE": "300", "FILE_BUFFER_MAX_BATCH": "20"}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


# --- PostgreSQL goes away under load -------------------------------------------------------------


def outage(asked: argparse.Namespace, directory: Path, judge: Judge) -> None:
    load = Load(
        queue="steady",
        rate=asked.rate,
        batch=asked.batch,
        producers=asked.producers,
        partitions=asked.partitions,
    )
    # Partitions of their own each time: none of them was ever in the spool.
    before, during = (
        Load(queue=f"others-{when}", rate=asked.other_rate, batch=10, producers=8, partitions=20)
        for when in ("before", "during")
    )
    with scene(directory, **asked.environment) as (postgres, broker):
        with Crew(load, directory, broker.port) as crew:
            usual = steady_rate(before, directory, broker, asked.before)
            say("PostgreSQL is killed")
            down = time.monotonic()
            postgres.kill()
            time.sleep(max(asked.away - (time.monotonic() - down), 0.0))
            if not asked.load_after:
                crew.stop()
            away_until = time.monotonic()
            say(f"{broker.pending()} messages in the spool; PostgreSQL comes back")
            postgres.start()
            back = time.monotonic()
            broker.until("/readyz")
            with Crew(during, directory, broker.port) as other_crew:
                began = time.monotonic()
                broker.until_drained(asked.patience)
                drained = time.monotonic()
                other_crew.stop()
            if asked.load_after:
                time.sleep(2.0)
                crew.stop()
        broker.until_drained(asked.patience)
        clerk = Clerk(directory, load)
        spooled = clerk.count("buffered", down, away_until) / (away_until - down)
        print(f"  buffered while away: {spooled:.0f} messages/s", flush=True)
        judge.limit("return to an empty spool, s", drained - back, high=asked.drained_s_max)
        stored = Clerk(directory, during).count("queued", began, drained)
        share = stored / (drained - began) / usual
        judge.limit("share of their rate kept by others", share, low=asked.others_share_min)
        for one in (load, before, during):
            judge.queue(one, directory, read_log(broker.port, one.queue), http_only=True)
        nothing_set_aside(broker, judge)


def steady_rate(load: Load, directory: Path, broker: Broker, seconds: float) -> float:
    """Messages a second that get stored while nothing is wrong."""
    with Crew(load, directory, broker.port) as crew:
        # Processes start first.
        time.sleep(1.0)
        began = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
        crew.stop()
    stored = Clerk(directory, load).count("queued", began, ended)
    say(f"{load.queue}: {stored / (ended - began):.0f} messages/s")
    return max(stored / (ended - began), 0.001)


def one(asked: argparse.Namespace, directory: Path, judge: Judge) -> None:
    load = Load(
        queue="one",
        rate=asked.rate,
        batch=asked.batch,
        producers=asked.producers,
        partitions=1,
    )
    with scene(directory, **asked.environment) as (postgres, broker):
        with Crew(load, directory, broker.port) as crew:
            time.sleep(asked.before)
            say("PostgreSQL is killed")
            postgres.kill()
            time.sleep(asked.away)
            say(f"{broker.pending()} messages in the spool; PostgreSQL comes back")
            postgres.start()
            back = time.monotonic()
            # Caught up: what is left in the spool was accepted within the last second.
            caught_up = within_a_second_of(broker, asked.rate, asked.patience)
            say(f"caught up {caught_up - back:.1f} s after the return")
            clerk = Clerk(directory, load)
            deadline = time.monotonic() + asked.patience
            while time.monotonic() - max(clerk.last("buffered"), caught_up) < 3.0:
                if time.monotonic() > deadline:
                    raise Failed("pushes to the partition are still buffered")
                time.sleep(0.2)
            crew.stop()
        until_queued = max(clerk.last("buffered") - caught_up, 0.0)
        judge.limit("catching up, s", caught_up - back, high=asked.drained_s_max)
        judge.limit("caught up to queued again, s", until_queued, high=asked.queued_s_max)
        broker.until_drained(asked.patience)
        judge.queue(load, directory, read_log(broker.port, load.queue), http_only=True)
        nothing_set_aside(broker, judge)


def within_a_second_of(broker: Broker, rate: float, patience_s: float) -> float:
    deadline = time.monotonic() + patience_s
    while not 0 <= broker.pending() <= rate:
        if time.monotonic() > deadline:
            raise Failed(f"the drain never catches up: {broker.pending()} pending")
        time.sleep(0.05)
    return time.monotonic()


def spooling(asked: argparse.Namespace, directory: Path, judge: Judge) -> None:
    load = Load(queue="spooling", rate=0, batch=asked.batch, producers=asked.producers)
    with scene(directory, **asked.environment) as (postgres, broker):
        postgres.kill()
        with Crew(load, directory, broker.port) as crew:
            time.sleep(1.0)
            began = time.monotonic()
            time.sleep(asked.spooling_s)
            ended = time.monotonic()
            crew.stop()
        spooled = Clerk(directory, load).count("buffered", began, ended)
        judge.limit(
            "messages/s into the spool", spooled / (ended - began), low=asked.spooling_rate_min
        )
        postgres.start()
        broker.until("/readyz")
        took = broker.until_drained(asked.patience)
        total = Clerk(directory, load).count("buffered")
        print(f"  messages/s out of the spool: {total / max(took, 0.001):.0f}", flush=True)
        judge.queue(load, directory, read_log(broker.port, load.queue), http_only=True)
        nothing_set_aside(broker, judge)


def nothing_set_aside(broker: Broker, judge: Judge) -> None:
    aside = broker.set_aside()
    if aside is None or aside["events"] or aside["files"]:
        judge.blame("set aside", str(aside))


# --- the broker is killed ------------------------------------------------------------------------


def kills(asked: argparse.Namespace, directory: Path, judge: Judge) -> None:
    """Rounds of: some kills while everything is spooled, some while it is drained."""
    loads = [
        Load(
            queue=f"kills-{number}",
            rate=asked.kill_rate / asked.queues,
            batch=20,
            producers=1,
            partitions=5,
            # Without deduplication what is sent twice is there twice.
            insist=number % 2 == 0,
        )
        for number in range(asked.queues)
    ]
    dice = random.Random(asked.seed)
    with scene(directory, **FINE_GRAINED | asked.environment) as (postgres, broker):
        for load in loads:
            broker.configure(load.queue, dedupWindowSeconds=3600 if load.insist else 0)
        with contextlib.ExitStack() as working:
            crews = [working.enter_context(Crew(load, directory, broker.port)) for load in loads]
            shot = 0
            met: Counter[str] = Counter()
            for number in itertools.count():
                if shot >= asked.kills:
                    break
                some = min(asked.kills_a_round, asked.kills - shot)
                met += shoot_round(
                    asked, dice, postgres, broker, some, by_maintenance=number % 3 == 2
                )
                shot += some
                say(f"{shot} kills, {broker.pending()} pending")
                if number % 4 == 3:
                    # Now and then all the way: an empty spool is a state too.
                    for crew in crews:
                        crew.pause()
                    took = broker.until_drained(asked.patience)
                    say(f"empty after {took:.1f} s")
                    for crew in crews:
                        crew.resume()
            for crew in crews:
                crew.stop()
        broker.until_drained(asked.patience)
        print(f"  kills met the spool {dict(met)}", flush=True)
        for load in loads:
            judge.queue(load, directory, read_log(broker.port, load.queue), http_only=False)
        nothing_set_aside(broker, judge)


def shoot_round(
    asked: argparse.Namespace,
    dice: random.Random,
    postgres: KillablePostgres,
    broker: Broker,
    some: int,
    *,
    by_maintenance: bool,
) -> Counter[str]:
    """Spool, by an outage or by push maintenance, then drain; the kills are spread over both.

    Returns in which state the kills found the spool.
    """
    if by_maintenance:
        broker.maintenance(True)
    else:
        postgres.kill()
    met: Counter[str] = Counter()
    spooling_kills = (some + 1) // 2
    for _ in range(spooling_kills):
        shoot(dice, broker, "/livez", asked.kill_window)
        met["filling"] += 1
    # Something to drain, for more than one kill.
    broker.until("/livez")
    time.sleep(2 * asked.kill_window)
    if by_maintenance:
        broker.maintenance(False)
    else:
        postgres.start()
    for _ in range(some - spooling_kills):
        full = shoot(dice, broker, "/readyz", asked.kill_window / 2)
        met["draining" if full else "empty"] += 1
    broker.until("/readyz")
    return met


def shoot(dice: random.Random, broker: Broker, awaited: str, window_s: float) -> bool:
    """A kill at any moment after the start, sometimes before the broker listens.

    Returns whether there was something in the spool.
    """
    if dice.random() < 0.8:
        broker.until(awaited)
    time.sleep(dice.uniform(0.0, window_s))
    broker.kill()
    spool = broker.directory / "broker" / "spool"
    left = [path for path in spool.glob("*/*") if path.suffix in (".buf", ".tmp")]
    broker.start()
    return bool(left)


# --- the order over a restart --------------------------------------------------------------------


def restart(asked: argparse.Namespace, directory: Path, judge: Judge) -> None:
    with scene(directory, **asked.environment) as (postgres, broker):
        for signum, dedup_s in itertools.product((signal.SIGTERM, signal.SIGKILL), (3600, 0)):
            queue = f"restart-{signal.Signals(signum).name}-{dedup_s}"
            broker.configure(queue, dedupWindowSeconds=dedup_s)
            say(queue)
            told = [push_one(broker, queue, "a1", ("queued",))]
            postgres.kill()
            told.append(push_one(broker, queue, "a2", ("buffered",)))
            broker.end(signum)
            broker.start()
            broker.until("/livez")
            told.append(push_one(broker, queue, "a3 away", ("buffered",)))
            postgres.start()
            broker.until("/readyz")
            told.append(push_one(broker, queue, "a3 back", HELD))
            broker.until_drained(asked.patience)
            told.append(push_one(broker, queue, "a4", ("queued",)))
            messages = broker.line.ask(
                "GET",
                f"/api/v1/pop/queue/{queue}?consumerGroup=g&batch=100&subscriptionMode=all",
            )[1]["messages"]
            consumed = [message["data"] for message in messages]
            if consumed != ["a1", "a2", "a3 away", "a3 back", "a4"]:
                judge.blame("order", f"{queue}: consumed {consumed}, told {told}")


def push_one(broker: Broker, queue: str, what: str, expected: tuple[str, ...]) -> str:
    item = {"queue": queue, "partition": "p", "transactionId": what, "payload": what}
    answer = broker.line.ask("POST", "/api/v1/push", {"items": [item]})
    if answer is None or answer[0] != 201 or answer[1][0]["status"] not in expected:
        raise Failed(f"{queue}: push of {what} was answered {answer}, expected {expected}")
    return str(answer[1][0]["status"])


# --- the command line ----------------------------------------------------------------------------

Scenario = Callable[[argparse.Namespace, Path, Judge], None]
SCENARIOS: dict[str, Scenario] = {
    "outage": outage,
    "one": one,
    "spooling": spooling,
    "restart": restart,
    "kills": kills,
}


def play(name: str, asked: argparse.Namespace) -> bool:
    print(f"--- {name}", flush=True)
    judge = Judge()
    if asked.directory is None:
        directory = Path(tempfile.mkdtemp(prefix="spool-", dir="/tmp"))
    else:
        directory = asked.directory / name
        directory.mkdir(parents=True)
    # PostgreSQL may run under another account, which has to pass through.
    directory.chmod(0o711)
    print(f"  witnesses and the broker's log: {directory}", flush=True)
    try:
        SCENARIOS[name](asked, directory, judge)
    except Failed as failed:
        judge.blame("run", str(failed))
    passed = judge.verdict()
    if passed and asked.directory is None:
        shutil.rmtree(directory)
    return passed


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", choices=[*SCENARIOS, "all"])
    parser.add_argument("--rate", type=float, default=5000, help="messages a second")
    parser.add_argument("--batch", type=int, default=100, help="messages a push")
    parser.add_argument("--producers", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--other-rate", type=float, default=1000, help="messages a second")
    parser.add_argument("--before", type=float, default=10, help="seconds until PostgreSQL goes")
    parser.add_argument("--away", type=float, default=60, help="seconds that it is gone")
    parser.add_argument(
        "--load-after",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="outage: go on with the load after the return",
    )
    parser.add_argument("--spooling-s", type=float, default=10)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kills-a-round", type=int, default=6)
    parser.add_argument("--kill-window", type=float, default=1.0, help="seconds after the start")
    parser.add_argument("--kill-rate", type=float, default=2000, help="messages a second")
    parser.add_argument("--queues", type=int, default=4, help="kills: half without deduplication")
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for a drain")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the broker; may be given more than once",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="else a temporary one, kept if it fails")
    parser.add_argument("--drained-s-max", type=float, default=60)
    parser.add_argument("--others-share-min", type=float, default=0.8)
    parser.add_argument("--queued-s-max", type=float, default=5)
    parser.add_argument("--spooling-rate-min", type=float, default=10_000)
    parser.add_argument("--no-limits", action="store_true", help="judge no speed")
    asked = parser.parse_args(arguments)
    asked.environment = dict(one.split("=", 1) for one in asked.set)
    if asked.no_limits:
        asked.drained_s_max = asked.queued_s_max = UNLIMITED
        asked.others_share_min = asked.spooling_rate_min = 0.0
    return asked


def main(arguments: list[str] | None = None) -> int:
    asked = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("VERDICT: FAIL stopped from outside"))
    names = list(SCENARIOS) if asked.scenario == "all" else [asked.scenario]
    passed = [play(name, asked) for name in names]
    verdict = "PASS" if all(passed) else "FAIL"
    print(f"VERDICT: {verdict} {', '.join(names)}")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
