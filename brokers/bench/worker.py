"""A load process: `python -m brokers.bench.worker`, one job on its standard input.

Lines in: the job as JSON, then `go OPENS ENDS` (monotonic seconds) once everybody is
ready. Lines out, as JSON: `ready`, progress, and one result a role. It ends by itself in
bounded time, and at once when its parent goes away before `go`.

Imports load, roles, seeding, direct, tally. Started by crew.py.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from brokers.bench import payloads, roles, seeding, wire
from brokers.bench.load import Load, Role
from brokers.bench.tally import Tally


class Window:
    """The CPU time that this process used between the two calls of `mark`."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(time.process_time())

    @property
    def cpu_s(self) -> float:
        return self._marks[-1] - self._marks[0] if len(self._marks) > 1 else 0.0


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def await_go() -> tuple[float, float]:
    words = sys.stdin.readline().split()
    if len(words) != 3:
        sys.exit(0)
    return float(words[1]), float(words[2])


def main() -> None:
    job = json.loads(sys.stdin.readline())
    window = Window()
    if job["kind"] == "direct":
        _run_direct(job, window)
    else:
        _run_http(job, window)


def _run_direct(job: dict[str, Any], window: Window) -> None:
    # Here, so that a process that loads over HTTP does not wait for psycopg.
    from brokers.bench.direct import Direct

    tally = Tally()

    async def run() -> None:
        direct = Direct(job, tally)
        await direct.open()
        say(ready=True)
        opens_at, ends_at = await asyncio.to_thread(await_go)
        await direct.run(opens_at, ends_at, on_window=window.mark)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())
    say(result={job["verb"]: tally.result()}, cpu_s=window.cpu_s)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _run_http(job: dict[str, Any], window: Window) -> None:
    tallies: dict[str, Tally] = {}
    lead = roles.Lead(job.get("lead", 0), job.get("consumed_max", 0))
    clients = [
        client
        for one in job["roles"]
        for client in make_roles(one, tallies.setdefault(one["role"], Tally()), lead)
    ]
    load = Load(job["host"], job["port"], clients)
    say(ready=True)
    opens_at, ends_at = await_go()
    progress = (lambda count: say(progress=count)) if job.get("progress") else None
    try:
        load.run(opens_at, ends_at, on_window=window.mark, progress=progress)
    except (wire.Misframed, OSError) as error:
        next(iter(tallies.values())).fail(f"{type(error).__name__}: {error}")
    finally:
        load.close()
    results = {name: tally.result() for name, tally in tallies.items()}
    stamps = [us for one in clients if isinstance(one, roles.Consumer) for us in one.latencies_us]
    say(result=results, cpu_s=window.cpu_s, latencies_us=sorted(stamps))


def make_roles(one: dict[str, Any], tally: Tally, lead: roles.Lead) -> list[Role]:
    """The clients of one role of a job."""
    queue, count = one["queue"], one["count"]
    names = [payloads.partition_name(number) for number in range(one.get("partitions", 1))]
    data = payloads.payload(one["payload_bytes"])
    match one["role"]:
        case "producer":
            clients: list[Role] = []
            for number in range(count):
                # Fewer partitions than clients: they share; else each has its own.
                own = names[number::count] or [names[number % len(names)]]
                clients.append(
                    roles.Producer(
                        [_push(queue, name, data, one["batch"]) for name in own],
                        one["batch"],
                        tally,
                        lead,
                    )
                )
            return clients
        case "paced":
            return [roles.PacedProducer(queue, names, one["rate"], tally)]
        case "seeder":
            plan = seeding.requests(queue, len(names), one["total"], one["run"], data)
            return [seeding.Seeder(plan, tally) for _ in range(count)]
        case "consumer":
            return [
                roles.Consumer(
                    queue=queue,
                    group=one["group"],
                    batch=one["batch"],
                    partitions=one.get("claims", 1),
                    wait_ms=one.get("wait_ms", 2000),
                    tally=tally,
                    lead=lead,
                    payload=None if one.get("stamped") else data,
                )
                for _ in range(count)
            ]
        case unknown:
            raise ValueError(f"no such role: {unknown}")


def _push(queue: str, partition: str, data: bytes, batch: int) -> bytes:
    items = [payloads.item(queue, partition, data)] * batch
    return wire.post("/api/v1/push", payloads.push_body(items))


if __name__ == "__main__":
    main()
