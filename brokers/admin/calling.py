"""Calling the broker's services from a page, which is made in a thread of its own.

Imports runtime, services/audit. Used by deeds.py, site.py and the pages.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from django.http import HttpRequest

from brokers import runtime
from brokers.errors import Refusal
from brokers.runtime import Broker
from brokers.services import audit
from brokers.services.audit import Done

T = TypeVar("T")
Work = Callable[[Broker], Awaitable[Done]]

RETRY_AFTER_S = 5


def ask(work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
    """The answer of a service that changes nothing. Raises BrokerError."""
    broker = running()
    return broker.call_from_thread(work(broker))


def carry_out(
    request: HttpRequest,
    *,
    action: str,
    target: str,
    work: Work,
    tenant: UUID | None = None,
    detail: str = "",
) -> Done:
    """Do it in the broker's loop, with an audit entry. Raises BrokerError."""
    deed = audit.Deed(
        user_id=request.user.pk,
        user_name=request.user.get_username(),
        peer=str(request.META.get("REMOTE_ADDR", "")),
        action=action,
        target=target,
        tenant=tenant,
        detail=detail,
    )
    broker = running()
    return broker.call_from_thread(audit.carry_out(broker, deed, work))


def note(request: HttpRequest, *, action: str, target: str, detail: str = "") -> None:
    """An audit entry of what Django does by itself, in a transaction of its own: before that is
    committed, so that it is not where this cannot be written."""

    async def nothing(broker: Broker) -> Done:
        return Done(text="", hits=1)

    carry_out(request, action=action, target=target, detail=detail, work=nothing)


def running() -> Broker:
    broker = runtime.current()
    if broker is None:
        raise Refusal("no broker runs in this process", retry_after_s=RETRY_AFTER_S)
    return broker
