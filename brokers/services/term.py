"""A term: one cycle's leadership of a task.

Imports nothing of ours. Used by services/leaders.py and the tasks themselves.
"""

import time
from dataclasses import dataclass


class Fenced(Exception):
    """Somebody else leads: whoever meets this stops, and has nothing to give back."""


@dataclass(slots=True, kw_only=True)
class Term:
    """The token that every step shows, and when the cycle has to end (a monotonic time)."""

    token: int
    ends_at: float
    cut_short: bool = False

    def is_over(self) -> bool:
        """Asked before each step that is not the last; what is left is the next cycle's."""
        if time.monotonic() < self.ends_at:
            return False
        self.cut_short = True
        return True
