"""API keys: the list, making one, whose text is shown once and kept nowhere, and revoking it.

Imports deeds, filters, models, queue_deeds, services/api_keys, things. Registered by
registered.py.
"""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from brokers.admin import deeds
from brokers.admin.deeds import Answers, Deed, DeedForm, Target, Work
from brokers.admin.filters import TenantFilter
from brokers.admin.queue_deeds import name_field
from brokers.admin.site import site
from brokers.admin.things import Fact, ThingAdmin
from brokers.errors import RequestError
from brokers.models import ApiKey
from brokers.principal import ROLES
from brokers.runtime import Broker
from brokers.services import api_keys
from brokers.services.api_keys import CreateRequest
from brokers.services.audit import Done

DAY_S = 86_400
DAYS_MAX = 36_500


class NewKeyForm(DeedForm):
    name = name_field("Name", help_text="Whose it is; stamped on what is pushed with it.")
    role = forms.ChoiceField(label="Role", choices=[(role, role) for role in reversed(ROLES)])
    tenant = forms.UUIDField(
        label="Tenant",
        required=False,
        help_text="Empty: an operator's key, which names the tenant by header.",
    )
    queue_prefix = name_field(
        "Queue prefix", required=False, help_text="It reaches only queues that begin so."
    )
    days = forms.IntegerField(
        label="Days",
        required=False,
        min_value=1,
        max_value=DAYS_MAX,
        help_text="After which it is no longer taken. Empty: never.",
    )


def _create(_: Any, answers: Answers) -> Work:
    days = answers["days"]
    asked = CreateRequest(
        name=answers["name"],
        role=answers["role"],
        tenant=answers["tenant"],
        queue_prefix=answers["queue_prefix"],
        expires_s=None if days is None else days * DAY_S,
    )

    async def work(broker: Broker) -> Done:
        made = await api_keys.create_here(broker, asked)
        return Done(text=f"Key {made.id} was made.", hits=1, secret=made.text)

    return work


def _revoke(key: ApiKey, _: Answers) -> Work:
    async def work(broker: Broker) -> Done:
        outcome = await api_keys.revoke_here(broker, key.key_id)
        if outcome == "unknown":
            raise RequestError("There is no such key any more.", code="not_found")
        text = f"{key.key_id}: {outcome}. Every broker sees it within a second."
        return Done(text=text, hits=int(outcome == "revoked"))

    return work


def _show_once(request: HttpRequest, done: Done) -> HttpResponse:
    return site().render(
        request,
        "console/secret.html",
        done.text,
        secret=done.secret,
        asked=settings.QUEEN_CONFIG.auth.api_keys,
    )


CREATE = Deed(
    name="create",
    title="Create API key",
    permission="brokers.add_apikey",
    explains="Its text is shown once, on the next page, and kept nowhere.",
    form=NewKeyForm,
    work=_create,
    aims=lambda answers: (answers["name"], answers["tenant"]),
    then=_show_once,
)
REVOKE = Deed(
    name="revoke",
    title="Revoke",
    permission="brokers.change_apikey",
    explains="No broker takes it any more. There is no way back.",
    counts=lambda key: f"Everybody who uses the key {key.name} is refused from then on.",
    work=_revoke,
    destroys=True,
    fits=lambda key: key.revoked_at is None,
)


@admin.register(ApiKey)
class ApiKeyAdmin(ThingAdmin):
    keyset = ("-id",)
    list_display = (
        "key_id", "name", "role", "tenant_id", "queue_prefix", "state", "created_at",
        "expires_at", "last_used_at",
    )  # fmt: skip
    list_display_links = ("key_id",)
    list_filter = (TenantFilter,)
    actions = None
    deeds = (REVOKE,)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("digest")

    @admin.display(description="State")
    def state(self, key: ApiKey) -> str:
        if key.revoked_at is not None:
            return "revoked"
        expired = key.expires_at is not None and key.expires_at <= timezone.now()
        return "expired" if expired else "in force"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(CREATE.permission))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        here = self.list_address()
        return deeds.perform(
            request, CREATE, Target(thing=None, label="new key", tenant=None, back=here)
        )

    def facts(self, request: HttpRequest, key: ApiKey) -> list[Fact]:
        return [
            ("Key", key.key_id),
            ("Name", key.name),
            ("Role", key.role),
            ("Tenant", key.tenant_id or "an operator's: named by header"),
            ("Queue prefix", key.queue_prefix or "all queues"),
            ("State", self.state(key)),
            ("Created", key.created_at),
            ("Expires", key.expires_at or "never"),
            ("Revoked", key.revoked_at or "-"),
            ("Last used", key.last_used_at or "-"),
        ]
