"""Tallies: what one role of a load process has done, inside the window and in all.

Imports nothing of ours. Used by load.py, roles.py, direct.py; the parent reads `result`.
"""

from typing import Any

SAMPLES_MAX = 4000
ERROR_CHARS_MAX = 300


class Tally:
    """Messages and requests. Only what ends while `open` counts for the rate."""

    def __init__(self) -> None:
        self.open = False
        self.now = 0.0
        self.last_at = 0.0
        self.messages = 0
        self.messages_in_all = 0
        self.requests = 0
        self.empty = 0
        self.errors = 0
        self.first_error = ""
        self.samples_us: list[int] = []

    def add(self, messages: int) -> None:
        self.messages_in_all += messages
        if self.open:
            self.messages += messages
            self.last_at = self.now

    def took(self, seconds: float) -> None:
        """One request was answered after so long."""
        if self.open:
            self.requests += 1
            self.samples_us.append(int(seconds * 1e6))

    def fail(self, what: str) -> None:
        self.errors += 1
        if not self.first_error:
            self.first_error = what[:ERROR_CHARS_MAX]

    def result(self) -> dict[str, Any]:
        samples = sorted(self.samples_us)
        step = max(1, -(-len(samples) // SAMPLES_MAX))
        # The tail is what is asked for, so thinning keeps the last of each step.
        return {
            "messages": self.messages,
            "messages_in_all": self.messages_in_all,
            "requests": self.requests,
            "empty": self.empty,
            "errors": self.errors,
            "first_error": self.first_error,
            "last_at": self.last_at,
            "samples_us": samples[step - 1 :: step] or samples[-1:],
        }


def quantile_ms(samples_us: list[int], share: float) -> float | None:
    """A quantile of all samples together, in milliseconds."""
    if not samples_us:
        return None
    ordered = sorted(samples_us)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1000
