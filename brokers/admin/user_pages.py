"""Users and roles in the console: Django's own pages, with every change in the audit.

Who is made here may sign in here: a user of this project has no other use.

Imports audited. Registered by registered.py.
"""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

from brokers.admin.audited import AuditedAdmin

admin.site.unregister([User, Group])


@admin.register(User)
class OperatorAdmin(AuditedAdmin, UserAdmin):
    show_full_result_count = False
    # Facts, and not for anybody to write.
    readonly_fields = ("last_login", "date_joined")

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if not change:
            obj.is_staff = True
        super().save_model(request, obj, form, change)


@admin.register(Group)
class RoleAdmin(AuditedAdmin, GroupAdmin):
    show_full_result_count = False
