"""Settings of what the broker tells about itself.

Imports config_values. Used by config.py.
"""

from dataclasses import dataclass

from brokers.config_values import setting

INT_MAX = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConfig:
    """How far behind now nothing new is believed to appear, where PostgreSQL does not tell; and
    how old history, and lists of what was counted, may be when they are told again."""

    safe_floor_ms: int = setting("QUEEN_FETCH_SAFE_FLOOR_MS", default=30_000, floor=1, high=INT_MAX)
    fresh_ms: int = setting("QUEEN_ANALYTICS_FRESH_MS", default=5000, high=60_000)
