"""What processes cost: CPU time of the broker and of PostgreSQL, from /proc.

PostgreSQL is its postmaster, its children, and what its ended children used. Where a
server is not on this machine, or /proc is not Linux's, there is nothing to tell.

Imports nothing of ours. Used by crew.py and instrument.py.
"""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
SPEED_STEPS = 1_000_000
SPEED_SENDS = 20_000


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Seconds of CPU; None where it cannot be known. `machine_s` is all that was not idle."""

    broker_s: float | None
    postgres_s: float | None
    machine_s: float | None

    def __sub__(self, other: "CpuUse") -> "CpuUse":
        return CpuUse(
            _difference(self.broker_s, other.broker_s),
            _difference(self.postgres_s, other.postgres_s),
            _difference(self.machine_s, other.machine_s),
        )


def _difference(late: float | None, early: float | None) -> float | None:
    return None if late is None or early is None else late - early


@dataclass(frozen=True, slots=True)
class CpuClock:
    """Reads the CPU time that two process trees have used so far."""

    broker_pid: int | None
    postmaster_pid: int | None

    def read(self) -> CpuUse:
        table = process_table()
        return CpuUse(
            tree_cpu_s(table, self.broker_pid, apart=self.postmaster_pid),
            tree_cpu_s(table, self.postmaster_pid, apart=None),
            machine_cpu_s(),
        )


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    parent: int
    own_s: float
    ended_children_s: float


def process_table() -> dict[int, Process]:
    table = {}
    for entry in os.scandir(PROC) if PROC.is_dir() else ():
        if entry.name.isdigit():
            process = read_process(int(entry.name))
            if process is not None:
                table[int(entry.name)] = process
    return table


def read_process(pid: int) -> Process | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may hold anything, parentheses too.
    name, _, rest = text.partition("(")[2].rpartition(")")
    words = rest.split()
    user, system, ended_user, ended_system = (int(words[at]) * TICK_S for at in range(11, 15))
    return Process(name, int(words[1]), user + system, ended_user + ended_system)


def tree_cpu_s(table: dict[int, Process], root: int | None, *, apart: int | None) -> float | None:
    """CPU of a process and its descendants, without the subtree `apart`."""
    if root is None or root not in table:
        return None
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        if pid != apart:
            total += table[pid].own_s + table[pid].ended_children_s
            waiting += children.get(pid, [])
    return total


def machine_cpu_s() -> float | None:
    """What all processes used, and what the host gave to other machines (steal)."""
    try:
        words = (PROC / "stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    # user nice system idle iowait irq softirq steal; the rest is counted in user already.
    return sum(int(words[at]) * TICK_S for at in (1, 2, 3, 6, 7, 8))


def postmaster_of(backend_pid: int) -> int | None:
    """The parent of a backend, if that runs here and is a PostgreSQL."""
    backend = read_process(backend_pid)
    if backend is None or "postgres" not in backend.name:
        return None
    parent = read_process(backend.parent)
    return backend.parent if parent is not None and "postgres" in parent.name else None


def speed() -> dict[str, float]:
    """Two constants of this minute: a step of Python, and a send with its receive, both in ns.

    On the same machine they tell a slow minute from a slow broker.
    """
    steps = range(SPEED_STEPS)
    began = time.perf_counter_ns()
    total = 0
    for step in steps:
        total += step & 7
    looped = time.perf_counter_ns()
    here, there = socket.socketpair()
    with here, there:
        for _ in range(SPEED_SENDS):
            here.send(b"x" * 300)
            there.recv(1000)
        sent = time.perf_counter_ns()
    return {
        "python_step_ns": round((looped - began) / SPEED_STEPS, 1),
        "socket_pass_ns": round((sent - looped) / SPEED_SENDS),
    }


def cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
