"""manage.py apikey: make, list and revoke API keys.

    manage.py apikey create orders --role read-write --prefix orders.
    manage.py apikey list
    manage.py apikey revoke k3v9x2m4qwer

Brokers must run with QUEEN_API_KEYS=true to take them. Only arguments and printing live here;
the work is services/api_keys.py.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from brokers import api_key
from brokers.config import Config
from brokers.errors import BrokerError
from brokers.principal import ROLES
from brokers.services import api_keys, mesh
from brokers.services.api_keys import CreateRequest
from brokers.store import install
from brokers.store.api_key_calls import ListedKey
from brokers.store.calls import Fetch
from brokers.store.pool import Pool
from mesh.hints import KeysChanged
from queen_project import config as environment
from queen_project import embedded

TELL_S = 2.0
DAY_S = 86_400

T = TypeVar("T")


class Command(BaseCommand):
    help = "Make, list and revoke API keys."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        create = what.add_parser("create", help="make a key; its text is printed once")
        create.add_argument("name", help="whose it is; stamped on what is pushed with it")
        create.add_argument("--role", choices=ROLES, required=True)
        create.add_argument("--tenant", type=UUID, help="confined to it (default: an operator's)")
        create.add_argument("--prefix", default="", help="only queues whose names begin so")
        create.add_argument("--days", type=int, help="after which it is no longer taken")
        listing = what.add_parser("list", help="the keys in force")
        listing.add_argument("--all", action="store_true", help="revoked and expired ones too")
        listing.add_argument("--json", action="store_true")
        revoke = what.add_parser("revoke", help="no broker takes it any more")
        revoke.add_argument("key_id", help="as the list shows it, or the key itself")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        config = environment.from_environment()
        try:
            if config.postgres.embedded:
                embedded.ensure_running(config.paths.data_dir, database=config.postgres.database)
            install.check_schema(config)
            {"create": self.create, "list": self.list, "revoke": self.revoke}[what](config, options)
        except BrokerError as error:
            raise CommandError(f"FATAL: {error.text}") from error
        except (embedded.EmbeddedPostgresError, install.SchemaMismatch) as error:
            raise CommandError(f"FATAL: {error}") from error

    def create(self, config: Config, options: dict[str, Any]) -> None:
        days = options["days"]
        if days is not None and not 0 < days <= 36_500:
            raise CommandError("FATAL: --days must be within 1..36500")
        request = CreateRequest(
            name=options["name"],
            role=options["role"],
            tenant=options["tenant"],
            queue_prefix=options["prefix"],
            expires_s=None if days is None else days * DAY_S,
        )
        made = run(config, lambda fetch: api_keys.create(fetch, request))
        self.stdout.write(made.text)
        self.stderr.write(f"This is key {made.id}; its text is kept nowhere and not shown again.")
        if not config.auth.api_keys:
            self.stderr.write("Brokers take it only with QUEEN_API_KEYS=true.")

    def list(self, config: Config, options: dict[str, Any]) -> None:
        keys = run(config, lambda fetch: api_keys.listed(fetch, everything=options["all"]))
        for key in keys:
            shown = describe(key)
            if options["json"]:
                self.stdout.write(json.dumps(shown))
            else:
                self.stdout.write("  ".join(f"{n}={v}" for n, v in shown.items() if v is not None))

    def revoke(self, config: Config, options: dict[str, Any]) -> None:
        key_id = api_key.id_of(options["key_id"])
        if key_id is None:  # not shown again: it may be a key with a slip of the pen
            raise CommandError("FATAL: that is neither the ID of a key nor a key")
        outcome = run(config, lambda fetch: api_keys.revoke(fetch, key_id))
        if outcome == "unknown":
            raise CommandError(f"FATAL: there is no key {key_id}")
        heard = 0
        if mesh.wanted(config):
            heard = asyncio.run(mesh.tell_all(config, KeysChanged(key_id), within_s=TELL_S))
        told = f"; {heard} hosts were told" if heard else ""
        self.stdout.write(f"{key_id}: {outcome}; every broker sees it within a second{told}")


def run(config: Config, work: Callable[[Fetch], Awaitable[T]]) -> T:
    """One piece of work over a connection of its own."""

    async def alone() -> T:
        pool = Pool(config.postgres, size=2, name="queen apikey")
        await pool.open()
        try:
            return await work(pool.fetch)
        finally:
            await pool.close()

    return asyncio.run(alone())


def describe(key: ListedKey) -> dict[str, str | None]:
    return {
        "id": key.key_id,
        "name": key.name,
        "role": key.role,
        "tenant": None if key.tenant_id is None else str(key.tenant_id),
        "prefix": key.queue_prefix or None,
        "created": moment(key.created_at),
        "expires": moment(key.expires_at),
        "revoked": moment(key.revoked_at),
        "lastUsed": moment(key.last_used_at),
    }


def moment(when: datetime | None) -> str | None:
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")
