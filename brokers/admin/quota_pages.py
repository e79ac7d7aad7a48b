"""Quotas as a list: what each metered tenant may have. They are written with SQL, and not here.

Imports filters, models, paging. Registered by registered.py.
"""

from django.contrib import admin

from brokers.admin.filters import TenantFilter
from brokers.admin.paging import KeysetAdmin
from brokers.models import Quota


@admin.register(Quota)
class QuotaAdmin(KeysetAdmin):
    keyset = ("tenant_id",)
    list_display = (
        "tenant_id", "enabled", "max_rows", "max_bytes", "max_timers", "max_horizon_s",
        "max_queues", "max_partitions", "max_retained_bytes", "push_rate", "streams_enabled",
        "max_queries", "updated_at",
    )  # fmt: skip
    list_display_links = ("tenant_id",)
    list_filter = (TenantFilter,)
    actions = None
    # What null means in this table.
    empty_value_display = "no bound"
