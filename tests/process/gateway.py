"""A TCP port in front of PostgreSQL that a test closes, freezes or makes mute.

close   nobody listens any more and open connections are reset: connection refused
freeze  packets are dropped both ways, new connections too: nothing ever answers. What was
        sent meanwhile is kept as a network would, and arrives when the gateway opens again
mute    requests arrive, answers do not: whoever asked never learns that it was done
sever   every open connection is reset, with all that is under way in it
open    all of that is over

Used by the tests of the spool. Imports harness.
"""

import contextlib
import socket
import threading
from typing import Self

from tests.harness import Database

BACKLOG = 128
CHUNK = 1 << 16


class Gateway:
    def __init__(self, behind: Database) -> None:
        self._behind = behind
        self._path = f"{behind.host}/.s.PGSQL.{behind.port}"
        self._asks_pass = threading.Event()
        self._answers_pass = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.open()

    @property
    def database(self) -> Database:
        """The same database, by way of this gateway."""
        return Database(name=self._behind.name, host="127.0.0.1", port=self.port)

    def open(self) -> None:
        self._asks_pass.set()
        self._answers_pass.set()
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=BACKLOG)
            self.port = self._listener.getsockname()[1]
            threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()
        else:
            self._listener.listen(BACKLOG)

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            # close() alone would not wake the thread that waits in accept().
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.sever()
        self._asks_pass.set()
        self._answers_pass.set()

    def freeze(self) -> None:
        assert self._listener is not None
        self._asks_pass.clear()
        self._answers_pass.clear()
        # The kernel drops what does not fit into the backlog: connecting hangs too.
        self._listener.listen(0)

    def mute(self) -> None:
        self._answers_pass.clear()

    def sever(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._asks_pass.wait()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._path)
            except OSError:
                client.close()
                server.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            for source, sink, gate in (
                (client, server, self._asks_pass),
                (server, client, self._answers_pass),
            ):
                arguments = [source, sink, gate]
                threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                gate.wait()
                sink.sendall(data)
            gate.wait()
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets -= {source, sink}
