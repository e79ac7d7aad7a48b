"""The pages of redrives: the jobs, and one job with its progress, to be cancelled and resumed.

The progress is a part of the page with an address of its own: the page's script asks for it
while the job runs (static/brokers/refresh.js); without scripts the whole page is asked for.

Imports deeds, letter_filter, site, services/redrive. Registered by registered.py.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from brokers.admin import deeds
from brokers.admin.deeds import Deed, Target, Work
from brokers.admin.site import Page, site
from brokers.domain import DEFAULT_TENANT
from brokers.errors import BrokerError, error_text
from brokers.runtime import Broker
from brokers.services import redrive
from brokers.services.audit import Done
from brokers.services.redrive import ListRequest
from brokers.store.redrive_calls import RedriveRow

VIEW, CHANGE = "brokers.view_redrive", "brokers.change_redrive"
ROWS_A_PAGE = 50
STATES = ("running", "done", "cancelled", "failed")
WAITING = "push maintenance is on: the job waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    tenant: UUID
    row: RedriveRow


class RedrivesForm(forms.Form):
    state = forms.ChoiceField(
        required=False, choices=[("", "any"), *((one, one) for one in STATES)]
    )
    tenant = forms.UUIDField(required=False, help_text="the default one if empty")
    at = forms.DateTimeField(required=False, widget=forms.HiddenInput)
    before = forms.UUIDField(required=False, widget=forms.HiddenInput)


def list_page(request: HttpRequest) -> HttpResponse:
    form = RedrivesForm(request.GET)
    context: dict[str, Any] = {"form": form}
    status = 200
    if not form.is_valid():
        status = 400
    else:
        said = form.cleaned_data
        asked = ListRequest(
            tenant=said["tenant"] or DEFAULT_TENANT,
            state=said["state"] or None,
            limit=ROWS_A_PAGE + 1,
            before=(said["at"], str(said["before"])) if said["at"] and said["before"] else None,
        )
        try:
            rows = deeds.ask(lambda broker: redrive.page(broker, asked))
        except BrokerError as error:
            status = error.status
            context["failure"] = error_text(error)
        else:
            context |= _listed(form, rows, asked)
    answer = site().render(request, "console/redrives.html", "Redrives", **context)
    answer.status_code = status
    return answer


def _listed(form: RedrivesForm, rows: list[RedriveRow], asked: ListRequest) -> dict[str, Any]:
    typed = {name: form.data.get(name, "") for name in ("state", "tenant")}
    first = "?" + urlencode({name: value for name, value in typed.items() if value})
    older = None
    if len(rows) > ROWS_A_PAGE:
        last = rows[ROWS_A_PAGE - 1]
        place = {"at": last.created_at.isoformat(), "before": last.id}
        older = "?" + urlencode({**typed, **place})
    return {
        "jobs": rows[:ROWS_A_PAGE],
        "tenant": typed["tenant"],
        "first": None if asked.before is None else first,
        "older": older,
    }


def job_page(request: HttpRequest, redrive_id: UUID) -> HttpResponse:
    tenant = _tenant(request)
    try:
        progress = deeds.ask(_progress(tenant, redrive_id))
    except BrokerError as error:
        return _failed(request, error)
    job = Job(tenant=tenant, row=progress["job"])
    buttons = [
        (reverse("admin:redrive-deed", args=[redrive_id, name]) + of_tenant(tenant), deed)
        for name, deed in DEEDS.items()
        if deeds.may(request, deed) and deed.fits(job)
    ]
    return site().render(
        request,
        "console/redrive.html",
        f"Redrive {redrive_id}",
        progress_at=reverse("admin:redrive-progress", args=[redrive_id]) + of_tenant(tenant),
        deeds=buttons,
        **progress,
    )


def progress_part(request: HttpRequest, redrive_id: UUID) -> HttpResponse:
    """What changes on a job's page while the job runs."""
    try:
        progress = deeds.ask(_progress(_tenant(request), redrive_id))
    except BrokerError as error:
        return HttpResponse(error_text(error), status=error.status, content_type="text/plain")
    return render(request, "console/redrive_progress.html", progress)


def _progress(
    tenant: UUID, redrive_id: UUID
) -> Callable[[Broker], Coroutine[Any, Any, dict[str, Any]]]:
    async def work(broker: Broker) -> dict[str, Any]:
        job = await redrive.find(broker, tenant, redrive_id)
        runs = job.state == "running"
        handled = job.moved + job.skipped
        return {
            "job": job,
            "runs": runs,
            "waiting": WAITING if runs and broker.switches.push_maintenance else "",
            "handled": handled,
            # A letter that somebody else moved or deleted meanwhile was counted too.
            "out_of": None if job.total is None else max(job.total, handled),
        }

    return work


def job_deed(request: HttpRequest, redrive_id: UUID, name: str) -> HttpResponse:
    deed, tenant = DEEDS.get(name), _tenant(request)
    if deed is None:
        raise Http404
    try:
        row = deeds.ask(lambda broker: redrive.find(broker, tenant, redrive_id))
    except BrokerError as error:
        return _failed(request, error)
    target = Target(
        thing=Job(tenant=tenant, row=row),
        label=f"redrive {redrive_id}",
        tenant=tenant,
        back=reverse("admin:redrive", args=[redrive_id]) + of_tenant(tenant),
    )
    return deeds.perform(request, deed, target)


def of_tenant(tenant: UUID) -> str:
    """The query that names the tenant, where it is not the default one."""
    return "" if tenant == DEFAULT_TENANT else "?" + urlencode({"tenant": str(tenant)})


def _tenant(request: HttpRequest) -> UUID:
    try:
        return UUID(request.GET.get("tenant") or str(DEFAULT_TENANT))
    except ValueError:
        raise Http404 from None


def _failed(request: HttpRequest, error: BrokerError) -> HttpResponse:
    answer = site().render(request, "console/failed.html", "Redrives", failure=error_text(error))
    answer.status_code = error.status
    return answer


def _stop(job: Job, answers: deeds.Answers) -> Work:
    async def work(broker: Broker) -> Done:
        row = await redrive.cancel(broker, job.tenant, UUID(job.row.id))
        if row.state == "done":
            return Done(text=f"It was done before: {row.moved:,} moved.", hits=0, complete=False)
        return Done(text=f"Stopped: {row.moved:,} moved, no further one will.", hits=1)

    return work


def _resume(job: Job, answers: deeds.Answers) -> Work:
    async def work(broker: Broker) -> Done:
        await redrive.resume(broker, job.tenant, UUID(job.row.id))
        return Done(text="The job runs again.", hits=1)

    return work


DEEDS = {
    "stop": Deed(
        name="stop redrive",
        title="Stop",
        permission=CHANGE,
        work=_stop,
        explains="Once this is answered no further letter moves. The job can be resumed later.",
        fits=lambda job: job.row.state in ("running", "failed"),
    ),
    "resume": Deed(
        name="resume redrive",
        title="Resume",
        permission=CHANGE,
        work=_resume,
        explains=(
            "The job looks at all letters of its filter anew: what it has moved is gone from there,"
            " what it skipped is tried again."
        ),
        fits=lambda job: job.row.state in ("cancelled", "failed"),
    ),
}


for page in (
    Page(name="redrives", title="Redrives", route="redrives/", permission=VIEW, view=list_page),
    Page(
        name="redrive",
        title="Redrive",
        route="redrives/<uuid:redrive_id>/",
        permission=VIEW,
        view=job_page,
        listed=False,
    ),
    Page(
        name="redrive-progress",
        title="Progress",
        route="redrives/<uuid:redrive_id>/progress/",
        permission=VIEW,
        view=progress_part,
        listed=False,
    ),
    Page(
        name="redrive-deed",
        title="Redrive",
        route="redrives/<uuid:redrive_id>/<str:name>/",
        permission=VIEW,
        view=job_deed,
        listed=False,
    ),
):
    site().add_page(page)
