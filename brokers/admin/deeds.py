"""What a page does: a form, a sentence that says how much it hits, a service, an audit entry.

A Deed is shown as a button where its permission is had. Its page asks what it needs to know,
says what will be hit, and only then acts: by `work`, in the broker's loop, through the service
that the API uses too. A service that fails is told as a failure, with its own words; where it
could not be told how much would be hit, nothing can be done that destroys.

Imports runtime, services/audit, site. Used by the pages that act.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect

from brokers import runtime
from brokers.admin.site import site
from brokers.errors import BrokerError, Refusal, error_text
from brokers.runtime import Broker
from brokers.services import audit
from brokers.services.audit import Done

T = TypeVar("T")
Work = Callable[[Broker], Awaitable[Done]]
Answers = Mapping[str, Any]

CONFIRMED = "confirmed"


class NoQuestions(forms.Form):
    """A deed that needs to know nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """`work` makes, of the target's object and the form's answers, what the broker shall do.

    `hits` asks the broker how much it would hit, in a sentence; `destroys` colours the button
    and insists on that sentence. `initial` fills the form.
    """

    name: str
    title: str
    permission: str
    work: Callable[[Any, Answers], Work]
    explains: str = ""
    hits: Callable[[Any], Callable[[Broker], Coroutine[Any, Any, str]]] | None = None
    form: type[forms.Form] = NoQuestions
    initial: Callable[[Any], Answers] = field(default=lambda thing: {})
    destroys: bool = False
    # Whether it can be done to this object as it is now; else there is no button.
    fits: Callable[[Any], bool] = field(default=lambda thing: True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a deed is done to: the object, what the audit calls it, and where to go after."""

    thing: Any
    label: str
    tenant: UUID | None
    back: str


def may(request: HttpRequest, deed: Deed) -> bool:
    return bool(request.user.has_perm(deed.permission))


def perform(request: HttpRequest, deed: Deed, target: Target) -> HttpResponse:
    """The page of a deed: asked for it shows what will happen, posted to it does it."""
    if not may(request, deed):
        raise PermissionDenied
    if request.method in ("GET", "HEAD"):
        return _asking(request, deed, target, deed.form(initial=dict(deed.initial(target.thing))))
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "POST"])
    form = deed.form(request.POST, request.FILES)
    if request.POST.get(CONFIRMED) != "yes" or not form.is_valid():
        return _asking(request, deed, target, form, status=400)
    try:
        done = carry_out(
            request,
            action=deed.name,
            target=target.label,
            tenant=target.tenant,
            detail=_said(form),
            work=deed.work(target.thing, form.cleaned_data),
        )
    except BrokerError as error:
        return _asking(request, deed, target, form, status=error.status, failure=error_text(error))
    level = messages.SUCCESS if done.complete else messages.WARNING
    messages.add_message(request, level, done.text)
    return HttpResponseRedirect(target.back)


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


def ask(work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
    """The answer of a service that changes nothing. Raises BrokerError."""
    broker = running()
    return broker.call_from_thread(work(broker))


def running() -> Broker:
    broker = runtime.current()
    if broker is None:
        raise Refusal("no broker runs in this process", retry_after_s=5)
    return broker


def _asking(
    request: HttpRequest,
    deed: Deed,
    target: Target,
    form: forms.Form,
    *,
    status: int = 200,
    failure: str = "",
) -> HttpResponse:
    hits, unknown = "", ""
    if deed.hits is not None:
        try:
            hits = ask(deed.hits(target.thing))
        except BrokerError as error:
            unknown = error_text(error)
    answer = site().render(
        request,
        "console/deed.html",
        f"{deed.title}: {target.label}",
        deed=deed,
        target=target,
        form=form,
        hits=hits,
        unknown=unknown,
        failure=failure,
        blocked=bool(deed.destroys and unknown),
    )
    answer.status_code = status
    return answer


def _said(form: forms.Form) -> str:
    """What was asked for, in the audit's words."""
    said = form.cleaned_data.items()
    return " ".join(f"{name}={value}" for name, value in said if value not in ("", None))
