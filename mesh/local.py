"""The mesh inside one host: a hub in the parent process, and a link in each worker.

`manage.py broker --workers N` has one parent and N workers. The parent runs the host's one
node (mesh/node.py), when there are peers, and always a LocalHub; each worker has a LocalLink
instead of a node. Frames are those of the mesh, over a Unix socket that only this account
may open, so without proof and MAC.

A hint of a worker goes to the other workers and to all links of the node. One that came over
a link goes to the workers only (a hub passes it on to its other links by itself: node.py).
A hint never comes back to the worker that offered it.

    parent                                       worker
        node = Node(settings) or None                link = LocalLink(path, server_id, receive)
        hub = LocalHub(path, node)                   task = create_task(link.run())
        await hub.start()                            link.offer(hint)
        await hub.stop()                             task.cancel()

Imports frames, hints, outbox, channel, node. Used by whoever starts workers, and in them by
brokers/services/mesh.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mesh.hints import Hint


class LocalHub:
    """The parent's end. Lives in one event loop; nothing here is needed for correctness."""

    def __init__(self, path: Path, node: Any = None) -> None:
        """`path`: of the Unix socket, at most 100 bytes; it is made, mode 0600, and an old one
        is replaced. `node`: the host's node, started and stopped by whoever made it; None when
        there are no peers: then the workers hear only each other.
        """
        raise NotImplementedError

    async def start(self) -> None:
        """Listen. Raises OSError when the socket cannot be made. Before the workers start, or
        after: they dial until they are let in."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close every worker's link and remove the socket; the node is not stopped."""
        raise NotImplementedError


class LocalLink:
    """A worker's end: the same `offer`, `run` and `status` as a Node has."""

    def __init__(self, path: Path, server_id: str, receive: Callable[[Hint], None]) -> None:
        """`receive` is called in the loop for each hint of the other workers and of peers; it
        must not wait, and what it raises is logged and forgotten."""
        raise NotImplementedError

    def offer(self, hint: Hint) -> None:
        """Tell the others, soon. Never waits and never fails: what does not fit is dropped."""
        raise NotImplementedError

    async def run(self) -> None:
        """Dial the hub, and again whenever it is lost (250 ms .. 5 s); until cancelled."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """What the parent last told of the host's node (Node.status), at most two heartbeats
        old; `{"enabled": False, "reason": "no_peers"}` while there is none."""
        raise NotImplementedError
