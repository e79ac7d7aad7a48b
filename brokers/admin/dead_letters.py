"""The pages of dead letters: the list with its search, one letter, and what is done to them.

A list is one bounded look behind a place (services/letters.py); it says how far it came. The
payload of an encrypted letter is opened for who holds `open_deadletter`, and the audit tells
of each time.

Imports deeds, letter_deeds, letter_filter, payload_text, redrives, site, services. Registered by
registered.py.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from brokers.admin import deeds, letter_deeds, letter_filter, payload_text, redrives
from brokers.admin.deeds import Answers, Deed, Target, Work
from brokers.admin.letter_deeds import Chosen
from brokers.admin.letter_filter import LetterFilter
from brokers.admin.site import Page, site
from brokers.domain import DEFAULT_TENANT
from brokers.errors import BrokerError, RequestError, error_text
from brokers.runtime import Broker
from brokers.services import letters
from brokers.services.audit import Done
from brokers.services.letters import Found, Opened

VIEW, OPEN = "brokers.view_deadletter", "brokers.open_deadletter"
CHOSEN_MAX = 100
NOT_THERE = "There is no such dead letter: it was moved or deleted, or never was."

ONE = {
    "replay": letter_deeds.REPLAY_ONE,
    "resend": letter_deeds.RESEND_ONE,
    "delete": letter_deeds.DELETE_ONE,
}
CHOSEN = {"replay": letter_deeds.REPLAY_CHOSEN, "delete": letter_deeds.DELETE_CHOSEN}


# The list


def list_page(request: HttpRequest) -> HttpResponse:
    form, asked = letter_filter.read(request)
    context: dict[str, Any] = {"form": form, "asked": asked}
    status = 200
    if asked is None:
        status = 400
    else:
        try:
            found = deeds.ask(lambda broker: letters.search(broker, asked.search))
        except BrokerError as error:
            status = error.status
            context["failure"] = error_text(error)
        else:
            context |= _listed(request, asked, found)
    answer = site().render(request, "console/letters.html", "Dead letters", **context)
    answer.status_code = status
    return answer


def _listed(request: HttpRequest, asked: LetterFilter, found: Found) -> dict[str, Any]:
    lines = [
        {
            "line": line,
            "beginning": payload_text.text_of(line.payload or b""),
            "of_queue": asked.link(queue=line.queue),
            "of_group": asked.link(group=line.group),
        }
        for line in found.lines
    ]
    return {
        "lines": lines,
        "found": found,
        "first": None if asked.search.place is None else asked.link(),
        "older": asked.link_to(found.older),
        "newer": asked.link_to(found.newer, newer=True),
        "chosen_deeds": [(name, deed) for name, deed in CHOSEN.items() if deeds.may(request, deed)],
        "all_deeds": [
            (reverse(f"admin:{name}") + asked.link_until_now(), deed)
            for name, deed in (
                ("letters-redrive", letter_deeds.REDRIVE),
                ("letters-purge", letter_deeds.PURGE),
            )
            if deeds.may(request, deed)
        ],
        "all_fits": bool(asked.queue) and not asked.payload,
    }


# One letter


def letter_page(request: HttpRequest, letter_id: UUID) -> HttpResponse:
    try:
        opened = _opened(request, letter_id)
    except BrokerError as error:
        return _failed(request, error)
    buttons = [
        (reverse("admin:letter-deed", args=[letter_id, name]), deed)
        for name, deed in ONE.items()
        if deeds.may(request, deed) and deed.fits(opened)
    ]
    return site().render(
        request,
        "console/letter.html",
        f"Dead letter {letter_id}",
        letter=opened.letter,
        problem=opened.problem,
        shown=None if opened.payload is None else payload_text.shown(opened.payload),
        transaction=_identifier(opened.letter.transaction_id),
        becomes=f"dlq:{letter_id}",
        deeds=buttons,
    )


def payload_file(request: HttpRequest, letter_id: UUID) -> HttpResponse:
    """The payload's own bytes, to be kept as a file."""
    try:
        opened = _opened(request, letter_id)
    except BrokerError as error:
        return _failed(request, error)
    if opened.payload is None:
        raise PermissionDenied
    headers = {"Content-Disposition": f'attachment; filename="{letter_id}.json"'}
    return HttpResponse(opened.payload, content_type="application/octet-stream", headers=headers)


def letter_deed(request: HttpRequest, letter_id: UUID, name: str) -> HttpResponse:
    deed = ONE.get(name)
    if deed is None:
        raise Http404
    if not deeds.may(request, deed):
        raise PermissionDenied
    try:
        opened = _opened(request, letter_id, to_edit=name == "resend")
    except BrokerError as error:
        return _failed(request, error)
    if not deed.fits(opened):
        return _failed(request, RequestError(opened.problem or "not of this letter"), 409)
    target = Target(
        thing=opened,
        label=f"dead letter {letter_id}",
        tenant=UUID(opened.letter.tenant),
        back=reverse("admin:letter", args=[letter_id]),
        listing=_list_of(opened),
    )
    return deeds.perform(request, deed, target)


def _list_of(opened: Opened) -> str:
    queue = letter_filter.LetterForm({"queue": opened.letter.queue, "tenant": _tenant(opened)})
    return reverse("admin:letters") + (LetterFilter(queue).link() if queue.is_valid() else "")


def _tenant(opened: Opened) -> str:
    tenant = opened.letter.tenant
    return "" if UUID(tenant) == DEFAULT_TENANT else tenant


def _opened(request: HttpRequest, letter_id: UUID, *, to_edit: bool = True) -> Opened:
    """The letter; its payload opened for who may see it. Raises RequestError."""

    def look(*, may_open: bool) -> Callable[[Broker], Any]:
        return lambda broker: letters.look(broker, letter_id, may_open=may_open)

    opened: Opened | None = deeds.ask(look(may_open=False))
    if opened is None:
        raise RequestError(NOT_THERE, code="not_found")
    if not (to_edit and opened.letter.encrypted and request.user.has_perm(OPEN)):
        return opened
    seen: list[Opened | None] = []

    async def open_it(broker: Broker) -> Done:
        found = await letters.look(broker, letter_id, may_open=True)
        seen.append(found)
        return Done(text="", hits=1 if found is not None and found.payload is not None else 0)

    deeds.carry_out(
        request,
        action="open encrypted dead letter",
        target=f"dead letter {letter_id}",
        tenant=UUID(opened.letter.tenant),
        work=open_it,
    )
    if seen[0] is None:
        raise RequestError(NOT_THERE, code="not_found")
    return seen[0]


def _identifier(literal: str) -> str:
    """A transactionId as text; as its literal where it is none that can be shown."""
    text: str = json.loads(literal)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return literal
    return text


def _failed(request: HttpRequest, error: BrokerError, status: int | None = None) -> HttpResponse:
    answer = site().render(
        request, "console/failed.html", "Dead letters", failure=error_text(error)
    )
    answer.status_code = status or error.status
    return answer


# Many letters


def chosen_deed(request: HttpRequest, name: str) -> HttpResponse:
    deed = CHOSEN.get(name)
    if deed is None:
        raise Http404
    ids: list[UUID] = []
    for text in request.GET.getlist("letter"):
        try:
            ids.append(UUID(text))
        except ValueError:
            raise Http404 from None
    ids = list(dict.fromkeys(ids))[:CHOSEN_MAX]
    _, asked = letter_filter.read(request)
    if not ids or asked is None:
        return _failed(request, RequestError("no letter was chosen"), 400)
    target = Target(
        # The list has the newest first; what failed first goes first.
        thing=Chosen(tenant=asked.tenant, ids=ids[::-1]),
        label=f"{len(ids)} dead letters",
        tenant=asked.tenant,
        back=reverse("admin:letters") + asked.link(),
    )
    # The title says how many, the audit which.
    which = "dead letters " + " ".join(str(one) for one in ids)
    deed = replace(deed, aims=lambda answers: (which, target.tenant))
    return deeds.perform(request, deed, target)


def purge_page(request: HttpRequest) -> HttpResponse:
    return _all_that_match(request, letter_deeds.PURGE)


def redrive_page(request: HttpRequest) -> HttpResponse:
    """Once begun, the job's own page shows how far it is."""
    started: list[tuple[UUID, str]] = []

    def work(asked: LetterFilter, answers: Answers) -> Work:
        return letter_deeds.start_redrive(asked, answers, started)

    def then(request: HttpRequest, done: Done) -> HttpResponse:
        [(tenant, job)] = started
        address = reverse("admin:redrive", args=[job]) + redrives.of_tenant(tenant)
        return HttpResponseRedirect(address)

    return _all_that_match(request, replace(letter_deeds.REDRIVE, work=work, then=then))


def _all_that_match(request: HttpRequest, deed: Deed) -> HttpResponse:
    _, asked = letter_filter.read(request)
    if asked is None or not asked.queue:
        return _failed(request, RequestError("name the queue first"), 400)
    if asked.payload:
        # Whoever sees the hits of a search must not act on more than those.
        return _failed(request, RequestError("this cannot be done by a text of the payload"), 400)
    target = Target(
        thing=asked,
        label=asked.label,
        tenant=asked.tenant,
        back=reverse("admin:letters") + asked.link(),
    )
    return deeds.perform(request, deed, target)


for page in (
    Page(
        name="letters",
        title="Dead letters",
        route="dead-letters/",
        permission=VIEW,
        view=list_page,
    ),
    Page(
        name="letters-redrive",
        title="Redrive",
        route="dead-letters/redrive/",
        permission=letter_deeds.START,
        view=redrive_page,
        listed=False,
    ),
    Page(
        name="letters-purge",
        title="Purge",
        route="dead-letters/purge/",
        permission=letter_deeds.DELETE,
        view=purge_page,
        listed=False,
    ),
    Page(
        name="letters-chosen",
        title="Chosen dead letters",
        route="dead-letters/chosen/<str:name>/",
        permission=VIEW,
        view=chosen_deed,
        listed=False,
    ),
    Page(
        name="letter",
        title="Dead letter",
        route="dead-letters/<uuid:letter_id>/",
        permission=VIEW,
        view=letter_page,
        listed=False,
    ),
    Page(
        name="letter-payload",
        title="Payload",
        route="dead-letters/<uuid:letter_id>/payload/",
        permission=VIEW,
        view=payload_file,
        listed=False,
    ),
    Page(
        name="letter-deed",
        title="Dead letter",
        route="dead-letters/<uuid:letter_id>/<str:name>/",
        permission=VIEW,
        view=letter_deed,
        listed=False,
    ),
):
    site().add_page(page)
