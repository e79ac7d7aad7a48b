"""What is printed: tables for people, JSON for programs.

JSON is printed as the broker sent it. In a table nothing that a producer wrote can reach the
terminal as a control sequence.

Imports nothing of ours. Used by main.py and the verbs.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from brokers.management.queen.client import Answer

CELL_CHARACTERS_MAX = 120
BOLD, RED, GREEN, YELLOW, PLAIN = "\033[1m", "\033[31m", "\033[32m", "\033[33m", "\033[0m"
COLOURS = {
    "queued": GREEN,
    "healthy": GREEN,
    "ready": GREEN,
    "duplicate": YELLOW,
    "buffered": YELLOW,
    "paused": YELLOW,
    "failed": RED,
    "error": RED,
    "unhealthy": RED,
}


class Printer:
    """`as_json` prints what came; else tables, coloured where `colours` says so."""

    def __init__(self, out: TextIO, errors: TextIO, *, as_json: bool, colours: bool) -> None:
        self._out = out
        self._errors = errors
        self.as_json = as_json
        self._colours = colours

    def answer(self, answer: Answer) -> None:
        """The document as the broker sent it."""
        self.line(answer.raw.decode("utf-8", "replace"))

    def table(self, rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> None:
        cells = [[cell(row.get(name)) for name in columns] for row in rows]
        widths = [
            max(len(name), *(len(row[no]) for row in cells)) if cells else len(name)
            for no, name in enumerate(columns)
        ]
        self.line(self._painted(self._padded(columns, widths).upper(), BOLD))
        for row in cells:
            self.line(self._padded(row, widths, paint=True))

    def members(self, document: dict[str, Any], *, indent: str = "") -> None:
        """One member a line; objects within are set in."""
        width = max((len(str(name)) for name in document), default=0)
        for name, value in document.items():
            if isinstance(value, dict) and value:
                self.line(f"{indent}{cell(name)}:")
                self.members(value, indent=f"{indent}  ")
            elif not isinstance(value, list):
                shown = cell(value)
                self.line(f"{indent}{cell(name):<{width}}  {self._hue(shown)}")

    def said(self, text: str) -> None:
        """A sentence for whoever reads a table; programs see the JSON instead."""
        if not self.as_json:
            self.line(text)

    def line(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def complain(self, text: str) -> None:
        self._errors.write(f"{self._painted('error:', RED)} {harmless(text)}\n")
        self._errors.flush()

    def _padded(self, row: Sequence[str], widths: Sequence[int], *, paint: bool = False) -> str:
        parts = []
        for no, (text, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - len(text)) if no < len(row) - 1 else ""
            parts.append((self._hue(text) if paint else text) + padding)
        return "  ".join(parts)

    def _hue(self, text: str) -> str:
        colour = COLOURS.get(text)
        return text if colour is None else self._painted(text, colour)

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._colours else text


def cell(value: Any) -> str:
    """A value on one line, and not without end."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = harmless(str(value))
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 3]}..."


def harmless(text: str) -> str:
    """Control characters and what else cannot be seen, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )
