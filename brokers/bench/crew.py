"""The crew: the load processes of one run, started together and always stopped.

Stations: spawn -> everybody is connected -> `go` with one window for all -> CPU is sampled
at both ends of the window -> results. Every wait has a limit.

Imports machine. Used by instrument.py.
"""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokers.bench.machine import CpuClock, CpuUse, cpu_count
from brokers.bench.tally import quantile_ms

PROJECT_DIR = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 60.0
RESULT_TIMEOUT_S = 30.0
START_DELAY_S = 0.05


class BenchError(Exception):
    """The bench cannot go on; the text says why."""


@dataclass(slots=True)
class Outcome:
    """What the processes of a run did between `opens` and `ends`."""

    seconds: float = 0.0
    cpu: CpuUse | None = None
    generator_s: float = 0.0
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)
    latencies_us: list[int] = field(default_factory=list)

    @property
    def others_share(self) -> float | None:
        """The share of the machine that was gone to others while this was measured."""
        cpu = self.cpu
        if cpu is None or cpu.machine_s is None or cpu.broker_s is None or cpu.postgres_s is None:
            return None
        others_s = cpu.machine_s - cpu.broker_s - cpu.postgres_s - self.generator_s
        return max(0.0, others_s / (self.seconds * cpu_count()))

    def rate(self, role: str) -> float:
        """Messages a second; a role that ran dry is measured up to its last message."""
        one = self.roles[role]
        return float(one["messages"]) / one["active_s"] if one["active_s"] > 0 else 0.0

    def quantile_ms(self, role: str, share: float) -> float | None:
        return quantile_ms(self.roles[role]["samples_us"], share)

    def errors(self) -> list[str]:
        return [
            f"{name}: {one['errors']} x {one['first_error']}"
            for name, one in self.roles.items()
            if one["errors"]
        ]


class Worker:
    """One process; a thread reads its lines so that no wait is without a limit."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "brokers.bench.worker"],
            cwd=PROJECT_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.say(json.dumps(job))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise BenchError("a load process ended before it was told to") from None

    def hear(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=max(0.1, timeout_s))
        except queue.Empty:
            raise BenchError("a load process does not answer") from None
        if not line:
            raise BenchError("a load process failed; what it said is above")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self._lines.put(line)
        except ValueError:
            return  # closed under us by stop()
        finally:
            self._lines.put("")


class Crew:
    """A context: `ready` workers inside, none afterwards."""

    def __init__(self, jobs: Sequence[dict[str, Any]]) -> None:
        self._jobs = jobs
        self.workers: list[Worker] = []

    def __enter__(self) -> "Crew":
        try:
            for job in self._jobs:
                self.workers.append(Worker(job))
            for worker in self.workers:
                worker.hear(READY_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()

    def go(self, *, warmup_s: float, seconds: float) -> tuple[float, float]:
        """Start them all; returns when the window opens and ends, on the monotonic clock."""
        opens_at = time.monotonic() + START_DELAY_S + warmup_s
        for worker in self.workers:
            worker.say(f"go {opens_at} {opens_at + seconds}")
        return opens_at, opens_at + seconds

    def results(
        self, timeout_s: float, progress: Callable[[int], None] | None = None
    ) -> list[dict[str, Any]]:
        until = time.monotonic() + timeout_s
        results = []
        for worker in self.workers:
            heard = worker.hear(until - time.monotonic())
            while "progress" in heard:
                if progress:
                    progress(heard["progress"])
                heard = worker.hear(until - time.monotonic())
            results.append(heard)
        return results


def run(
    jobs: Sequence[dict[str, Any]], *, warmup_s: float, seconds: float, clock: CpuClock
) -> Outcome:
    """One measured run of a crew."""
    with Crew(jobs) as crew:
        opens_at, ends_at = crew.go(warmup_s=warmup_s, seconds=seconds)
        time.sleep(max(0.0, opens_at - time.monotonic()))
        before = clock.read()
        time.sleep(max(0.0, ends_at - time.monotonic()))
        used = clock.read() - before
        results = crew.results(RESULT_TIMEOUT_S)
    outcome = Outcome(seconds=seconds, cpu=used)
    for one in results:
        outcome.generator_s += one["cpu_s"]
        outcome.latencies_us += one.get("latencies_us", [])
        for name, role in one["result"].items():
            # Well before the end: it ran dry.
            dry = 0 < role["last_at"] < ends_at - 0.1 * seconds
            role["active_s"] = role["last_at"] - opens_at if dry else seconds
            role["ran_dry"] = dry
            outcome.roles[name] = role
    return outcome
