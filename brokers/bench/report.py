"""The report: an aligned table for people, JSON for machines.

Imports machine, rows, targets. Used by the bench command.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from brokers.bench import machine
from brokers.bench.rows import Row
from brokers.bench.targets import Verdict

HEADS = (
    "scenario",
    "what",
    "msg/s",
    "direct",
    "ratio",
    "combined",
    "ratio",
    "p50 ms",
    "p99 ms",
    "broker us",
    "pg us",
    "direct pg us",
    "load us",
    "others",
)
LEFT_COLUMNS = 2


def table(rows: Sequence[Row]) -> str:
    """One line a row, notes and errors below their row."""
    cells = [_cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(HEADS, *cells, strict=True)]
    lines = [_line(HEADS, widths)]
    for row, shown in zip(rows, cells, strict=True):
        lines.append(_line(shown, widths))
        lines += [f"    {note}" for note in row.notes]
        lines += [f"    ERROR {error}" for error in row.errors]
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        row.what,
        _count(row.rate),
        _count(row.direct),
        _fraction(row.ratio),
        _count(row.combined),
        _fraction(row.combined_ratio),
        _fraction(row.p50_ms),
        _fraction(row.p99_ms),
        _tenth(row.broker_us),
        _tenth(row.postgres_us),
        _tenth(row.direct_postgres_us),
        _tenth(row.generator_us),
        "" if row.others_share is None else f"{row.others_share:.0%}",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(
        cell.ljust(width) if at < LEFT_COLUMNS else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _fraction(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _tenth(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def write_json(
    path: Path, facts: Mapping[str, object], rows: Sequence[Row], goals: Sequence[Verdict]
) -> None:
    everything = {
        "facts": dict(facts),
        "rows": [row.as_dict() for row in rows],
        "goals": [goal.as_dict() for goal in goals],
    }
    path.write_text(json.dumps(everything, indent=2) + "\n")


def machine_facts() -> dict[str, object]:
    system = {"cpus": machine.cpu_count(), "system": platform.platform()}
    return {**system, "python": platform.python_version(), **machine.speed()}
