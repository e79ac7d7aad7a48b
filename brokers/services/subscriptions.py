"""Subscriptions: a group's first contact with a queue, recorded once.

Imports domain, store. Used by services/pop.py.
"""

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from brokers.domain import QUEUE_MODE, PopRequest
from brokers.store import calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)


async def ensure_subscribed(
    broker: "Broker", queue_id: int, request: PopRequest, *, born: bool = False
) -> bool | None:
    """Register the group unless it is; the stored conflation policy, None if the queue is gone.

    `born`: the queue came after this discovery began. Such a queue, and one that came after the
    group met another of the discovery, delivers from its first message: the group's first
    contact was before it.
    """
    known = broker.directory.groups.get((queue_id, request.group))
    if known is not None:
        return known
    stored = await broker.lookups.run(
        ("group", queue_id, request.group), lambda: _register(broker, queue_id, request, born)
    )
    if stored is not None:
        broker.directory.learn_group(request.tenant, (queue_id, request.group), stored)
    return stored


async def _register(
    broker: "Broker", queue_id: int, request: PopRequest, born: bool
) -> bool | None:
    discovery = request.queue is None
    mode, since = subscription_start(request, broker.config.pop.subscription_mode)
    async with broker.admission.call_slot("pop"):
        return await calls.group_register(
            broker.store.fetch,
            queue_id,
            request.group,
            mode=mode,
            since=since,
            conflation=request.conflation,
            namespace=request.namespace if discovery else None,
            task=request.task if discovery else None,
            born=born,
        )


def subscription_start(request: PopRequest, default_mode: str) -> tuple[str, datetime | None]:
    """Where a new group starts: `new` or `all`, or at a time.

    Queue mode always counts from the oldest; any mode but `new` and `new-only` is `all`.
    An instant that cannot be read is ignored, as the contract says, and logged.
    """
    if request.group == QUEUE_MODE:
        return "all", None
    asked = request.subscription_mode or default_mode
    mode = "new" if asked in ("new", "new-only") else "all"
    if not request.subscription_from:
        return mode, None
    if request.subscription_from == "now":
        return "new", None
    since = read_instant(request.subscription_from)
    if since is None:
        log.info("subscriptionFrom ignored, not an instant: %.64s", request.subscription_from)
    return mode, since


def read_instant(text: str) -> datetime | None:
    """An ISO-8601 instant; without a zone it is UTC; None when it is none."""
    try:
        # A blank in a query string is what is left of the + of an offset.
        instant = datetime.fromisoformat(text.strip().replace(" +", "+"))
    except ValueError:
        return None
    try:
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except OverflowError:
        return None
