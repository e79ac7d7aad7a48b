"""What a page does: a form, a sentence that says how much it hits, a service, an audit entry.

A Deed is shown as a button where its permission is had. Its page asks what it needs to know,
says what will be hit, and only then acts: by `work`, in the broker's loop, through the service
that the API uses too. A service that fails is told as a failure, with its own words; where it
could not be told how much would be hit, nothing can be done that destroys.

Imports calling, once, site. Used by the pages that act.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect

from brokers.admin import once
from brokers.admin.calling import Work, ask, carry_out
from brokers.admin.site import site
from brokers.errors import BrokerError, StoreError, error_text
from brokers.runtime import Broker
from brokers.services.audit import Done

__all__ = ["Answers", "Deed", "DeedForm", "Done", "Target", "Work", "ask", "carry_out", "perform"]

Answers = Mapping[str, Any]

CONFIRMED = "confirmed"
SENT = (
    "This form was sent before, and nothing was done a second time: the audit tells what came of "
    "it. The one below is a new one."
)


class DeedForm(forms.Form):
    """What a deed asks. `thing` is what it will be done to."""

    def __init__(self, *args: Any, thing: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.thing = thing


class NoQuestions(DeedForm):
    """A deed that needs to know nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """`work` makes, of the target's object and the form's answers, what the broker shall do.

    `hits` asks the broker how much it would hit, in a sentence, and `counts` the tables;
    `destroys` colours the button and insists on that sentence. `initial` fills the form.
    """

    name: str
    title: str
    permission: str
    work: Callable[[Any, Answers], Work]
    explains: str = ""
    hits: Callable[[Any], Callable[[Broker], Coroutine[Any, Any, str]]] | None = None
    counts: Callable[[Any], str] | None = None
    form: type[forms.Form] = NoQuestions
    initial: Callable[[Any], Answers] = field(default=lambda thing: {})
    destroys: bool = False
    # Whether it can be done to this object as it is now; else there is no button.
    fits: Callable[[Any], bool] = field(default=lambda thing: True)
    # What the audit calls the target, where only the answers tell: its label and its tenant.
    aims: Callable[[Answers], tuple[str, UUID | None]] | None = None
    # Where the thing is gone afterwards, and has no page any more.
    removes: bool = False
    # What to answer in place of going back.
    then: Callable[[HttpRequest, Done], HttpResponse] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a deed is done to: the object, what the audit calls it, and where to go after.

    `listing` is where to go when the object has no page of its own any more.
    """

    thing: Any
    label: str
    tenant: UUID | None
    back: str
    listing: str = ""


def may(request: HttpRequest, deed: Deed) -> bool:
    return bool(request.user.has_perm(deed.permission))


def perform(request: HttpRequest, deed: Deed, target: Target) -> HttpResponse:
    """The page of a deed: asked for it shows what will happen, posted to it does it."""
    if not may(request, deed):
        raise PermissionDenied
    if request.method in ("GET", "HEAD"):
        return _asking(request, deed, target, _form(deed, target))
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "POST"])
    form = _form(deed, target, request.POST, request.FILES)
    if request.POST.get(CONFIRMED) != "yes" or not form.is_valid():
        return _asking(request, deed, target, form, status=400)
    if not once.spend(request):
        return _asking(request, deed, target, _form(deed, target), status=409, failure=SENT)
    answers = form.cleaned_data
    label, tenant = (target.label, target.tenant) if deed.aims is None else deed.aims(answers)
    try:
        done = carry_out(
            request,
            action=deed.name,
            target=label,
            tenant=tenant,
            detail=_said(answers),
            work=deed.work(target.thing, answers),
        )
    except BrokerError as error:
        return _asking(request, deed, target, form, status=error.status, failure=_failure(error))
    if deed.then is not None:
        return deed.then(request, done)
    level = messages.SUCCESS if done.complete else messages.WARNING
    messages.add_message(request, level, done.text)
    return HttpResponseRedirect(target.listing if deed.removes else target.back)


def _asking(
    request: HttpRequest,
    deed: Deed,
    target: Target,
    form: forms.Form,
    *,
    status: int = 200,
    failure: str = "",
) -> HttpResponse:
    hits, unknown = _hits(deed, target)
    answer = site().render(
        request,
        "console/deed.html",
        f"{deed.title}: {target.label}",
        deed=deed,
        target=target,
        form=form,
        once=once.token(),
        hits=hits,
        unknown=unknown,
        failure=failure,
        blocked=bool(deed.destroys and unknown),
    )
    answer.status_code = status
    return answer


def _failure(error: BrokerError) -> str:
    """Nobody is told that nothing happened who cannot be sure of it."""
    unknown = isinstance(error, StoreError) and error.outcome_unknown
    what = "It is not known whether this was done" if unknown else "This failed"
    return f"{what}: {error_text(error)}"


def _form(deed: Deed, target: Target, *sent: Any) -> forms.Form:
    given: dict[str, Any] = {} if sent else {"initial": dict(deed.initial(target.thing))}
    if issubclass(deed.form, DeedForm):
        given["thing"] = target.thing
    return deed.form(*sent, **given)


def _hits(deed: Deed, target: Target) -> tuple[str, str]:
    """How much it would hit; or nothing, and why that is not known."""
    try:
        if deed.hits is not None:
            return ask(deed.hits(target.thing)), ""
        if deed.counts is not None:
            return deed.counts(target.thing), ""
    except BrokerError as error:
        return "", error_text(error)
    return "", ""


def _said(answers: Answers) -> str:
    """What was asked for, in the audit's words."""
    return " ".join(f"{name}={value}" for name, value in answers.items() if value != "")
