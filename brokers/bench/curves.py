"""Curves of the sweeps: one PNG each, and one page with every number.

Drawing needs matplotlib (requirements-dev.txt); without it the page is written all the same.

Imports sweep. Used by the bench command.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from brokers.bench.sweep import SWEEPS, Point, Sweep

PAGE = "curves.md"
DPI = 110
MARKED_RANGE = 50


def write(directory: Path, facts: Mapping[str, object], found: Mapping[str, list[Point]]) -> bool:
    """The page and the pictures; whether there are pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    pictures = [_draw(directory / f"{name}.png", SWEEPS[name], found[name]) for name in found]
    drawn = all(pictures)
    lines = [
        "# Curves",
        "",
        "Made by `manage.py bench --sweep`. One broker, PostgreSQL and the load",
    ]
    lines += ["on the same machine:", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    for name, points in found.items():
        lines += ["", f"## {SWEEPS[name].title}", ""]
        if drawn:
            lines += [f"![{SWEEPS[name].title}]({name}.png)", ""]
        lines += _table(SWEEPS[name], points)
    (directory / PAGE).write_text("\n".join(lines) + "\n")
    return drawn


def _table(sweep: Sweep, points: Sequence[Point]) -> list[str]:
    figures = sorted({key for point in points for key in point.row.figures})
    heads = [sweep.x_label, "", "messages/s", "p50 ms", "p99 ms", "broker us", "PostgreSQL us"]
    lines = [
        "| " + " | ".join([*heads, *figures]) + " |",
        "|" + "---|" * (len(heads) + len(figures)),
    ]
    for point in points:
        row = point.row
        numbers = [row.rate, row.p50_ms, row.p99_ms, row.broker_us, row.postgres_us]
        cells = [f"{point.x:,.0f}", point.series, *map(_shown, numbers)]
        cells += [_shown(row.figures.get(key)) for key in figures]
        lines.append("| " + " | ".join(cells) + " |")
        lines += [f"| | {text} |" + " |" * (len(cells) - 2) for text in (*row.notes, *row.errors)]
    return lines


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= MARKED_RANGE else f"{value:.2f}"


def _draw(path: Path, sweep: Sweep, points: Sequence[Point]) -> bool:
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        return False
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=DPI)
    for series in dict.fromkeys(point.series for point in points):
        line = [(one.x, sweep.value(one.row)) for one in points if one.series == series]
        line = [(x, y) for x, y in line if y is not None]
        axes.plot(*zip(*line, strict=True), marker="o", label=series)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(sweep.x_label)
    axes.set_ylabel(sweep.y_label)
    axes.set_title(sweep.title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return True
