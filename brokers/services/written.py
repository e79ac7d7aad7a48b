"""Written: something was changed, so what was read of it lately is told to nobody more.

Here it holds before the writer is answered. Peers, and the other workers of this broker, hear of
it by a hint; without one they tell for as long as `QUEEN_ANALYTICS_FRESH_MS` what they had read.
Hints of one tenant and topic are merged while they wait, so a burst of writes is one line.

Imports mesh.hints. Called by api/door.py, services/{kv,mesh,statistics,traces,transaction}.py.
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


def tell_topic(broker: "Broker", tenant: UUID | None, topic: str) -> None:
    """Something of that topic alone; `tenant` None: of any tenant's."""
    heard(broker, tenant, topic)
    # Said for every entry that is written: nothing is made for nobody.
    if broker.announce.outlet is not None:
        broker.announce.tell(Written("" if tenant is None else str(tenant), topic))


def heard(broker: "Broker", tenant: UUID | None, topic: str = "") -> None:
    """The same, when somebody else says so."""
    if topic:
        broker.recent.topic_written(tenant, topic)
    elif tenant is None:
        broker.recent.forget()
    else:
        broker.recent.written(tenant)
