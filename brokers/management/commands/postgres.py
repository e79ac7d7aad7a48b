"""manage.py postgres: state, start and stop of the embedded PostgreSQL.

It is shared by every command and stays when they end; this is how it is stopped.
"""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from queen_project import embedded


class Command(BaseCommand):
    help = "Show, start or stop the embedded PostgreSQL of QUEEN_DATA_DIR."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        action = parser.add_mutually_exclusive_group()
        action.add_argument("--status", action="store_true", help="the default")
        action.add_argument("--start", action="store_true")
        action.add_argument("--stop", action="store_true")
        parser.add_argument("--force", action="store_true", help="stop it under a running broker")

    def handle(self, *args: Any, start: bool, stop: bool, force: bool, **options: Any) -> None:
        config = settings.QUEEN_CONFIG
        if not config.postgres.embedded:
            raise CommandError("PG_HOST names a server of your own; there is no embedded one")
        data_dir = config.paths.data_dir
        try:
            if start:
                embedded.ensure_running(data_dir, database=config.postgres.database)
            if stop:
                stopped = embedded.stop(data_dir, force=force)
                self.stdout.write("stopped" if stopped else "there was nothing to stop")
            else:
                self.print_status(embedded.status(data_dir))
        except embedded.EmbeddedPostgresError as error:
            raise CommandError(str(error)) from error

    def print_status(self, status: embedded.Status) -> None:
        if status.answers:
            state = f"running (process {status.pid})"
        elif status.alive:
            state = f"starting or stopping (process {status.pid})"
        else:
            state = "stopped" if status.initialised else "not made yet"
        self.stdout.write(f"state:      {state}")
        self.stdout.write(f"cluster:    {status.cluster}")
        self.stdout.write(f"connect:    psql -h {status.socket_dir} -U postgres")
        self.stdout.write(f"supervised: {'yes, by a broker' if status.supervised else 'no'}")
