"""The pages of queues: the list, and one queue with its groups, partitions and messages.

Each section is a template of its own and can be asked for alone (`?section=`), which htmx does to
turn a page or to look again. Without scripts the same links give the whole page. What cannot be
read is told in its section, with the reason; the others stand.

Imports admin/calling, api/wire, layout, models, runtime, services, shown. Used by urls.py.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse

from brokers import runtime
from brokers.admin import calling
from brokers.api.wire import NAME_BYTES_MAX
from brokers.domain import DEFAULT_TENANT
from brokers.errors import BrokerError, error_text
from brokers.live import layout, shown
from brokers.live.parts import MINUTE, milliseconds
from brokers.live.shown import queue_address
from brokers.models import Queue
from brokers.runtime import Broker
from brokers.services import dashboard, messages, status
from brokers.services.audit import Done
from brokers.services.messages import PAGE_END_MAX, BrowseRequest, Shown
from brokers.services.queues import OPTIONS
from brokers.store.history_calls import ALL, Filters
from brokers.store.message_calls import Inspected

T = TypeVar("T")

QUEUES_A_PAGE = 50
GROUPS_MAX = 200
PARTITIONS_A_PAGE = 25
MESSAGES_A_PAGE = 20
EVER = timedelta(days=36_500)
STATUSES = ("pending", "processing", "completed", "dead_letter")
SECTIONS = ("figures", "partitions", "messages")
PAYLOADS = "brokers.view_segment"
# An encrypted payload, of a message as of the letter that it may become.
OPEN = "brokers.open_deadletter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A queue, and what of it."""

    tenant: UUID
    name: str
    query: dict[str, str]

    @property
    def kept(self) -> dict[str, str]:
        """What a form of this page has to carry, since its query makes the whole address."""
        carried = {"tenant": str(self.tenant)} if self.tenant != DEFAULT_TENANT else {}
        return carried | ({"name": self.name} if shown.is_odd(self.name) else {})

    def link(self, **changes: str | None) -> str:
        """The same page with another query; None leaves a name out."""
        query = {**self.query, **changes}
        kept = {key: value for key, value in query.items() if value is not None}
        return queue_address(self.name, self.tenant, kept)


def moved(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(reverse("live:queues"))


def queues(request: HttpRequest) -> HttpResponse:
    """All queues of a tenant; `?name=` is one of them whose name no address can carry."""
    layout.demand(request)
    if "name" in request.GET:
        return queue(request, request.GET["name"])
    tenant, offset = _tenant(request), _integer(request, "offset")
    filters = Filters(**{name: request.GET.get(name) or None for name in _FILTERS})
    rows, problem = _tried(
        lambda broker: status.queues(
            broker, tenant, filters, limit=QUEUES_A_PAGE + 1, offset=offset
        )
    )
    rows = rows or []

    def link(to: int) -> str:
        query = {**request.GET.dict(), "offset": str(to)}
        return f"{reverse('live:queues')}?{urlencode(query)}"

    context = {
        "rows": [shown.queue_row(row, tenant) for row in rows[:QUEUES_A_PAGE]],
        "problem": problem,
        "filters": filters,
        "filtered": filters != ALL,
        "tenant": "" if tenant == DEFAULT_TENANT else str(tenant),
        "first": offset + 1,
        "last": offset + min(len(rows), QUEUES_A_PAGE),
        "previous": link(max(offset - QUEUES_A_PAGE, 0)) if offset else None,
        "next": link(offset + QUEUES_A_PAGE) if len(rows) > QUEUES_A_PAGE else None,
    }
    return layout.page(request, "live/queues.html", context)


_FILTERS = ("queue", "namespace", "task")


def queue(request: HttpRequest, name: str) -> HttpResponse:
    layout.demand(request)
    if "\x00" in name or len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise Http404
    query = {key: value for key, value in request.GET.items() if key not in _ADDRESS}
    asked = Asked(tenant=_tenant(request), name=name, query=query)
    section = request.GET.get("section")
    if section is not None and section not in SECTIONS:
        raise Http404
    context: dict[str, Any] = {"asked": asked, "sees_payloads": request.user.has_perm(PAYLOADS)}
    for one in SECTIONS if section is None else (section,):
        context |= _READERS[one](request, asked)
    if section is not None:
        return render(request, f"live/queue_{section}.html", context)
    found = context["held"]
    if found is None and context["figures_problem"] is None:
        raise Http404
    return layout.page(request, "live/queue.html", context | _identity(asked))


# What makes the address, and no part of it.
_ADDRESS = ("name", "tenant", "section")


def _identity(asked: Asked) -> dict[str, Any]:
    """What the queue is: its options, and where it can be acted on."""
    found, problem = None, None
    try:
        found = Queue.objects.filter(tenant_id=asked.tenant, name=asked.name).values().first()
    except DatabaseError:
        problem = "the database does not answer"
    acts = None if found is None else layout.address("admin:brokers_queue_change", found["id"])
    return {
        "options": [
            {
                "name": one.name,
                "value": shown.option(found[one.column]),
                "changed": found[one.column] != one.default,
            }
            for one in OPTIONS
            if found is not None
        ],
        "options_problem": problem,
        "acts": acts,
        "paused": bool(found and found["paused"]),
        "history": f"{reverse('live:history')}?"
        + urlencode({"queue": asked.name, "tenant": str(asked.tenant)}),
    }


def _figures(request: HttpRequest, asked: Asked) -> dict[str, Any]:
    filters = Filters(queue=asked.name)
    rows, problem = _tried(
        lambda broker: status.queues(broker, asked.tenant, filters, limit=1, offset=0)
    )
    groups, groups_problem = _tried(
        lambda broker: dashboard.groups_of(broker, asked.tenant, asked.name, limit=GROUPS_MAX)
    )
    return {
        "held": shown.queue_row(rows[0], asked.tenant) if rows else None,
        "figures_problem": problem,
        "groups": [shown.group_row(one) for one in groups or []],
        "groups_problem": groups_problem,
        "groups_cut": len(groups or []) == GROUPS_MAX,
        "looked_at": datetime.now(UTC),
        "again": asked.link(section="figures"),
    }


def _partitions(request: HttpRequest, asked: Asked) -> dict[str, Any]:
    after = request.GET.get("after")
    rows, problem = _tried(
        lambda broker: dashboard.partitions_of(
            broker, asked.tenant, asked.name, after=after, limit=PARTITIONS_A_PAGE + 1
        )
    )
    rows = rows or []
    page = rows[:PARTITIONS_A_PAGE]
    more = len(rows) > PARTITIONS_A_PAGE
    return {
        "partitions": [shown.partition_row(row, asked.link) for row in page],
        "partitions_problem": problem,
        "after": after,
        "partitions_first": _both(asked, "partitions", after=None) if after is not None else None,
        "partitions_next": _both(asked, "partitions", after=page[-1].name) if more else None,
    }


def _messages(request: HttpRequest, asked: Asked) -> dict[str, Any]:
    partition = request.GET.get("partition") or None
    wanted = request.GET.get("status")
    wanted = wanted if wanted in STATUSES else None
    offset = min(_integer(request, "offset"), PAGE_END_MAX - MESSAGES_A_PAGE - 1)
    context: dict[str, Any] = {
        "partition": partition or "",
        "status": wanted or "",
        "statuses": [(one, one.replace("_", " ")) for one in STATUSES],
        "clean": asked.link(partition=None, status=None, offset=None),
    }
    if not request.user.has_perm(PAYLOADS):
        return context
    now = datetime.now(UTC)
    request_ = BrowseRequest(
        tenant=asked.tenant,
        queue=asked.name,
        partition=partition,
        namespace=None,
        task=None,
        status=wanted,
        since=now - EVER,
        until=now + EVER,
        limit=MESSAGES_A_PAGE + 1,
        offset=offset,
    )
    found, problem = _tried(lambda broker: messages.browse(broker, request_, may_open=False))
    page, payloads = found if found is not None else (None, [])
    rows = [] if page is None else page.rows
    told = [shown.message(row, one, asked.tenant) for row, one in zip(rows, payloads, strict=True)]
    more = len(rows) > MESSAGES_A_PAGE

    def turned(to: int) -> dict[str, str]:
        return _both(asked, "messages", offset=str(to) if to else None)

    return context | {
        "messages": told[:MESSAGES_A_PAGE],
        "messages_problem": problem,
        "truncated": page is not None and page.truncated and not more,
        "first": offset + 1,
        "messages_previous": turned(max(offset - MESSAGES_A_PAGE, 0)) if offset else None,
        "messages_next": turned(offset + MESSAGES_A_PAGE) if more else None,
    }


_READERS: dict[str, Callable[[HttpRequest, Asked], dict[str, Any]]] = {
    "figures": _figures,
    "partitions": _partitions,
    "messages": _messages,
}


def message(request: HttpRequest) -> HttpResponse:
    """One message with its whole payload, as it was sent."""
    layout.demand(request)
    layout.demand(request, PAYLOADS)
    try:
        partition = UUID(request.GET.get("partition", ""))
    except ValueError:
        raise Http404 from None
    transaction = request.GET.get("transaction", "")
    tenant = _tenant(request)
    look = partial(
        messages.inspect, tenant=tenant, partition_uid=partition, transaction_id=transaction
    )
    found, problem = _tried(lambda broker: look(broker, may_open=False))
    if found is None and problem is None:
        raise Http404
    if found is not None and found[0].encrypted and request.user.has_perm(OPEN):
        found, problem = _opened(request, tenant, found[0], partial(look, may_open=True))
    told = None if found is None else shown.inspected(found[0], found[1], tenant)
    context = {"message": told, "transaction": transaction, "problem": problem}
    return layout.page(request, "live/message.html", context)


def _opened(
    request: HttpRequest, tenant: UUID, sealed: Inspected, look: Callable[[Broker], Any]
) -> tuple[tuple[Inspected, Shown] | None, str | None]:
    """The message with its payload opened, which the audit tells of; or why it is not."""
    seen: list[tuple[Inspected, Shown] | None] = []

    async def open_it(broker: Broker) -> Done:
        found = await look(broker)
        seen.append(found)
        return Done(text="", hits=int(found is not None and found[1].problem is None))

    where = f"{sealed.columns['name']} / {sealed.partition}"
    try:
        calling.carry_out(
            request,
            action="open encrypted message",
            target=f"message {sealed.message_id} of {where}",
            tenant=tenant,
            work=open_it,
        )
    except BrokerError as error:
        return None, error_text(error)
    return seen[0], None if seen[0] is not None else "it is gone"


def history(request: HttpRequest) -> HttpResponse:
    """The last hour of a queue by the minute: [ms, pushed, delivered, acknowledged, failed] a
    second; a minute in which nobody touched it has zeros, one that is not written yet is not
    told."""
    layout.demand(request)
    tenant, name = _tenant(request), request.GET.get("queue", "")
    rows, problem = _tried(lambda broker: dashboard.history_of(broker, tenant, name))
    if rows is None:
        return JsonResponse({"error": problem}, status=503)
    counted = {
        row.bucket: (row.push_messages, row.pop_messages, row.ack_success, row.ack_failed)
        for row in rows
    }
    points = []
    at = min(counted, default=datetime.now(UTC))
    while counted and at <= max(counted):
        rates = [round(one / 60, 2) for one in counted.get(at, (0, 0, 0, 0))]
        points.append([milliseconds(at), *rates])
        at += MINUTE
    return JsonResponse({"points": points})


def _tried(
    read: Callable[[Broker], Coroutine[Any, Any, T]],
) -> tuple[T | None, str | None]:
    """What a service reads, in the broker's loop; or None, and why it could not be read."""
    broker = runtime.current()
    assert broker is not None, "the door has opened one"
    try:
        return broker.call_from_thread(read(broker)), None
    except BrokerError as error:
        return None, error_text(error)


def _both(asked: Asked, section: str, **changes: str | None) -> dict[str, str]:
    """A link for people, and the same for htmx, which wants the section alone."""
    return {
        "href": f"{asked.link(**changes)}#{section}",
        "part": asked.link(**changes, section=section),
    }


def _tenant(request: HttpRequest) -> UUID:
    try:
        return UUID(request.GET.get("tenant") or str(DEFAULT_TENANT))
    except ValueError:
        raise Http404 from None


def _integer(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
