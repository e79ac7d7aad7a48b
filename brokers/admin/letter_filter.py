"""Which dead letters: what an operator types to find them, and what that means to services.

Everything is typed, nothing is chosen from a list, so a filter costs no query of its own. It
lives in the address of a page: a list, its next page and what is done to all that match are
asked for with the same words.

Imports api/wire, domain, services. Used by the pages of dead letters and of redrives.
"""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from brokers.api import wire
from brokers.domain import DEFAULT_TENANT
from brokers.services.letters import SearchRequest
from brokers.store.letter_calls import Place
from brokers.store.redrive_calls import Filter

ROWS_A_PAGE = 50
TEXT_MAX = 1000
# What says which letters, and what says where in the list of them we are.
MEANING = ("tenant", "queue", "group", "error", "payload", "since", "until")
PLACE = ("at", "id", "newer")


def _check_name(value: str) -> None:
    problem = wire.identifier_problem(value, wire.NAME_BYTES_MAX)
    if problem is not None:
        raise ValidationError(problem)


class NameField(forms.CharField):
    """A name as it is: blanks at its ends are part of it."""

    def __init__(self, **options: Any) -> None:
        given = {"required": False, "strip": False, "validators": [_check_name]}
        super().__init__(**{**given, **options})


class TextField(forms.CharField):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "strip": False, "max_length": TEXT_MAX, **options})


class MomentField(forms.DateTimeField):
    """A time of this console, which is UTC, as `2026-11-29 08:00` or in ISO 8601."""

    def __init__(self, **options: Any) -> None:
        widget = forms.TextInput(attrs={"placeholder": "2026-11-29 08:00"})
        super().__init__(**{"required": False, "widget": widget, **options})


class LetterForm(forms.Form):
    queue = NameField()
    group = NameField()
    error = TextField(label="Error holds", help_text="as it is written: case counts")
    payload = TextField(
        label="Payload holds",
        help_text="as the producer sent it; encrypted payloads are not searched",
    )
    since = MomentField(label="From (UTC)")
    until = MomentField(label="To (UTC)")
    tenant = forms.UUIDField(required=False, help_text="the default one if empty")
    at = forms.DateTimeField(required=False, widget=forms.HiddenInput)
    id = forms.UUIDField(required=False, widget=forms.HiddenInput)
    newer = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or {}
        if (said.get("at") is None) != (said.get("id") is None):
            raise ValidationError("half a place in the list")
        since, until = said.get("since"), said.get("until")
        if since is not None and until is not None and since > until:
            raise ValidationError("From must not be later than To.")
        return said


class LetterFilter:
    """A filter that was understood. Its links keep what was asked for as it was typed."""

    def __init__(self, form: LetterForm) -> None:
        said = form.cleaned_data
        self._typed = {name: form.data.get(name, "") for name in MEANING}
        self.tenant: UUID = said["tenant"] or DEFAULT_TENANT
        self.queue: str = said["queue"]
        self.payload: str = said["payload"]
        self.which = Filter(
            queue=said["queue"],
            group=said["group"] or None,
            error=said["error"] or None,
            since=said["since"],
            until=said["until"],
        )
        place = None if said["at"] is None else Place(said["at"], str(said["id"]))
        self.search = SearchRequest(
            tenant=self.tenant,
            queue=self.which.queue or None,
            group=self.which.group,
            error=self.which.error,
            payload=said["payload"] or None,
            since=self.which.since,
            until=self.which.until,
            place=place,
            newer=said["newer"],
            limit=ROWS_A_PAGE,
        )

    def link(self, **changes: str) -> str:
        """The query of the same letters, or of others as `changes` say; the first page of them."""
        asked = {**self._typed, **changes}
        return "?" + urlencode({name: value for name, value in asked.items() if value})

    def link_to(self, place: Place | None, *, newer: bool = False) -> str | None:
        if place is None:
            return None
        at = {"at": place.failed_at.astimezone(UTC).isoformat(), "id": place.id}
        return self.link(**at, **({"newer": "on"} if newer else {}))

    def link_until_now(self) -> str:
        """Of what has failed so far: what comes later is none of what is done to them."""
        if self.which.until is not None:
            return self.link()
        return self.link(until=datetime.now(UTC).isoformat())

    @property
    def label(self) -> str:
        """In words, for a title and the audit."""
        parts = [f"queue {self.queue}"]
        if self.which.group:
            parts.append(f"group {self.which.group}")
        if self.which.error:
            parts.append(f'error "{self.which.error}"')
        if self.which.since:
            parts.append(f"from {self.which.since:%Y-%m-%d %H:%M:%S}")
        if self.which.until:
            parts.append(f"to {self.which.until:%Y-%m-%d %H:%M:%S}")
        return "dead letters of " + ", ".join(parts)


def read(request: HttpRequest) -> tuple[LetterForm, LetterFilter | None]:
    """The form of the page's address, and what it means; None when it makes no sense."""
    form = LetterForm(request.GET)
    return form, LetterFilter(form) if form.is_valid() else None
