"""What Django admin changes by itself (users, roles), told to the audit too.

Imports calling. Used by user_pages.py.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from brokers.admin import calling


class AuditedAdmin(admin.ModelAdmin):
    """Django notes each change in the transaction that makes it; where our entry cannot be
    written that transaction ends with the error, so nothing is changed unheard."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._tell(request, "add", obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._tell(request, "change", obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        for obj in queryset:
            self._tell(request, "delete", obj, "")
        return super().log_deletions(request, queryset)

    def _tell(self, request: HttpRequest, verb: str, obj: Any, message: Any) -> None:
        name = self.opts.verbose_name
        calling.note(request, action=f"{verb} {name}", target=str(obj), detail=str(message or ""))
