"""Settings of the console's live pictures.

Imports config_values. Used by config.py.
"""

from dataclasses import dataclass

from brokers.config_values import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """How often a picture is made while somebody watches (more seldom where many do), how many
    may watch at one process, and how often it is asked whether they still may."""

    interval_ms: int = setting("QUEEN_LIVE_INTERVAL_MS", default=2000, low=250, high=60_000)
    viewers_max: int = setting("QUEEN_LIVE_VIEWERS_MAX", default=2000, low=1, high=100_000)
    recheck_s: float = setting("QUEEN_LIVE_RECHECK_S", default=30.0, low=1.0, high=3600.0)
