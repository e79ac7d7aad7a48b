"""The pages of key/value state: namespaces, the entries of one, and one entry with its value.

They read by the service behind the API, so a pause of key/value state is one here too. To
write is a permission of its own that only Administrators have; a write names the version that
was seen, so it changes nothing that somebody else has changed meanwhile.

Imports deeds, payload_text, site, services/kv. Registered by registered.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from brokers.admin import deeds, payload_text
from brokers.admin.deeds import Deed, Target, Work
from brokers.admin.letter_filter import NameField
from brokers.admin.site import Page, site
from brokers.api import wire
from brokers.api.kv_payloads import TTL_MAX_S
from brokers.domain import DEFAULT_TENANT, KvLost, KvOperation
from brokers.errors import BrokerError, RequestError, error_text
from brokers.runtime import Broker
from brokers.services import kv
from brokers.services.audit import Done
from brokers.services.kv import NAMESPACE_KEYS_MAX, ListRequest
from brokers.store.kv_calls import ListedEntry

VIEW = "brokers.view_keyvalue"
CHANGE, DELETE = "brokers.change_keyvalue", "brokers.delete_keyvalue"
ROWS_A_PAGE = 100
BEGINNING = 120
VERSION_MAX = 2**63 - 1
GONE = "There is no such entry: it was deleted, or it expired and was removed."
CHANGED = "Somebody has changed it meanwhile. Nothing was done: look at it again."


def _check_key(value: str) -> None:
    problem = wire.identifier_problem(value, wire.INTEGER_MAX)
    if problem is not None:
        raise ValidationError(problem)


class KeyField(forms.CharField):
    def __init__(self, **options: Any) -> None:
        given = {"required": False, "strip": False, "validators": [_check_key]}
        super().__init__(**{**given, **options})


class NamespacesForm(forms.Form):
    tenant = forms.UUIDField(required=False, help_text="the default one if empty")
    after = NameField(widget=forms.HiddenInput)


class EntriesForm(forms.Form):
    ns = NameField(label="Namespace", required=True)
    prefix = KeyField(label="Key begins with")
    tenant = forms.UUIDField(required=False, help_text="the default one if empty")
    after = KeyField(widget=forms.HiddenInput)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An entry by its name, and as it was last seen."""

    tenant: UUID
    namespace: str
    entry: ListedEntry

    @property
    def query(self) -> str:
        return _query(self.tenant, ns=self.namespace, key=self.entry.key)


def _query(tenant: UUID, **named: str) -> str:
    whose = {} if tenant == DEFAULT_TENANT else {"tenant": str(tenant)}
    return "?" + urlencode({**{name: one for name, one in named.items() if one}, **whose})


# Looking


def namespaces_page(request: HttpRequest) -> HttpResponse:
    form = NamespacesForm(request.GET)

    def listed(said: dict[str, Any]) -> dict[str, Any]:
        tenant, after = said["tenant"] or DEFAULT_TENANT, said["after"] or None
        found = deeds.ask(
            lambda broker: kv.namespace_page(broker, tenant, after=after, limit=ROWS_A_PAGE + 1)
        )
        shown = found[:ROWS_A_PAGE]
        return {
            "namespaces": [
                {
                    "name": name,
                    "keys": min(keys, NAMESPACE_KEYS_MAX),
                    "more": keys > NAMESPACE_KEYS_MAX,
                    "link": reverse("admin:kv-entries") + _query(tenant, ns=name),
                }
                for name, keys in shown
            ],
            "first": None if after is None else _query(tenant),
            "next": _query(tenant, after=shown[-1][0]) if len(found) > ROWS_A_PAGE else None,
        }

    return _page(request, "console/kv_namespaces.html", "Key/value state", form, listed)


def entries_page(request: HttpRequest) -> HttpResponse:
    form = EntriesForm(request.GET)

    def listed(said: dict[str, Any]) -> dict[str, Any]:
        tenant = said["tenant"] or DEFAULT_TENANT
        asked = ListRequest(
            tenant=tenant,
            namespace=said["ns"],
            prefix=said["prefix"],
            after=said["after"] or None,
            limit=ROWS_A_PAGE,
            include_expired=True,
        )
        found = deeds.ask(lambda broker: kv.page(broker, asked))
        here = {"ns": asked.namespace, "prefix": asked.prefix}
        more = bool(found) and found[-1].more
        return {
            "entries": [_line(tenant, asked.namespace, entry) for entry in found],
            "first": None if asked.after is None else _query(tenant, **here),
            "next": _query(tenant, **here, after=found[-1].key) if more else None,
        }

    return _page(request, "console/kv_entries.html", "Key/value entries", form, listed)


def _line(tenant: UUID, namespace: str, entry: ListedEntry) -> dict[str, Any]:
    value = entry.value or b""
    return {
        "entry": entry,
        "beginning": payload_text.text_of(value[: 4 * BEGINNING]),
        "size": len(value),
        "link": reverse("admin:kv-entry") + _query(tenant, ns=namespace, key=entry.key),
    }


def _page(
    request: HttpRequest,
    template: str,
    title: str,
    form: forms.Form,
    listed: Callable[[dict[str, Any]], dict[str, Any]],
) -> HttpResponse:
    context: dict[str, Any] = {"form": form}
    status = 200
    if not form.is_valid():
        status = 400
    else:
        try:
            context |= listed(form.cleaned_data)
        except BrokerError as error:
            status = error.status
            context["failure"] = error_text(error)
    answer = site().render(request, template, title, **context)
    answer.status_code = status
    return answer


def entry_page(request: HttpRequest) -> HttpResponse:
    try:
        named = _named(request)
    except BrokerError as error:
        return _failed(request, error)
    buttons = [
        (reverse("admin:kv-deed", args=[name]) + named.query, deed)
        for name, deed in DEEDS.items()
        if deeds.may(request, deed) and deed.fits(named)
    ]
    return site().render(
        request,
        "console/kv_entry.html",
        f"{named.namespace} / {named.entry.key}",
        named=named,
        entry=named.entry,
        shown=payload_text.shown(named.entry.value or b""),
        entries=reverse("admin:kv-entries") + _query(named.tenant, ns=named.namespace),
        deeds=buttons,
    )


def _named(request: HttpRequest) -> Named:
    """The entry of the page's address, also one that has expired. Raises RequestError."""
    namespace, key = request.GET.get("ns", ""), request.GET.get("key", "")
    try:
        tenant = UUID(request.GET.get("tenant") or str(DEFAULT_TENANT))
        NameField(required=True).clean(namespace)
        KeyField(required=True).clean(key)
    except (ValueError, ValidationError):
        raise RequestError(GONE, code="not_found") from None
    # Of all keys with this prefix the shortest comes first, which is the key itself.
    asked = ListRequest(
        tenant=tenant, namespace=namespace, prefix=key, limit=1, include_expired=True
    )
    found = deeds.ask(lambda broker: kv.page(broker, asked))
    if not found or found[0].key != key:
        raise RequestError(GONE, code="not_found")
    return Named(tenant=tenant, namespace=namespace, entry=found[0])


def _failed(request: HttpRequest, error: BrokerError) -> HttpResponse:
    answer = site().render(
        request, "console/failed.html", "Key/value state", failure=error_text(error)
    )
    answer.status_code = error.status
    return answer


# Writing


def entry_deed(request: HttpRequest, name: str) -> HttpResponse:
    deed = DEEDS.get(name)
    if deed is None:
        return _failed(request, RequestError(GONE, code="not_found"))
    try:
        named = _named(request)
    except BrokerError as error:
        return _failed(request, error)
    entries = reverse("admin:kv-entries") + _query(named.tenant, ns=named.namespace)
    target = Target(
        thing=named,
        label=f"{named.namespace} / {named.entry.key}",
        tenant=named.tenant,
        back=entries if name == "delete" else reverse("admin:kv-entry") + named.query,
    )
    return deeds.perform(request, deed, target)


class VersionForm(forms.Form):
    """`version` is the one that was seen when the page was asked for."""

    version = forms.IntegerField(widget=forms.HiddenInput, min_value=1, max_value=VERSION_MAX)


class ValueForm(VersionForm):
    value = forms.CharField(
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "class": "payload"}),
        help_text="A JSON value. It is stored as it is written here, digit for digit.",
    )
    forever = forms.BooleanField(required=False, label="Never expires")
    ttl_s = forms.IntegerField(
        required=False, min_value=1, max_value=TTL_MAX_S, label="Or expires in (seconds)"
    )

    def clean_value(self) -> payload_text.Edited:
        try:
            return payload_text.edited(self.cleaned_data["value"])
        except RequestError as error:
            raise ValidationError(error.text) from None

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or {}
        if bool(said.get("forever")) == (said.get("ttl_s") is not None):
            raise ValidationError("Say either that it never expires or in how many seconds.")
        return said


def _write(named: Named, operation: KvOperation, done: str) -> Work:
    async def work(broker: Broker) -> Done:
        if len(operation.value) > broker.config.kv.value_bytes_max:
            limit = broker.config.kv.value_bytes_max
            raise RequestError(f"the value is larger than {limit} bytes", code="payload_too_large")
        answer = await kv.apply(broker, named.tenant, [operation])
        if isinstance(answer, KvLost) or not answer[0].applied:
            raise RequestError(CHANGED, code="conflict")
        return Done(text=done, hits=1)

    return work


def _put(named: Named, answers: deeds.Answers) -> Work:
    value = answers["value"].unless_same(named.entry.value or b"")
    operation = KvOperation(
        op="put",
        namespace=named.namespace,
        key=named.entry.key,
        value=(named.entry.value or b"") if value is None else value,
        expect=answers["version"],
        ttl_s=answers["ttl_s"],
    )
    return _write(named, operation, "The value is stored.")


def _delete(named: Named, answers: deeds.Answers) -> Work:
    operation = KvOperation(
        op="delete",
        namespace=named.namespace,
        key=named.entry.key,
        expect=answers["version"],
    )
    return _write(named, operation, "The entry is deleted.")


def _seen(named: Named) -> dict[str, Any]:
    entry = named.entry
    return {
        "version": entry.version,
        "value": payload_text.text_of(entry.value or b""),
        "forever": entry.expires_at is None,
    }


async def _one(broker: Broker) -> str:
    return "One entry will be deleted."


DEEDS = {
    "change": Deed(
        name="change key/value entry",
        title="Change",
        permission=CHANGE,
        work=_put,
        explains="Programs read this state. What they wrote is overwritten unless it has changed.",
        form=ValueForm,
        initial=_seen,
        fits=lambda named: not named.entry.expired,
    ),
    "delete": Deed(
        name="delete key/value entry",
        title="Delete",
        permission=DELETE,
        work=_delete,
        form=VersionForm,
        initial=_seen,
        hits=lambda named: _one,
        destroys=True,
        fits=lambda named: not named.entry.expired,
    ),
}

for page in (
    Page(name="kv", title="Key/value state", route="kv/", permission=VIEW, view=namespaces_page),
    Page(
        name="kv-entries",
        title="Entries",
        route="kv/entries/",
        permission=VIEW,
        view=entries_page,
        listed=False,
    ),
    Page(
        name="kv-entry",
        title="Entry",
        route="kv/entry/",
        permission=VIEW,
        view=entry_page,
        listed=False,
    ),
    Page(
        name="kv-deed",
        title="Entry",
        route="kv/entry/<str:name>/",
        permission=VIEW,
        view=entry_deed,
        listed=False,
    ),
):
    site().add_page(page)
