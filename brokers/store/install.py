"""The schema: Django's migrations for tables, whole files for procedures.

Any number of brokers may start at once: they queue at one transaction-scoped advisory
lock (a session lock would be lost behind a transaction-pooling proxy), and whoever comes
second finds everything in place. Procedures are installed at their present text when the
text differs from what the database says it holds.

Imports config, errors. Used by runtime.py and the test fixtures.
"""

import hashlib
import json
from pathlib import Path

import psycopg
from django.apps import apps
from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from brokers.config import Config
from brokers.errors import NoConnection

PROCEDURES = Path(__file__).resolve().parent.parent / "sql" / "procedures"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('queen_schema', 0))"
INSTALLED = "SELECT value FROM queen_system WHERE key = 'procedures'"
OF_NAME = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = %s"
REMEMBER = """
INSERT INTO queen_system (key, value) VALUES ('procedures', %s::jsonb)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = now()
"""


class SchemaMismatch(Exception):
    """The database holds other procedures than this release, and we may not change them; or it
    is another Django project's, with whom we would share users, sessions and migrations."""


def apply_schema(config: Config) -> list[str]:
    """Migrate and install; returns the names of the procedures that were (re)installed."""
    parameters = config.postgres.parameters(application_name="queen-schema")
    with psycopg.connect(**parameters) as connection:
        # Who waited for the lock has to see what the one before it did.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        connection.execute(LOCK)
        try:
            executor = MigrationExecutor(connections["default"])
            _refuse_foreign(executor)
            if executor.migration_plan(executor.loader.graph.leaf_nodes()):
                call_command("migrate", verbosity=0, interactive=False)
        finally:
            connections.close_all()
        return install_procedures(connection)


def check_schema(config: Config) -> None:
    """Raise SchemaMismatch unless the database holds exactly our procedures; NoConnection when it
    cannot be asked."""
    parameters = config.postgres.parameters(application_name="queen-schema")
    try:
        asking = psycopg.connect(**parameters)
    except psycopg.OperationalError as error:
        raise NoConnection(f"the database is away: {error}") from error
    with asking as connection:
        try:
            row = connection.execute(INSTALLED).fetchone()
        except psycopg.errors.UndefinedTable:
            row = None
    installed = row[0] if row else {}
    wanted = {name: digest for name, (_, digest) in procedure_files().items()}
    different = sorted(name for name in wanted if installed.get(name) != wanted[name])
    if different:
        raise SchemaMismatch(
            "QUEEN_APPLY_SCHEMA is off and these procedures are missing or of another release: "
            + ", ".join(different)
        )


def procedure_files() -> dict[str, tuple[str, str]]:
    """Name -> (text, checksum) of every procedure of this release."""
    files = {}
    for path in sorted(PROCEDURES.glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        files[path.stem] = (text, hashlib.sha256(text.encode()).hexdigest())
    return files


def _refuse_foreign(executor: MigrationExecutor) -> None:
    strangers = {app for app, _ in executor.loader.applied_migrations} - set(apps.app_configs)
    if strangers:
        raise SchemaMismatch(
            "the database belongs to another Django project, with migrations of"
            f" {', '.join(sorted(strangers))}: give the broker a database of its own (PG_DATABASE)"
        )


def install_procedures(connection: psycopg.Connection) -> list[str]:
    """Those whose text differs from what the database says it holds; returns their names."""
    row = connection.execute(INSTALLED).fetchone()
    installed: dict[str, str] = row[0] if row else {}
    files = procedure_files()
    changed = [name for name, (_, digest) in files.items() if installed.get(name) != digest]
    if changed:
        # Procedures call each other; their bodies are checked when they run.
        connection.execute("SET LOCAL check_function_bodies = off")
        for name in changed:
            _create(connection, name, files[name][0])
        digests = {**installed, **{name: digest for name, (_, digest) in files.items()}}
        connection.execute(REMEMBER, [json.dumps(digests)])
    return changed


def _create(connection: psycopg.Connection, name: str, text: str) -> None:
    """One that answers in another shape than the one in place cannot replace it: that one goes."""
    try:
        with connection.transaction():
            connection.execute(text)  # type: ignore[arg-type]
    except psycopg.errors.InvalidFunctionDefinition:
        for (signature,) in connection.execute(OF_NAME, [name]).fetchall():
            connection.execute(f"DROP FUNCTION {signature}")  # type: ignore[arg-type]
        connection.execute(text)  # type: ignore[arg-type]
