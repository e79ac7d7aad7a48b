"""manage.py mesh: a hub for hints, and a look at what passes between brokers.

Brokers that name only the hub as their peer all hear each other through it: N links instead
of N * N. It needs no database, and brokers do without it when it is away.

Only arguments, signals and printing live here; the work is mesh/node.py and mesh/watching.py.
"""

import asyncio
import contextlib
import json
import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from brokers.config import Config
from brokers.config_values import host_and_port
from brokers.services.mesh import node_settings
from mesh.handshake import HandshakeError
from mesh.hints import Hint, Passed, Told
from mesh.node import Node, NotAllowed
from mesh.session import SessionEnded
from mesh.watching import line, watch
from queen_project import config as environment

STATUS_S = 10.0


class Command(BaseCommand):
    help = "Run a hub that passes hints between brokers, or look at a running broker or hub."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--status", action="store_true", help="print its peers, then exit")
        what.add_argument("--watch", action="store_true", help="print hints as they pass")
        parser.add_argument(
            "--at", help="of whom: host or host:port (default: the one on this host)"
        )
        parser.add_argument("--json", action="store_true", help="the status as JSON")
        parser.add_argument("--port", help="of the hub, instead of QUEEN_MESH_PORT")
        parser.add_argument("--bind", help="of the hub, instead of QUEEN_MESH_BIND_ADDR")

    def handle(self, *args: Any, status: bool, watch: bool, **options: Any) -> None:
        overrides = {"QUEEN_MESH_PORT": options["port"], "QUEEN_MESH_BIND_ADDR": options["bind"]}
        config = environment.from_environment({k: v for k, v in overrides.items() if v is not None})
        try:
            if status or watch:
                asyncio.run(self.look(config, options["at"], once=status, raw=options["json"]))
            else:
                asyncio.run(self.relay(config))
        except KeyboardInterrupt:
            pass
        except ConnectionRefusedError as error:
            raise CommandError(f"FATAL: no mesh there: {error}") from error
        except (NotAllowed, HandshakeError, SessionEnded, TimeoutError, OSError) as error:
            raise CommandError(f"FATAL: {error or type(error).__name__}") from error

    async def relay(self, config: Config) -> None:
        """A hub until a signal. Its own peers, if any are named, hear it too."""
        node = Node(node_settings(config), hub=True)
        stopped = _stopped()
        await node.listen()
        running = asyncio.create_task(node.run())
        self.stdout.write(f"hub listening on {config.mesh.bind_addr} port {node.port}")
        self.stdout.flush()
        try:
            await stopped.wait()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def look(self, config: Config, at: str | None, *, once: bool, raw: bool) -> None:
        host, port = host_and_port(at or "127.0.0.1", config.mesh.port)
        told = asyncio.Event()

        def tell(hint: Hint) -> None:
            if isinstance(hint, Told):
                document = json.loads(hint.document)
                self.print_status(document, raw=raw)
                told.set()
            elif isinstance(hint, Passed) and not once:
                self.stdout.write(line(hint))
                self.stdout.flush()

        stopped = _stopped()
        watching = asyncio.create_task(watch(host, port, config.mesh.secret.encode(), tell))
        enough = asyncio.create_task((told if once else stopped).wait())
        stopping = asyncio.create_task(stopped.wait())
        try:
            async with asyncio.timeout(STATUS_S if once else None):
                await asyncio.wait(
                    [watching, enough, stopping], return_when=asyncio.FIRST_COMPLETED
                )
            if watching.done():
                await watching
        finally:
            for task in (watching, enough, stopping):
                task.cancel()
            await asyncio.gather(watching, enough, stopping, return_exceptions=True)

    def print_status(self, status: dict[str, Any], *, raw: bool) -> None:
        if raw:
            self.stdout.write(json.dumps(status))
            self.stdout.flush()
            return
        self.stdout.write(f"{status['server_id']} ({status['role']}), port {status['port']}")
        for peer in status["peers"]:
            state = "itself" if peer["self"] else "up" if peer["connected"] else "down"
            known = " ".join(filter(None, (peer["resolved_ip"], peer["server_id"])))
            self.stdout.write(f"  peer {peer['host']}:{peer['port']} {state} {known}".rstrip())
        self.stdout.write(f"  heard: {', '.join(status['servers']) or 'nobody'}")
        for name in ("sent", "received", "dropped", "queued"):
            self.stdout.write(f"  {name}: {status[f'messages_{name}']}")
        self.stdout.write(f"  handshake failures: {status['handshake_failures']}")
        self.stdout.flush()


def _stopped() -> asyncio.Event:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stopped.set)
    return stopped
