"""manage.py queen: an operator's command line, over HTTP.

It asks a broker as any client does, and needs neither its database nor its settings. Its
arguments are not Django's: `manage.py queen --help` tells them.

The work is management/queen/.
"""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from brokers.management.queen.main import main
from queen_project import config as environment


class Command(BaseCommand):
    help = "Operate a broker over HTTP: queues, messages, groups, dead letters, timers, state."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        # A message may hold a number of any length, and what was popped must be shown.
        sys.set_int_max_str_digits(0)
        sys.exit(main(argv[2:], environment.client_from_environment()))

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: Any, arguments: list[str], **options: Any) -> None:
        code = main(
            arguments,
            environment.client_from_environment(),
            self.stdout,
            self.stderr,  # type: ignore[arg-type]
        )
        if code:
            sys.exit(code)
