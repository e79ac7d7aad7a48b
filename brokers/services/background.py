"""What runs in every broker beside its requests, from its start to its stop.

Imports services/{sweeper,spool,spool_directories}. Used by queen_project (serving.py, asgi.py).
"""

from typing import TYPE_CHECKING

from brokers.services.spool import Spooling
from brokers.services.spool_directories import Directories, open_directories
from brokers.services.sweeper import Sweeper

if TYPE_CHECKING:
    from brokers.runtime import Broker


def attach(broker: "Broker", directories: Directories | None = None) -> None:
    """Before the broker starts. Under a foreign ASGI server nobody has opened the spool yet,
    and the server may run several processes under one server id.
    """
    if directories is None:
        directories = open_directories(broker.config, shared_id=True)
    spool = Spooling(broker, *directories)
    broker.use_spool(spool)
    broker.run_also("spool", spool.run)
    if broker.config.sweeper.enabled:
        broker.run_also("sweeper", Sweeper(broker).run)
