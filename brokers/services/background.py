"""What runs in every broker beside its requests, from its start to its stop.

Imports services/{sweeper,leaders,spool,spool_directories,mesh}. Used by queen_project (serving.py,
asgi.py).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from brokers.services.leaders import Leaders
from brokers.services.mesh import attach as attach_mesh
from brokers.services.spool import Spooling
from brokers.services.spool_directories import Directories, open_directories
from brokers.services.sweeper import Sweeper

if TYPE_CHECKING:
    from brokers.runtime import Broker


def attach(
    broker: "Broker", directories: Directories | None = None, *, mesh_socket: Path | None = None
) -> None:
    """Before the broker starts. Under a foreign ASGI server nobody has opened the spool yet,
    and the server may run several processes under one server id.

    `mesh_socket`: of the parent process that has the host's mesh node (mesh/local.py).
    """
    if directories is None:
        directories = open_directories(broker.config, shared_id=True)
    spool = Spooling(broker, *directories)
    broker.use_spool(spool)
    broker.run_also("spool", spool.run)
    if broker.siblings is not None:
        broker.run_also("siblings", broker.siblings.run)
    attach_mesh(broker, mesh_socket)
    if broker.config.sweeper.enabled:
        broker.run_also("sweeper", Sweeper(broker).run)
    broker.run_also("leader tasks", Leaders(broker).run)
