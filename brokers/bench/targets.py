"""Goals: what the figures should reach on a small machine, and whether they did.

Imports rows. Used by report.py's caller, the bench command.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from brokers.bench.rows import Row

Read = Callable[[Mapping[str, Row]], float | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One goal that this run can judge."""

    text: str
    value: float
    goal: float
    at_most: bool

    @property
    def is_reached(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def __str__(self) -> str:
        word = "reached" if self.is_reached else "MISSED "
        bound = "at most" if self.at_most else "at least"
        return f"{word}  {self.text}: {self.value:,.2f} ({bound} {self.goal:,.2f})"

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "is_reached": self.is_reached}


def rate(name: str) -> Read:
    return lambda rows: rows[name].rate


def figure(name: str, key: str) -> Read:
    return lambda rows: rows[name].figures[key]


def quotient(name: str, other: str) -> Read:
    def read(rows: Mapping[str, Row]) -> float | None:
        part, whole = rows[name].rate, rows[other].rate
        return part / whole if part is not None and whole else None

    return read


# Of one procedure's rate at the one size to that at the other: 1.5 times the cost at most.
WITHIN = 1 / 1.5
AT_LEAST: tuple[tuple[str, Read, float], ...] = (
    ("push batch 1, 64 producers, msg/s", rate("push_b1_64"), 12_000),
    ("push batch 100, msg/s", rate("push_b100"), 90_000),
    ("push batch 100 of direct", lambda rows: rows["push_b100"].ratio, 0.75),
    ("pop and acknowledge batch 100, msg/s", rate("pop_b100"), 120_000),
    ("end to end batch 100, msg/s", rate("e2e_b100"), 60_000),
    ("end to end batch 1, msg/s", rate("e2e_b1"), 4000),
    ("end to end batch 1: consumed of pushed", figure("e2e_b1", "consumed_share"), 0.95),
    (
        "pop at 100,000 partitions of 100",
        quotient("partitions_100000_pop1", "partitions_100_pop1"),
        WITHIN,
    ),
    (
        "pop batch 100 at 100,000 partitions of 100",
        quotient("partitions_100000_pop100", "partitions_100_pop100"),
        WITHIN,
    ),
    ("pop batch 1 with a backlog of none", quotient("backlog_full_pop1", "backlog_none_pop1"), 0.8),
    (
        "pop batch 100 with a backlog of none",
        quotient("backlog_full_pop100", "backlog_none_pop100"),
        0.8,
    ),
)
AT_MOST: tuple[tuple[str, Read, float], ...] = (
    ("push at 50/s above a bare commit, ms", figure("latency", "push_above_commit_ms"), 0.8),
    ("push -> parked consumer p50, ms", lambda rows: rows["latency"].p50_ms, 2),
    ("push -> parked consumer p99, ms", lambda rows: rows["latency"].p99_ms, 6),
    ("claim calls of one push", figure("parked", "claims_of_one_push"), 3),
    ("idle claim and probe calls a second", figure("parked", "idle_calls_per_s"), 2),
    ("idle share of a processor", figure("parked", "idle_cpu_share"), 0.05),
    ("KiB a parked pop", figure("parked", "memory_kib_per_pop"), 20),
)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Those goals whose figures were measured."""
    by_name = {row.name: row for row in rows}
    found = []
    for goals, at_most in ((AT_LEAST, False), (AT_MOST, True)):
        for text, read, goal in goals:
            try:
                value = read(by_name)
            except KeyError:
                continue
            if value is not None:
                found.append(Verdict(text, value, goal, at_most))
    return found
