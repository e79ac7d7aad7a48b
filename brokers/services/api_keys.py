"""API keys: made, revoked, listed. Every broker hears of it from the database (flow/access.py).

Imports api_key, principal, store, mesh.hints. Called by the apikey command and by the console.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from brokers import api_key
from brokers.api_key import NewKey
from brokers.errors import RequestError
from brokers.principal import ROLES
from brokers.store import api_key_calls
from brokers.store.api_key_calls import ListedKey
from brokers.store.calls import Fetch
from mesh.hints import KeysChanged

if TYPE_CHECKING:
    from brokers.runtime import Broker

# Each broker holds them all in memory.
KEYS_MAX = 10_000
NAME_BYTES_MAX = 255
PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """`tenant` None: an operator's key. `expires_s` None: it does not run out."""

    name: str
    role: str
    tenant: UUID | None = None
    queue_prefix: str = ""
    expires_s: int | None = None


async def create(fetch: Fetch, request: CreateRequest) -> NewKey:
    """The key, whose text nobody will see again. Raises RequestError, StoreError."""
    if request.role not in ROLES:
        raise RequestError(f"the role must be one of {', '.join(ROLES)}")
    for what, text in (("name", request.name), ("prefix", request.queue_prefix)):
        if "\x00" in text or len(text.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
            raise RequestError(f"the {what} must have at most {NAME_BYTES_MAX} bytes and no NUL")
    if not request.name:
        raise RequestError("a key needs a name: it is stamped on what is pushed with it")
    if request.queue_prefix and request.role == "admin":
        raise RequestError("an admin is not confined to a queue prefix")
    made = api_key.new_key()
    await api_key_calls.api_key_create(
        fetch,
        key_id=made.id,
        digest=made.digest,
        name=request.name,
        role=request.role,
        tenant=request.tenant,
        queue_prefix=request.queue_prefix,
        expires_s=request.expires_s,
        keys_max=KEYS_MAX,
    )
    return made


async def revoke(fetch: Fetch, key_id: str) -> str:
    """revoked | already | unknown"""
    return await api_key_calls.api_key_revoke(fetch, key_id)


async def listed(fetch: Fetch, *, everything: bool) -> list[ListedKey]:
    found: list[ListedKey] = []
    while True:
        after = found[-1].id if found else 0
        page = await api_key_calls.api_key_list(
            fetch, after=after, limit=PAGE, everything=everything
        )
        found += page
        if len(page) < PAGE:
            return found


async def create_here(broker: "Broker", request: CreateRequest) -> NewKey:
    """The same in a running broker, which takes the key at once; the peers are told."""
    async with broker.admission.call_slot("maint"):
        made = await create(broker.store.fetch, request)
    _tell(broker, made.id)
    return made


async def revoke_here(broker: "Broker", key_id: str) -> str:
    async with broker.admission.call_slot("maint"):
        outcome = await revoke(broker.store.fetch, key_id)
    _tell(broker, key_id)
    return outcome


def _tell(broker: "Broker", key_id: str) -> None:
    broker.look_at_database()
    broker.announce.tell(KeysChanged(key_id))
