"""manage.py broker: one broker, in one process and one event loop.

Only arguments and printing live here; the work is queen_project/serving.py and
brokers/runtime.py. A command is an entry point, so it may import queen_project.
"""

import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from brokers.config import Config
from brokers.services.spool_directories import open_directories
from brokers.store.capacity import read_capacity
from queen_project import config as environment
from queen_project import embedded, serving
from queen_project.embedded_supervisor import Supervisor
from spool.errors import SpoolUnusable


class Command(BaseCommand):
    help = "Start a broker, and the embedded PostgreSQL unless PG_HOST names another."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--server", choices=serving.SERVERS, default="uvicorn")
        parser.add_argument("--port", help="instead of PORT; 0 takes a free one")
        parser.add_argument("--bind", help="instead of QUEEN_BIND_ADDR")

    def handle(
        self, *args: Any, server: str, port: str | None, bind: str | None, **options: Any
    ) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the loop has its own
        overrides = {"PORT": port, "QUEEN_BIND_ADDR": bind}
        config = environment.from_environment({k: v for k, v in overrides.items() if v is not None})
        try:
            listener = serving.bind(config)
            config = environment.for_listener(config, port=listener.getsockname()[1])
            self.print_config(config, server)
            directories = open_directories(config)
            supervisor = self.start_postgres(config)
        except (serving.ListenError, SpoolUnusable, embedded.EmbeddedPostgresError) as error:
            raise CommandError(f"FATAL: {error}") from error
        self.check_capacity(config)
        try:
            serving.run(
                config,
                listener,
                directories,
                server=server,
                ready=lambda: self.announce(config),
            )
        finally:
            if supervisor:
                supervisor.stop()

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

    def check_capacity(self, config: Config) -> None:
        parameters = config.postgres.parameters(application_name="queen-capacity")
        capacity = read_capacity(
            parameters,
            pool_size=config.postgres.pool_size,
            kv_pool_size=config.kv.pool_size,
        )
        if capacity is None:
            self.stderr.write("WARNING: PostgreSQL is away; ready once it comes")
        elif not capacity.suffices:
            raise CommandError(f"FATAL: DB_POOL_SIZE does not fit: {capacity}")
        else:
            self.stdout.write(f"connections: {capacity}")

    def announce(self, config: Config) -> None:
        host = config.server.bind_addr
        host = f"[{host}]" if ":" in host else host
        self.stdout.write(f"listening on http://{host}:{config.server.port}")
        self.stdout.flush()
