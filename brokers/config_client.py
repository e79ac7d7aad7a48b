"""Settings of the operator's command line: whom it asks, and how it prints.

Imports config_values. Used by queen_project/config.py and management/queen/.
"""

from dataclasses import dataclass

from brokers.config_values import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """`no_color` and `terminal` are what every program of a terminal goes by."""

    url: str = setting("QUEEN_URL", default="http://127.0.0.1:6632")
    token: str = setting("QUEEN_TOKEN", default="", secret=True)
    no_color: str = setting("NO_COLOR", default="")
    terminal: str = setting("TERM", default="")
