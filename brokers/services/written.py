"""Written: management changed something, so what was read of it lately is told to nobody more.

Here it holds before the writer is answered. Peers, and the other workers of this broker, hear of
it by a hint; without one they tell for as long as `QUEEN_ANALYTICS_FRESH_MS` what they had read.

Imports mesh.hints. Called by api/door.py, services/statistics.py and services/mesh.py.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from mesh.hints import Written

if TYPE_CHECKING:
    from brokers.runtime import Broker


def tell(broker: "Broker", tenant: UUID | None) -> None:
    """`tenant` None: something of the whole cell."""
    heard(broker, tenant)
    broker.announce.tell(Written("" if tenant is None else str(tenant)))


def heard(broker: "Broker", tenant: UUID | None) -> None:
    """The same, when somebody else says so."""
    if tenant is None:
        broker.recent.forget()
    else:
        broker.recent.written(tenant)
