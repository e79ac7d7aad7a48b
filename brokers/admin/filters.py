"""Filters of a list that are typed, for what there is too much of to choose from.

A typed filter is an exact match (or whatever its `narrow` says) on columns that an index
begins with. Nothing is offered and nothing counted, so a filter costs no query of its own.

Imports Django only. Used by the lists of the console.
"""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest


class TextFilter(admin.SimpleListFilter):
    """`lookup` is the field that has to be the text given."""

    template = "console/text_filter.html"
    lookup = ""
    input_type = "text"
    hint = ""

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        self.others = [
            (name, value)
            for name, values in request.GET.lists()
            if name not in (self.parameter_name, "after", "before", "e")
            for value in values
        ]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("", "")]  # none would hide the filter

    def choices(self, changelist: Any) -> list[dict[str, Any]]:
        return [{"value": self.value() or "", "others": self.others}]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value in (None, ""):
            return queryset
        if "\x00" in str(value):
            return queryset.none()  # no text in PostgreSQL holds it
        return self.narrow(queryset, str(value))

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(**{self.lookup: value})


class TenantFilter(TextFilter):
    title = "tenant"
    parameter_name = "tenant"
    lookup = "tenant_id"
    hint = "UUID"

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        try:
            return queryset.filter(**{self.lookup: UUID(value)})
        except ValueError as error:
            raise IncorrectLookupParameters("a tenant is a UUID") from error


class TimeFilter(TextFilter):
    """From that time on; a subclass that turns `comparison` makes it an end."""

    input_type = "datetime-local"
    comparison = "gte"
    hint = "UTC"

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        try:
            moment = forms.DateTimeField().clean(value)
        except forms.ValidationError as error:
            raise IncorrectLookupParameters("not a time") from error
        return queryset.filter(**{f"{self.lookup}__{self.comparison}": moment})
