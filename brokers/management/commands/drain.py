"""manage.py drain: stores what lies in one spool directory.

For the directory of a host that is gone, or of a broker that is stopped: a broker that runs
drains its own. Only one process may have a directory; the second is refused.

Only arguments, signals and printing live here; the work is services/draining.py.
"""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from brokers import runtime
from brokers.config import Config
from brokers.services import mesh
from brokers.services.draining import NotDrained, Progress, drain
from queen_project import config as environment
from queen_project import embedded
from spool.directory import DirectoryStats, SpoolDirectory, look
from spool.errors import SpoolUnusable

READY_TIMEOUT_S = 60.0
READY_LOOK_S = 0.05


class Command(BaseCommand):
    help = "Store the messages of a spool directory, until it is stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", type=Path, help="a spool directory")
        parser.add_argument("--once", action="store_true", help="until it is empty, then exit")
        parser.add_argument(
            "--status", action="store_true", help="what lies there; changes nothing"
        )
        parser.add_argument(
            "--requeue-failed",
            action="store_true",
            help="first put back what was set aside in failed/ and can be read",
        )

    def handle(
        self, *args: Any, directory: Path, once: bool, status: bool, requeue_failed: bool, **_: Any
    ) -> None:
        try:
            if status:
                self.print_status(look(directory))
                return
            if not directory.is_dir():
                raise SpoolUnusable(f"there is no spool directory {directory}")
            config = environment.from_environment()
            opened = SpoolDirectory.open(directory, fsync=config.file_buffer.fsync)
        except SpoolUnusable as error:
            raise CommandError(f"FATAL: {error}") from error
        try:
            if requeue_failed:
                files, records = opened.requeue_failed()
                self.stdout.write(f"put back {records} messages of {files} files")
            if config.postgres.embedded:
                embedded.ensure_running(config.paths.data_dir, database=config.postgres.database)
            progress = asyncio.run(self.drain(config, opened, once=once))
        except (embedded.EmbeddedPostgresError, NotDrained) as error:
            raise CommandError(f"FATAL: {error}") from error
        finally:
            opened.close()
        self.tell(progress)
        if progress.poison or progress.damaged:
            self.stderr.write(f"WARNING: not all could be stored, see {directory / 'failed'}")

    async def drain(self, config: Config, directory: SpoolDirectory, *, once: bool) -> Progress:
        broker = runtime.Broker(config)
        mesh.attach(broker, listen=False)
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, stopped.set)
        await broker.start()
        try:
            if once:
                await self.wait_until_ready(broker, stopped)
            return await drain(broker, directory, once=once, tell=self.tell, stopped=stopped)
        finally:
            await broker.stop()

    async def wait_until_ready(self, broker: runtime.Broker, stopped: asyncio.Event) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not broker.ready and not stopped.is_set():
            if time.monotonic() > deadline:
                raise CommandError("FATAL: the database did not come")
            await asyncio.sleep(READY_LOOK_S)
        if broker.switches.push_maintenance:
            raise CommandError("FATAL: push maintenance is on, nothing is drained meanwhile")

    def tell(self, progress: Progress) -> None:
        self.stdout.write(str(progress))
        self.stdout.flush()

    def print_status(self, stats: DirectoryStats) -> None:
        age = "-"
        if stats.oldest_us is not None:
            age = f"{max(time.time() - stats.oldest_us / 1e6, 0):.0f} s"
        for name, value in (
            ("messages", stats.events),
            ("files", stats.files),
            ("bytes", stats.total_bytes),
            ("oldest", age),
            ("failed files", stats.failed_files),
            ("failed messages", stats.failed_events),
            ("failed bytes", stats.failed_bytes),
            ("free bytes", stats.free_bytes),
        ):
            self.stdout.write(f"{name + ':':<17}{value}")
