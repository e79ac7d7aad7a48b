"""manage.py sweeper: fires timers, and does the slow chores, without serving anything.

Any number may run beside the brokers: they share rows with SKIP LOCKED and elect nobody.
Pops that wait at a broker hear of what is fired here by a hint, when this process knows the
brokers as its mesh peers, else at the next floor, within a second.

Only arguments, signals and printing live here; the work is services/sweeper.py.
"""

import asyncio
import signal
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from brokers import runtime
from brokers.config import Config
from brokers.services import mesh
from brokers.services.sweeper import Cycle, Sweeper
from queen_project import config as environment
from queen_project import embedded

READY_TIMEOUT_S = 60.0
READY_LOOK_S = 0.02


class Command(BaseCommand):
    help = "Fire due timers and do the slow chores, until it is stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="one cycle, then exit")

    def handle(self, *args: Any, once: bool, **options: Any) -> None:
        config = environment.from_environment()
        if config.postgres.embedded:
            try:
                embedded.ensure_running(config.paths.data_dir, database=config.postgres.database)
            except embedded.EmbeddedPostgresError as error:
                raise CommandError(f"FATAL: {error}") from error
        asyncio.run(self.sweep(config, once=once))

    async def sweep(self, config: Config, *, once: bool) -> None:
        broker = runtime.Broker(config)
        mesh.attach(broker, listen=False)
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, broker.timer_alarm.close)
        await broker.start()
        try:
            sweeper = Sweeper(broker)
            if once:
                await self.wait_until_ready(broker)
                self.tell(await sweeper.cycle())
            else:
                await sweeper.run(self.tell)
        finally:
            await broker.stop()

    async def wait_until_ready(self, broker: runtime.Broker) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not broker.ready and not broker.timer_alarm.closed:
            if time.monotonic() > deadline:
                raise CommandError("FATAL: the database did not come")
            await broker.timer_alarm.sleep(READY_LOOK_S)

    def tell(self, cycle: Cycle) -> None:
        self.stdout.write(str(cycle))
        self.stdout.flush()
