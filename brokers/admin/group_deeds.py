"""What may be done to a consumer group at a queue: seek, reset, delete.

Imports deeds, queue_figures, services/groups. Used by group_pages.py.
"""

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from brokers.admin import queue_figures
from brokers.admin.deeds import Answers, Deed, DeedForm, Work
from brokers.admin.queue_deeds import name_field
from brokers.admin.things import ago
from brokers.domain import QUEUE_MODE
from brokers.errors import RequestError
from brokers.models import Group
from brokers.runtime import Broker
from brokers.services import groups
from brokers.services.audit import Done
from brokers.services.groups import SeekRequest

NOTHING_THERE = "There is no such queue or partition any more."
BEGINNING, END, TIME = "beginning", "end", "time"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SeekForm(DeedForm):
    where = forms.ChoiceField(
        label="To",
        choices=(
            (END, "the end: skip all there is"),
            (TIME, "the first message stored at or after a time"),
            (BEGINNING, "the beginning: all that is retained, once more"),
        ),
    )
    time = forms.DateTimeField(
        label="Time (UTC)",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )
    partition = name_field("Partition", required=False, help_text="Empty: all of the queue.")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("where") == TIME and not cleaned.get("time") and not self.errors:
            raise ValidationError("Say to which time.")
        return cleaned


class ForgetForm(DeedForm):
    forget = forms.BooleanField(
        label="Its subscription too",
        required=False,
        initial=True,
        help_text="Else only its cursors go, and it begins anew where its subscription says.",
    )


def _seek(group: Group, answers: Answers) -> Work:
    at = {BEGINNING: EPOCH, END: None, TIME: answers["time"]}[answers["where"]]
    return _seeking(group, at, answers["partition"] or None)


def _reset(group: Group, _: Answers) -> Work:
    return _seeking(group, EPOCH, None)


def _seeking(group: Group, at: datetime | None, partition: str | None) -> Work:
    queue = group.queue

    async def work(broker: Broker) -> Done:
        moved = await groups.seek(
            broker,
            SeekRequest(
                tenant=queue.tenant_id,
                group=group.consumer_group,
                queue=queue.name,
                partition=partition,
                at=at,
            ),
        )
        if moved is None:
            raise RequestError(NOTHING_THERE, code="not_found")
        return Done(text=f"The group was put in {moved} partitions.", hits=moved)

    return work


def _delete(group: Group, answers: Answers) -> Work:
    queue = group.queue

    async def work(broker: Broker) -> Done:
        gone = await groups.delete(
            broker,
            queue.tenant_id,
            group.consumer_group,
            queue=queue.name,
            forget=bool(answers["forget"]),
        )
        what = " and its subscription" if gone.subscription else ""
        return Done(text=f"Deleted {gone.cursors} cursors{what}.", hits=gone.cursors)

    return work


def _reach(verb: str) -> Any:
    """In how many partitions, and what it lags behind there, as last counted."""

    def sentence(group: Group) -> str:
        place = (group.queue_id, group.consumer_group)
        known = queue_figures.group_figures([place]).get(place)
        if known is None:
            return f"{verb} The group was not counted yet: it is not known in how many partitions."
        return (
            f"{verb} It has cursors in {known.cursors} partitions and lags behind by {known.lag}"
            f" messages in {known.partitions_lagging} of them, as counted"
            f" {ago(known.computed_at)} ago."
        )

    return sentence


SEEK = Deed(
    name="seek",
    title="Seek",
    permission="brokers.change_group",
    explains="What is out under a lease is not acked any more, and what lies behind the new place"
    " is delivered again.",
    counts=_reach("This moves the group."),
    form=SeekForm,
    work=_seek,
)
RESET = Deed(
    name="reset",
    title="Reset",
    permission="brokers.change_group",
    explains="The group reads everything again that the queue retains.",
    counts=_reach("This puts the group back to the beginning of every partition."),
    work=_reset,
)
DELETE = Deed(
    name="delete",
    title="Delete",
    permission="brokers.delete_group",
    explains="Where the group has got to in this queue is forgotten. There is no way back.",
    counts=_reach("This deletes what is known of the group here."),
    form=ForgetForm,
    initial=lambda group: {"forget": group.consumer_group != QUEUE_MODE},
    work=_delete,
    destroys=True,
    removes=True,
)
GROUP_DEEDS = (SEEK, RESET, DELETE)
