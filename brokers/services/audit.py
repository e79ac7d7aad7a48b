"""The audit: no action of the console without an entry that says who did what, and how many.

The entry is written before the action: where it cannot be, nothing is done. Its outcome is
written behind it; an action whose broker went away in between stays `begun`.

Imports errors, store. Called by admin/deeds.py and admin/user_pages.py.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.errors import BrokerError, StoreError
from brokers.store import audit_calls as calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

DETAIL_MAX = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What somebody is about to do. `detail` is what was asked for, in words or JSON."""

    user_id: int | None
    user_name: str
    peer: str
    action: str
    target: str
    tenant: UUID | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of it: a sentence for whoever asked, and how many it hit (None: no number).

    `complete` is false when something is left to be done again. A secret is for whoever asked,
    and never written down.
    """

    text: str
    hits: int | None = None
    complete: bool = True
    secret: str = field(default="", repr=False)


async def carry_out(
    broker: "Broker", deed: Deed, work: Callable[["Broker"], Awaitable[Done]]
) -> Done:
    """Raises what the work raises, and StoreError where the entry cannot be written."""
    fetch = broker.store.fetch
    entry = await calls.audit_begin(
        fetch,
        user_id=deed.user_id,
        user_name=_cut(deed.user_name),
        peer=_cut(deed.peer),
        action=_cut(deed.action),
        tenant=deed.tenant,
        target=_cut(deed.target),
        detail=_cut(deed.detail),
    )
    try:
        done = await work(broker)
    except StoreError as error:
        await _end(
            broker, entry, "unknown" if error.outcome_unknown else "failed", None, str(error)
        )
        raise
    except BrokerError as error:
        await _end(broker, entry, "failed", None, str(error))
        raise
    except BaseException:  # cancelled, or a mistake of ours: nobody can tell how far it came
        await _end(broker, entry, "unknown", None, "")
        raise
    await _end(broker, entry, "done", done.hits, done.text)
    return done


async def _end(broker: "Broker", entry: int, outcome: str, hits: int | None, text: str) -> None:
    """The action is over, whether this is written or not."""
    try:
        await calls.audit_end(
            broker.store.fetch, entry, outcome=outcome, hits=hits, detail=_cut(text)
        )
    except StoreError as error:
        log.error("audit entry %d stays open although the action is %s: %s", entry, outcome, error)


def _cut(text: str) -> str:
    """What PostgreSQL's text can hold, and no more than anybody reads."""
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()[:DETAIL_MAX]
