"""Rows: what a scenario has found out, as it is printed and written.

Imports nothing of ours. Used by scenarios, report.py.
"""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class Row:
    """One measured run. Rates are messages a second, CPU is microseconds a message."""

    name: str
    what: str
    rate: float | None = None
    direct: float | None = None
    combined: float | None = None
    broker_us: float | None = None
    postgres_us: float | None = None
    generator_us: float | None = None
    direct_postgres_us: float | None = None
    others_share: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        return _ratio(self.rate, self.direct)

    @property
    def combined_ratio(self) -> float | None:
        return _ratio(self.rate, self.combined)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "combined_ratio": self.combined_ratio}


def _ratio(rate: float | None, other: float | None) -> float | None:
    return rate / other if rate is not None and other else None
