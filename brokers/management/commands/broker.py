"""manage.py broker: one broker, in one process or in several workers.

Only arguments and printing live here; the work is queen_project/serving.py, workers.py and
brokers/runtime.py. A command is an entry point, so it may import queen_project.
"""

import argparse
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, ProgrammingError, connection

from brokers.admin.visitors import users_exist
from brokers.config import Config
from brokers.services.spool_directories import open_directories
from brokers.store.capacity import read_capacity
from queen_project import config as environment
from queen_project import embedded, logs, serving, workers
from queen_project.embedded_supervisor import Supervisor
from queen_project.serving_share import Board
from queen_project.worker_line import EXIT_UNUSABLE, Inherited, ParentLine, mesh_socket
from spool.errors import SpoolLocked, SpoolUnusable


class Command(BaseCommand):
    help = "Start a broker, and the embedded PostgreSQL unless PG_HOST names another."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--server", choices=serving.SERVERS, default="uvicorn")
        parser.add_argument("--port", help="instead of PORT; 0 takes a free one")
        parser.add_argument("--bind", help="instead of QUEEN_BIND_ADDR")
        parser.add_argument("--workers", help="instead of QUEEN_WORKERS: processes that serve")
        parser.add_argument(
            "--as-worker", type=Inherited.read, help=argparse.SUPPRESS
        )  # how a parent starts them

    def handle(self, *args: Any, server: str, **options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the loop has its own
        names = {"port": "PORT", "bind": "QUEEN_BIND_ADDR", "workers": "QUEEN_WORKERS"}
        overrides = {env: options[name] for name, env in names.items() if options[name] is not None}
        config = environment.from_environment(overrides)
        if options["as_worker"] is not None:
            self.work(config, server, options["as_worker"])
            return
        try:
            listener = serving.bind(config)
            config = environment.for_listener(config, port=listener.getsockname()[1])
            self.print_config(config, server)
            serve = self.server_of(config, listener, server)
            supervisor = self.start_postgres(config)
        except (serving.ListenError, SpoolUnusable, embedded.EmbeddedPostgresError) as error:
            raise CommandError(f"FATAL: {error}") from error
        owned = self.has_operator() if self.check_capacity(config) else None
        try:
            serve(lambda: self.announce(config, owned=owned))
        except workers.WorkersFailed as error:
            raise CommandError(f"FATAL: {error}") from error
        finally:
            if supervisor:
                supervisor.stop()

    def server_of(
        self, config: Config, listener: socket.socket, server: str
    ) -> Callable[[Callable[[], None]], None]:
        """What serves; of one process, with its spool open already."""
        if config.server.workers > 1:
            return lambda ready: workers.run(config, listener, server=server, ready=ready)
        directories = open_directories(config)
        return lambda ready: serving.run(config, listener, directories, server=server, ready=ready)

    def work(self, config: Config, server: str, inherited: Inherited) -> None:
        """One of several workers, started by the parent."""
        logs.name_worker(inherited.worker)
        config = environment.for_worker(config, inherited.worker, run_dir=inherited.run_dir)
        try:
            directories = open_directories(config)
        except SpoolUnusable as error:
            # A lock may be let go of: by a worker of an earlier parent that still stops.
            again = isinstance(error, SpoolLocked)
            code = 1 if again else EXIT_UNUSABLE
            raise CommandError(f"FATAL: {error}", returncode=code) from error
        parent = ParentLine(inherited.parent)
        shared = serving.Shared(
            board=Board(inherited.board, config.server.workers),
            worker=inherited.worker,
            mesh_socket=mesh_socket(inherited.run_dir),
            watch_parent=parent.watch,
        )
        listener = socket.socket(fileno=inherited.listener)
        serving.run(
            config, listener, directories, server=server, ready=parent.say_serving, shared=shared
        )

    def print_config(self, config: Config, server: str) -> None:
        for part, values in config.describe().items():
            shown = " ".join(f"{name}={value}" for name, value in values.items())
            self.stdout.write(f"config: {part} {shown}")
        self.stdout.write(f"config: http server={server} ssl_trust={config.postgres.ssl_trust}")
        for warning in environment.warnings(config):
            self.stderr.write(f"WARNING: {warning}")

    def start_postgres(self, config: Config) -> Supervisor | None:
        if not config.postgres.embedded:
            return None
        data_dir, database = config.paths.data_dir, config.postgres.database
        embedded.ensure_running(data_dir, database=database)
        self.stdout.write(f"embedded PostgreSQL runs in {data_dir / 'postgres'}")
        supervisor = Supervisor(data_dir, database=database)
        supervisor.start()
        return supervisor

    def check_capacity(self, config: Config) -> bool:
        """Whether PostgreSQL is there."""
        parameters = config.postgres.parameters(application_name="queen-capacity")
        capacity = read_capacity(
            parameters,
            pool_size=config.postgres.pool_size,
            kv_pool_size=config.kv.pool_size,
            read_pool_size=config.postgres.read_pool_size,
            workers=config.server.workers,
        )
        if capacity is None:
            self.stderr.write("WARNING: PostgreSQL is away; ready once it comes")
        elif not capacity.suffices:
            raise CommandError(f"FATAL: DB_POOL_SIZE does not fit: {capacity}")
        else:
            self.stdout.write(f"connections: {capacity}")
        return capacity is not None

    def has_operator(self) -> bool | None:
        """Whether anybody may sign in to the console; None when nobody can tell."""
        try:
            return users_exist()
        except ProgrammingError:  # the schema is yet to come
            return False
        except DatabaseError:
            return None
        finally:
            connection.close()

    def announce(self, config: Config, *, owned: bool | None) -> None:
        host = config.server.bind_addr
        host = f"[{host}]" if ":" in host else host
        scheme = "https" if config.listener.tls else "http"
        self.stdout.write(f"listening on {scheme}://{host}:{config.server.port}")
        if owned is False:
            self.stdout.write(
                f"console: {scheme}://localhost:{config.server.port}/ has no operator yet and"
                f" answers only on this machine; create the first one with:"
                f" {sys.executable} manage.py createsuperuser"
            )
        self.stdout.flush()
