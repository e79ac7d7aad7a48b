"""The pages of timers: the pending ones by queue and key, one with its payload, and its cancel.

A key may hold any character, so a timer is named in the query of an address and never in its
path. The payload is shown as it is stored: that of an encrypted queue is an envelope, and is
not opened here.

Imports deeds, letter_filter, payload_text, site, services/timers. Registered by registered.py.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from brokers.admin import deeds, payload_text
from brokers.admin.deeds import Deed, Target, Work
from brokers.admin.letter_filter import NameField
from brokers.admin.site import Page, site
from brokers.api import wire
from brokers.domain import DEFAULT_TENANT, Timer, TimerOperation
from brokers.errors import BrokerError, RequestError, error_text
from brokers.frames import EPOCH
from brokers.runtime import Broker
from brokers.services import timers
from brokers.services.audit import Done
from brokers.services.timers import ApplyRequest, BrowseRequest

VIEW, CHANGE = "brokers.view_timer", "brokers.change_timer"
ROWS_A_PAGE = 100
TOLD = {
    "cancelled": "The timer is cancelled: its message will not be sent.",
    "absent": "Nothing is pending under this key: it was sent, or cancelled, or never was.",
    "too_late": "Too late: a broker has it in hand, and its message will be sent.",
}


def _check_key(value: str) -> None:
    problem = wire.identifier_problem(value, wire.TIMER_KEY_BYTES_MAX)
    if problem is not None:
        raise ValidationError(problem)


class TimersForm(forms.Form):
    queue = NameField()
    prefix = forms.CharField(
        required=False,
        strip=False,
        label="Key begins with",
        validators=[_check_key],
        help_text="of one queue",
    )
    tenant = forms.UUIDField(required=False, help_text="the default one if empty")
    at = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    key = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    back = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or {}
        if said.get("prefix") and not said.get("queue"):
            raise ValidationError("Name the queue whose keys begin so.")
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A timer as a row of the list; `link` is its page."""

    queue: str
    timer: Timer
    due: datetime
    link: str


def list_page(request: HttpRequest) -> HttpResponse:
    form = TimersForm(request.GET)
    context: dict[str, Any] = {"form": form}
    status = 200
    if not form.is_valid():
        status = 400
    else:
        said = form.cleaned_data
        asked = BrowseRequest(
            tenant=said["tenant"] or DEFAULT_TENANT,
            queue=said["queue"] or None,
            prefix=said["prefix"],
            backward=said["back"],
            place=(said["at"], said["key"]) if said["at"] else None,
            limit=ROWS_A_PAGE + 1,
        )
        try:
            rows = deeds.ask(lambda broker: timers.browse(broker, asked))
        except BrokerError as error:
            status = error.status
            context["failure"] = error_text(error)
        else:
            context |= _listed(form, rows, asked)
    answer = site().render(request, "console/timers.html", "Timers", **context)
    answer.status_code = status
    return answer


def _listed(
    form: TimersForm, rows: list[tuple[str, Timer]], asked: BrowseRequest
) -> dict[str, Any]:
    more = len(rows) > ROWS_A_PAGE
    rows = rows[:ROWS_A_PAGE]
    if asked.backward:
        rows = rows[::-1]
    typed = {name: form.data.get(name, "") for name in ("queue", "prefix", "tenant")}

    def link(**changes: str) -> str:
        return "?" + urlencode({name: one for name, one in {**typed, **changes}.items() if one})

    def beside(row: tuple[str, Timer], **way: str) -> str:
        return link(at=row[0], key=row[1].key, **way)

    onward = bool(rows) and (more or asked.backward)
    behind = bool(rows) and (more if asked.backward else asked.place is not None)
    return {
        "lines": [
            Line(
                queue=queue,
                timer=one,
                due=moment(one.deliver_us),
                link=reverse("admin:timer") + _query(asked.tenant, queue, one.key),
            )
            for queue, one in rows
        ],
        "first": None if asked.place is None else link(),
        "previous": beside(rows[0], back="on") if behind else None,
        "next": beside(rows[-1]) if onward else None,
    }


def _query(tenant: UUID, queue: str, key: str) -> str:
    whose = {} if tenant == DEFAULT_TENANT else {"tenant": str(tenant)}
    return "?" + urlencode({"queue": queue, "key": key, **whose})


def moment(epoch_us: int) -> datetime:
    """A time of the wire as one of a page; beyond what a calendar holds, the last it does."""
    try:
        return EPOCH + timedelta(microseconds=epoch_us)
    except OverflowError:
        return datetime.max.replace(tzinfo=EPOCH.tzinfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A timer by its name, and as it was last seen."""

    tenant: UUID
    queue: str
    timer: Timer

    @property
    def query(self) -> str:
        return _query(self.tenant, self.queue, self.timer.key)


def _named(request: HttpRequest) -> Named:
    """The timer of the page's address. Raises RequestError where nothing is pending."""
    queue, key = request.GET.get("queue", ""), request.GET.get("key", "")
    try:
        tenant = UUID(request.GET.get("tenant") or str(DEFAULT_TENANT))
        NameField(required=True).clean(queue)
        _check_key(key)
    except (ValueError, ValidationError):
        raise Http404 from None
    timer = deeds.ask(lambda broker: timers.peek(broker, tenant, queue, key))
    if timer is None:
        raise RequestError(TOLD["absent"], code="not_found")
    return Named(tenant=tenant, queue=queue, timer=timer)


def timer_page(request: HttpRequest) -> HttpResponse:
    try:
        named = _named(request)
    except BrokerError as error:
        return _failed(request, error)
    timer = named.timer
    return site().render(
        request,
        "console/timer.html",
        f"Timer {timer.key}",
        named=named,
        timer=timer,
        due=moment(timer.deliver_us),
        created=moment(timer.created_us),
        updated=moment(timer.updated_us),
        transaction=json.loads(timer.transaction_literal),
        shown=payload_text.shown(timer.payload or b""),
        cancel=(reverse("admin:timer-cancel") + named.query, CANCEL),
        may_cancel=deeds.may(request, CANCEL),
    )


def cancel_page(request: HttpRequest) -> HttpResponse:
    try:
        named = _named(request)
    except BrokerError as error:
        return _failed(request, error)
    target = Target(
        thing=named,
        label=f"timer {named.timer.key} of queue {named.queue}",
        tenant=named.tenant,
        back=reverse("admin:timers") + "?" + urlencode({"queue": named.queue}),
    )
    return deeds.perform(request, CANCEL, target)


def _failed(request: HttpRequest, error: BrokerError) -> HttpResponse:
    answer = site().render(request, "console/failed.html", "Timers", failure=error_text(error))
    answer.status_code = error.status
    return answer


def _cancel(named: Named, answers: deeds.Answers) -> Work:
    operation = TimerOperation(named.queue, named.timer.key, None)
    asked = ApplyRequest(tenant=named.tenant, operations=[operation])

    async def work(broker: Broker) -> Done:
        [outcome] = await timers.apply(broker, asked)
        return Done(text=TOLD[outcome.status], hits=int(outcome.ok), complete=outcome.ok)

    return work


CANCEL = Deed(
    name="cancel timer",
    title="Cancel the timer",
    permission=CHANGE,
    work=_cancel,
    explains="Its message will not be sent. A timer that a broker has in hand is not cancelled.",
)

for page in (
    Page(name="timers", title="Timers", route="timers/", permission=VIEW, view=list_page),
    Page(
        name="timer",
        title="Timer",
        route="timers/timer/",
        permission=VIEW,
        view=timer_page,
        listed=False,
    ),
    Page(
        name="timer-cancel",
        title="Cancel the timer",
        route="timers/timer/cancel/",
        permission=CHANGE,
        view=cancel_page,
        listed=False,
    ),
):
    site().add_page(page)
