"""`manage.py createsuperuser`: Django's, but for a database in which no broker has been yet."""

from typing import Any

from django.contrib.auth.management.commands import createsuperuser
from django.core.management.base import CommandError
from django.db import ProgrammingError

NO_SCHEMA = (
    "FATAL: there is no schema in this database yet. Start a broker on it first, with the same"
    " settings as this command (PG_HOST, PG_DATABASE, QUEEN_DATA_DIR, ...)"
)


class Command(createsuperuser.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            super().handle(*args, **options)
        except ProgrammingError as error:
            raise CommandError(NO_SCHEMA) from error
