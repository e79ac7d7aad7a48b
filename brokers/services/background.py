"""What runs in every broker beside its requests, from its start to its stop.

Imports services/sweeper. Used by queen_project (serving.py, asgi.py).
"""

from typing import TYPE_CHECKING

from brokers.services.sweeper import Sweeper

if TYPE_CHECKING:
    from brokers.runtime import Broker


def attach(broker: "Broker") -> None:
    """Before the broker starts."""
    if broker.config.sweeper.enabled:
        broker.run_also("sweeper", Sweeper(broker).run)
