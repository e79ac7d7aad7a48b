"""The audit as a list: who did what, when, to what, how many, and how it went. Nobody edits it.

Imports filters, models, paging. Registered by registered.py.
"""

from django.contrib import admin

from brokers.admin.filters import TenantFilter, TextFilter
from brokers.admin.paging import KeysetAdmin
from brokers.models import AuditEntry


class UserFilter(TextFilter):
    title = "user"
    parameter_name = "user_name"
    lookup = "user_name"


@admin.register(AuditEntry)
class AuditEntryAdmin(KeysetAdmin):
    keyset = ("-id",)
    list_display = (
        "at", "user_name", "action", "target", "tenant_id", "outcome", "hits", "detail", "peer",
    )  # fmt: skip
    list_filter = (UserFilter, TenantFilter)
    list_display_links = ("at",)
    actions = None
