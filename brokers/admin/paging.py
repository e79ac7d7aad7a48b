"""Lists of the admin that stay fast however long they are: by key, never by number.

A page is the rows behind (or before) a key, found by an index, one row more than is shown so
that it is known whether others follow. Nothing is counted: neither the whole list nor what a
filter leaves of it, for both would read it all. There is a first, a next and a previous page
and no last one.

Imports Django only. Used by the lists of the console.
"""

import base64
import binascii
import json
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters, ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan
from django.http import HttpRequest
from django.utils.text import capfirst

AFTER, BEFORE = "after", "before"
ROWS_A_PAGE = 100


class KeysetChangeList(ChangeList):
    """`keyset` are the fields that order the list, unique together; a `-` turns them all."""

    after: str | None = None
    before: str | None = None

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.title = capfirst(str(self.opts.verbose_name_plural))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        # Before anybody takes them for filters.
        for name in (AFTER, BEFORE):
            if name in self.params:
                setattr(self, name, self.params.pop(name))
            self.filter_params.pop(name, None)
        return super().get_queryset(request, exclude_parameters)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
        return list(self.model_admin.get_keyset(request))

    def get_results(self, request: HttpRequest) -> None:
        keyset = self.get_ordering(request, self.queryset)
        backwards = self.before is not None
        key = self.before if backwards else self.after
        rows = self.queryset
        if key is not None:
            rows = rows.filter(
                _beyond(self.model, keyset, _read(self.model, keyset, key), backwards)
            )
        if backwards:
            rows = rows.reverse()
        found = list(rows[: self.list_per_page + 1])
        more = len(found) > self.list_per_page
        found = found[: self.list_per_page]
        if backwards:
            found.reverse()
        self.model_admin.complete(request, found)
        self.next_key = _write(keyset, found[-1]) if found and (more or backwards) else None
        self.previous_key = (
            _write(keyset, found[0]) if found and (more if backwards else key is not None) else None
        )
        self.result_list = found
        self.result_count = len(found)  # so that nobody is offered to act on what is not shown
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = False
        self.paginator = None

    @property
    def is_first(self) -> bool:
        return self.after is None and self.before is None

    def first_link(self) -> str:
        return str(self.get_query_string())

    def next_link(self) -> str:
        return str(self.get_query_string({AFTER: self.next_key}))

    def previous_link(self) -> str:
        return str(self.get_query_string({BEFORE: self.previous_key}))


class KeysetAdmin(admin.ModelAdmin):
    """A list by key of rows that are only looked at; what may be done to one are deeds."""

    keyset: tuple[str, ...] = ("pk",)
    list_per_page = ROWS_A_PAGE
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by: tuple[str, ...] = ()
    actions_selection_counter = False
    preserve_filters = False  # a link to a row is an address that can be passed on
    change_list_template = "console/list.html"

    def get_keyset(self, request: HttpRequest) -> tuple[str, ...]:
        return self.keyset

    def complete(self, request: HttpRequest, rows: list[Any]) -> None:
        """Put to the rows of a page what one query more finds about all of them."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _beyond(model: type[Model], keyset: list[str], key: list[Any], backwards: bool) -> Any:
    """Rows behind the key in the order of the list, or before it, as one comparison of rows."""
    descending = keyset[0].startswith("-")
    assert all(name.startswith("-") == descending for name in keyset), "one index, one direction"
    comparison = TupleLessThan if descending != backwards else TupleGreaterThan
    names = [_column(model, name) for name in keyset]
    if len(names) == 1:
        verb = "lt" if comparison is TupleLessThan else "gt"
        return Q(**{f"{names[0]}__{verb}": key[0]})
    return comparison(Tuple(*names), tuple(key))


def _column(model: type[Model], name: str) -> str:
    plain = name.removeprefix("-")
    return model._meta.pk.name if plain == "pk" else plain


def _write(keyset: list[str], row: Any) -> str:
    values = [_value(row, name.removeprefix("-")) for name in keyset]
    written = [one.isoformat() if isinstance(one, datetime) else str(one) for one in values]
    text = json.dumps(written)
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _value(row: Any, path: str) -> Any:
    for name in path.split("__"):
        row = getattr(row, name)
    return row


def _read(model: type[Model], keyset: list[str], key: str) -> list[Any]:
    """The key out of an address, each part as its field takes it."""
    try:
        values = json.loads(base64.urlsafe_b64decode(key.encode("ascii")))
        if not isinstance(values, list) or len(values) != len(keyset):
            raise ValueError("another list's key")
        return [
            _part(_field(model, _column(model, name)), str(value))
            for name, value in zip(keyset, values, strict=True)
        ]
    except (ValueError, binascii.Error, UnicodeError, ValidationError) as error:
        raise IncorrectLookupParameters(str(error)) from error


def _part(field: Any, text: str) -> Any:
    """The value, when a row could have it: PostgreSQL compares no others."""
    text.encode()
    if "\x00" in text:
        raise ValueError("no row has it")
    value = field.to_python(text)
    field.run_validators(value)
    return value


def _field(model: type[Model], path: str) -> Any:
    """Whose values those at the path are; of a foreign key that is the field it points to."""
    found: Any = None
    for name in path.split("__"):
        found = model._meta.get_field(name)
        if found.related_model is not None:
            model = found.related_model
    return getattr(found, "target_field", found)
