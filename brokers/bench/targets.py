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


AT_LEAST: tuple[tuple[str, Read, float], ...] = (
    ("push batch 1, 64 producers, msg/s", rate("push_b1_64"), 7000),
    ("push batch 100, msg/s", rate("push_b100"), 50_000),
    ("push batch 100 of direct", lambda rows: rows["push_b100"].ratio, 0.5),
    ("end to end batch 100, msg/s", rate("e2e_b100"), 40_000),
    ("end to end batch 1: consumed of pushed", figure("e2e_b1", "consumed_share"), 0.95),
    (
        "pop at 10,000 partitions of 100",
        quotient("partitions_10000_pop1", "partitions_100_pop1"),
        0.6,
    ),
    ("pop batch 1 with a backlog of none", quotient("backlog_full_pop1", "backlog_none_pop1"), 0.8),
    (
        "pop batch 100 with a backlog of none",
        quotient("backlog_full_pop100", "backlog_none_pop100"),
        0.8,
    ),
)
AT_MOST: tuple[tuple[str, Read, float], ...] = (
    ("push -> parked consumer p50, ms", lambda rows: rows["latency"].p50_ms, 4),
    ("push -> parked consumer p99, ms", lambda rows: rows["latency"].p99_ms, 15),
    ("claim calls of one push", figure("parked", "claims_of_one_push"), 3),
    ("idle claim and probe calls a second", figure("parked", "idle_calls_per_s"), 2),
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
