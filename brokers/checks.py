"""System checks: settings under which the broker would misbehave are refused.

Imports nothing of ours. Registered by apps.py.
"""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register()
def database_settings(
    app_configs: Sequence[AppConfig] | None, **options: Any
) -> list[CheckMessage]:
    """Under ASGI a kept connection belongs to a thread that may never come back: it leaks."""
    database = settings.DATABASES["default"]
    problems: list[CheckMessage] = []
    if database.get("CONN_MAX_AGE", 0) != 0:
        problems.append(
            Error(
                "CONN_MAX_AGE must be 0 on the broker's database.",
                hint="Under ASGI kept connections leak; the broker has a pool of its own.",
                id="brokers.E001",
            )
        )
    if database.get("ATOMIC_REQUESTS"):
        problems.append(
            Error(
                "ATOMIC_REQUESTS must be off on the broker's database.",
                hint="Requests would sit idle in a transaction while they wait.",
                id="brokers.E002",
            )
        )
    return problems
