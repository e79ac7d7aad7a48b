"""Django's PostgreSQL backend, which starts the embedded server on the first connection.

So that whichever command comes first finds a database, and one that never asks for a
connection (`manage.py help`) starts nothing.

Imports queen_project.embedded. Named by settings.py as the ENGINE.
"""

from typing import Any

from django.conf import settings
from django.db.backends.postgresql import base

from queen_project import embedded


class DatabaseWrapper(base.DatabaseWrapper):
    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        embedded.ensure_running(settings.QUEEN_CONFIG.paths.data_dir)
        return super().get_new_connection(conn_params)
