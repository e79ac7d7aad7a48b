"""What metered tenants may have, as far as a broker decides it: grants, rates, retained bytes.

Entries, timers, queues and partitions are counted by PostgreSQL, exactly, in the call that adds
them. Here is what is soft by its nature: the rate of pushes is this broker's own, and retained
bytes are measured now and then, with what was pushed here since added. Rows are read when a
tenant first comes, and anew every refresh_ms for those that came meanwhile.

The default tenant is unmetered. While the database is away the last known rows are in force, and
a tenant that was never seen may push, so that the spool does what it is for.

Imports config, domain, errors, flow/coalesce, flow/kv, store. Used by runtime.py and services/.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from typing import Any
from uuid import UUID

from brokers.config import Config
from brokers.domain import DEFAULT_TENANT
from brokers.errors import Refusal, RequestError, StoreError
from brokers.flow.coalesce import SingleFlight
from brokers.flow.kv import Bucket
from brokers.store import quota_calls
from brokers.store.calls import Fetch
from brokers.store.quota_calls import QuotaRow

log = logging.getLogger(__name__)

BURST_FACTOR = 2
UNAVAILABLE_RETRY_S = 1


class Account:
    """One tenant: its row, and what this broker has let through since it was read."""

    __slots__ = ("blocked", "bucket", "pushed_bytes", "row", "used")

    def __init__(self, row: QuotaRow | None) -> None:
        self.row = row
        self.bucket: Bucket | None = None
        self.pushed_bytes = 0
        self.blocked = False
        self.used = True

    def renew(self, row: QuotaRow | None) -> None:
        old, self.row = self.row, row
        rate = None if row is None else row.push_rate
        if rate != (None if old is None else old.push_rate):
            self.bucket = None
        # Another measure has what was pushed before it, even where it found as much as before.
        if row is None or old is None or row.retained_at != old.retained_at:
            self.pushed_bytes = 0

    def wait_s(self, messages: int, now: float) -> float:
        """Take the messages out of the bucket, or say when they will be there."""
        rate = None if self.row is None else self.row.push_rate
        if rate is None:
            return 0.0
        if rate <= 0:
            return 60.0
        if self.bucket is None:
            self.bucket = Bucket(rate, rate * BURST_FACTOR)
        wait_s = self.bucket.wait_s(messages, now)
        if wait_s <= 0:
            self.bucket.tokens -= messages
        return wait_s

    def is_full(self, release_percent: int) -> bool:
        """Once blocked, until what is retained is well below the bound again."""
        row = self.row
        if row is None or row.max_retained_bytes is None:
            self.blocked = False
            return False
        held = (row.retained_bytes or 0) + self.pushed_bytes
        release_at = row.max_retained_bytes * release_percent // 100
        self.blocked = held >= (release_at if self.blocked else row.max_retained_bytes)
        return self.blocked

    def used_percent(self) -> float:
        """Of the bound that is nearest, as last measured and pushed here since."""
        row = self.row
        if row is None:
            return 0.0
        used = row.used_percent or 0.0
        if row.max_retained_bytes is None:
            return used
        held = (row.retained_bytes or 0) + self.pushed_bytes
        return max(used, 100 * held / max(row.max_retained_bytes, 1))


class Quotas:
    def __init__(self, config: Config, fetch: Fetch) -> None:
        self._config = config.quota
        self._grants = bool(config.quota.require_grant)
        self._tenants_max = config.kv.tenants_max
        self._fetch = fetch
        self._accounts: OrderedDict[UUID, Account] = OrderedDict()
        self._flights: SingleFlight[Any, Any] = SingleFlight()
        self._read_at = time.monotonic()

    async def granted(self, tenant: UUID) -> None:
        """Whether the tenant may add to key/value state or timers. Raises RequestError."""
        if not self._grants or tenant == DEFAULT_TENANT:
            return
        account = await self._account(tenant)
        if account is None:
            text = "the quotas cannot be read at the moment"
            raise Refusal(text, retry_after_s=UNAVAILABLE_RETRY_S, code="kv_unavailable")
        if account.row is None or not account.row.enabled:
            text = "the tenant has no grant for key/value state and timers"
            raise RequestError(text, code="feature_gated")

    async def horizon_s(self, tenant: UUID) -> int | None:
        """How far ahead the tenant may schedule, where that is less than for everybody."""
        if tenant == DEFAULT_TENANT:
            return None
        account = await self._account(tenant)
        return None if account is None or account.row is None else account.row.max_horizon_s

    async def admit_push(self, tenant: UUID, messages: int, size: int) -> None:
        """Let messages in, or refuse them. Raises RequestError, or a Refusal with its time."""
        if tenant == DEFAULT_TENANT:
            return
        account = await self._account(tenant)
        if account is None or account.row is None:
            return
        if account.is_full(self._config.release_percent):
            text = "the tenant retains more bytes than it may: consume or delete some"
            raise RequestError(text, code="storage_quota_exceeded")
        wait_s = account.wait_s(messages, time.monotonic())
        if wait_s > 0:
            raise Refusal(
                "the tenant pushes faster than it may",
                retry_after_s=min(max(math.ceil(wait_s), 1), 60),
                code="rate_limited",
            )
        if account.row.max_retained_bytes is not None:
            account.pushed_bytes += size

    def take_back(self, tenant: UUID, messages: int, size: int) -> None:
        """What was let in is not stored, and will be let in anew."""
        account = self._accounts.get(tenant)
        if account is None:
            return
        account.pushed_bytes = max(account.pushed_bytes - size, 0)
        if account.bucket is not None:
            account.bucket.tokens += messages

    async def _account(self, tenant: UUID) -> Account | None:
        """None where the row cannot be read and never was."""
        account = self._accounts.get(tenant)
        if account is None:
            try:
                account = await self._flights.run(tenant, lambda: self._read(tenant))
            except StoreError as error:
                log.debug("quotas: %s", error.text)
                return None
        account.used = True
        return account

    async def _read(self, tenant: UUID) -> Account:
        rows = await quota_calls.quota_list(self._fetch, [tenant])
        account = self._accounts[tenant] = Account(rows[0] if rows else None)
        if len(self._accounts) > self._tenants_max:
            self._accounts.popitem(last=False)
        return account

    async def refresh(self) -> None:
        """Read the rows anew of the tenants that came since the last time; forget the others,
        but not what they have pushed and nobody has measured yet."""
        idle = [
            tenant
            for tenant, account in self._accounts.items()
            if not (account.used or account.pushed_bytes)
        ]
        for tenant in idle:
            del self._accounts[tenant]
        tenants = list(self._accounts)
        rows = await quota_calls.quota_list(self._fetch, tenants) if tenants else []
        found = {row.tenant_id: row for row in rows}
        for tenant in tenants:
            account = self._accounts.get(tenant)
            if account is not None:
                account.renew(found.get(tenant))
                account.used = False
        self._read_at = time.monotonic()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._config.refresh_ms / 1000)
            try:
                await self.refresh()
            except StoreError as error:
                log.debug("quotas: %s", error.text)

    def figures(self) -> tuple[int, int]:
        """Tenants with a row, the age of what is known in ms."""
        rows = sum(one.row is not None for one in self._accounts.values())
        return rows, round((time.monotonic() - self._read_at) * 1000)

    def hot(self) -> set[UUID]:
        """Tenants that have used hot_percent of a bound, or are still blocked by one."""
        percent = self._config.hot_percent
        return {
            tenant
            for tenant, account in self._accounts.items()
            if account.blocked or account.used_percent() >= percent
        }
