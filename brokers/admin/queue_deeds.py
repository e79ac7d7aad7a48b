"""What may be done to a queue and to a partition: by the services behind the API, no other way.

A destroying deed tells what is there at that moment: it counts the queue anew, and where that
takes too long it says what was last counted, and when.

Imports deeds, services/{queues,pausing,purge,status}. Used by queue_pages.py, partition_pages.py.
"""

from typing import Any
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError

from brokers.admin.deeds import Answers, Deed, DeedForm, Work
from brokers.admin.things import ago
from brokers.api import wire
from brokers.domain import DEFAULT_TENANT
from brokers.errors import RequestError, StatementCancelled, StoreError
from brokers.models import Partition, Queue, QueueStatistics
from brokers.runtime import Broker
from brokers.services import pausing, purge, queues, status
from brokers.services.audit import Done
from brokers.services.purge import Purged, PurgeRequest, UnknownPartition, UnknownQueue
from brokers.services.queues import OPTIONS, ConfigureRequest, Option

GONE = "There is no such queue any more."
PARTITION_GONE = "There is no such partition any more."
UNITS = {
    "leaseTime": "seconds",
    "delayedProcessing": "seconds",
    "windowBuffer": "seconds",
    "minPopWaitTime": "milliseconds",
    "retentionSeconds": "seconds, 0 for ever",
    "completedRetentionSeconds": "seconds, 0 for ever",
    "maxWaitTimeSeconds": "seconds, 0 without end",
    "dedupWindowSeconds": "seconds",
    "retentionSinkHoldMaxSeconds": "seconds",
    "maxDeliveries": "0 without end",
    "maxSize": "messages, 0 without end; in force with enforce",
    "ttl": "seconds; in force with enforce",
    "retryDelay": "milliseconds; in force with enforce",
    "enforce": "whether ttl, maxSize and retryDelay are in force, and not only kept",
}


def identifier(text: str) -> None:
    problem = wire.identifier_problem(text, wire.NAME_BYTES_MAX)
    if problem is not None:
        raise ValidationError(problem)


def name_field(label: str, **options: Any) -> forms.CharField:
    """A name is compared as given, so nothing is cut off it."""
    return forms.CharField(label=label, strip=False, validators=[identifier], **options)


def _option_field(option: Option) -> forms.Field:
    options: dict[str, Any] = {
        "label": option.name,
        "help_text": UNITS.get(option.name, ""),
        "required": False,
        "show_hidden_initial": True,
    }
    if isinstance(option.default, bool):
        return forms.BooleanField(**options)
    if isinstance(option.default, int):
        # Not a number's widget: browsers round what they take for one.
        widget = forms.TextInput(attrs={"inputmode": "numeric", "size": 20})
        bounds = {"min_value": option.low, "max_value": option.high}
        return forms.IntegerField(widget=widget, **bounds, **options)
    return forms.RegexField(rf"\A{option.pattern}\Z", **options)


class OptionsForm(DeedForm):
    """Every option as it is now. What was changed is sent, what was emptied becomes the default.

    The page keeps what it showed, so that an option which somebody else has changed meanwhile
    is not changed back.
    """

    namespace = name_field("namespace", required=False, show_hidden_initial=True)
    task = name_field("task", required=False, show_hidden_initial=True)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for option in OPTIONS:
            self.fields[option.name] = _option_field(option)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        changed = {name: cleaned[name] for name in self.changed_data if name in cleaned}
        if not changed and not self.errors:
            raise ValidationError("Nothing was changed.")
        return changed


class NewQueueForm(DeedForm):
    name = name_field("Name")
    tenant = forms.UUIDField(label="Tenant", initial=DEFAULT_TENANT)


class PurgeForm(DeedForm):
    dead_letters = forms.BooleanField(label="Its dead letters too", required=False)


class DeleteForm(DeedForm):
    # A name may be empty.
    name = forms.CharField(label="The queue's name, to be sure", strip=False, required=False)

    def clean_name(self) -> str:
        given: str = self.cleaned_data["name"]
        if given != self.thing.name:
            raise ValidationError("That is not its name.")
        return given


def _shown_options(queue: Queue) -> dict[str, Any]:
    named = {"namespace": queue.namespace, "task": queue.task}
    return named | {option.name: getattr(queue, option.column) for option in OPTIONS}


def _configure(queue: Queue, answers: Answers) -> Work:
    async def work(broker: Broker) -> Done:
        options = dict(answers)
        await queues.configure(
            broker,
            ConfigureRequest(
                tenant=queue.tenant_id, queue=queue.name, replace=False, options=options
            ),
        )
        return Done(text=f"Changed: {', '.join(options)}.", hits=len(options))

    return work


def _create(_: Any, answers: Answers) -> Work:
    async def work(broker: Broker) -> Done:
        tenant, name = answers["tenant"], answers["name"]
        if await status.queue(broker, tenant, name, limit=1, offset=0) is not None:
            raise RequestError("There is a queue of that name already.", code="conflict")
        await queues.configure(
            broker, ConfigureRequest(tenant=tenant, queue=name, replace=False, options={})
        )
        return Done(text=f"The queue {name} is there.", hits=1)

    return work


def _set_paused(*, paused: bool) -> Any:
    def make(queue: Queue, _: Answers) -> Work:
        async def work(broker: Broker) -> Done:
            done = await pausing.set_paused(broker, queue.tenant_id, queue.name, paused=paused)
            if done is None:
                raise RequestError(GONE, code="not_found")
            now = "paused" if paused else "resumed"
            text = f"The queue is {now}." if done.changed else f"The queue was {now} already."
            return Done(text=text, hits=int(done.changed))

        return work

    return make


def _purge(queue: Queue, answers: Answers) -> Work:
    return _purging(queue.tenant_id, queue.name, None, bool(answers["dead_letters"]))


def _purge_partition(partition: Partition, answers: Answers) -> Work:
    queue = partition.queue
    return _purging(queue.tenant_id, queue.name, partition.name, bool(answers["dead_letters"]))


def _purging(tenant: UUID, queue: str, partition: str | None, dead_letters: bool) -> Work:
    async def work(broker: Broker) -> Done:
        asked = PurgeRequest(
            tenant=tenant, queue=queue, partition=partition, dead_letters=dead_letters
        )
        try:
            done = await purge.purge(broker, asked)
        except UnknownQueue:
            raise RequestError(GONE, code="not_found") from None
        except UnknownPartition:
            raise RequestError(PARTITION_GONE, code="not_found") from None
        return Done(text=_purged(done), hits=done.messages, complete=done.complete)

    return work


def _purged(done: Purged) -> str:
    text = f"Deleted {done.messages} messages in {done.partitions} partitions"
    text += f" and {done.dead_letters} dead letters." if done.dead_letters else "."
    if done.busy:
        text += f" {done.busy} partitions were held by somebody and are left as they were."
    if done.more:
        text += " Time ran out before the end: purge again to go on."
    return text


def _delete(queue: Queue, _: Answers) -> Work:
    async def work(broker: Broker) -> Done:
        messages = await _messages_of(broker, queue)
        if not await queues.delete(broker, queue.tenant_id, queue.name):
            raise RequestError(GONE, code="not_found")
        many = "an unknown number of" if messages is None else messages
        return Done(text=f"The queue is deleted, with {many} messages.", hits=messages)

    return work


async def _messages_of(broker: Broker, queue: Queue) -> int | None:
    """None where counting them takes too long, which keeps nobody from deleting them."""
    try:
        found = await status.queue(broker, queue.tenant_id, queue.name, limit=1, offset=0)
    except StoreError as error:
        if not _took_too_long(error):
            raise
        return None
    return None if found is None else found.totals[1]


def _held(verb: str) -> Any:
    """How much a queue holds now; what was last counted where counting takes too long."""

    def make(queue: Queue) -> Any:
        last = QueueStatistics.objects.filter(queue_id=queue.pk).first()

        async def ask(broker: Broker) -> str:
            try:
                found = await status.queue(broker, queue.tenant_id, queue.name, limit=1, offset=0)
            except StoreError as error:
                if last is None or not _took_too_long(error):
                    raise
                return _sentence(verb, last.total, last.partitions, last.dead_letters) + (
                    f" That was counted {ago(last.computed_at)} ago: counting again took too long."
                )
            if found is None:
                raise RequestError(GONE, code="not_found")
            partitions, total, _, _, _, dead = found.totals
            return _sentence(verb, total, partitions, dead)

        return ask

    return make


def _took_too_long(error: StoreError) -> bool:
    return isinstance(error, StatementCancelled) or error.outcome_unknown


def _sentence(verb: str, messages: int, partitions: int, dead: int) -> str:
    return (
        f"{verb} {messages} messages in {partitions} partitions;"
        f" there are {dead} dead letters beside them."
    )


def _held_by_partition(partition: Partition) -> str:
    held = partition.last_offset - partition.log_start + 1
    return f"This deletes {held} messages, of all groups, whether consumed or not."


CREATE = Deed(
    name="create",
    title="Create queue",
    permission="brokers.add_queue",
    explains="With the default of every option; its page changes them.",
    form=NewQueueForm,
    work=_create,
    aims=lambda answers: (answers["name"], answers["tenant"]),
)
CONFIGURE = Deed(
    name="configure",
    title="Configure",
    permission="brokers.change_queue",
    explains="Only what you change is sent. An option that you empty gets its default back.",
    form=OptionsForm,
    initial=_shown_options,
    work=_configure,
)
PAUSE = Deed(
    name="pause",
    title="Pause",
    permission="brokers.pause_queue",
    explains="Nothing is popped from a paused queue; pushes, acks and everything else go on.",
    work=_set_paused(paused=True),
    fits=lambda queue: not queue.paused,
)
RESUME = Deed(
    name="resume",
    title="Resume",
    permission="brokers.pause_queue",
    explains="Consumers that wait are told at once.",
    work=_set_paused(paused=False),
    fits=lambda queue: queue.paused,
)
PURGE = Deed(
    name="purge",
    title="Purge",
    permission="brokers.purge_queue",
    explains="What the queue holds now is deleted, consumed or not; the queue stays, with its"
    " options and its groups. There is no way back.",
    hits=_held("This deletes up to"),
    form=PurgeForm,
    work=_purge,
    destroys=True,
)
DELETE = Deed(
    name="delete",
    title="Delete",
    permission="brokers.delete_queue",
    explains="The queue goes, and with it its partitions, groups, dead letters and timers. There"
    " is no way back.",
    hits=_held("This deletes the queue with"),
    form=DeleteForm,
    work=_delete,
    destroys=True,
    removes=True,
)
PURGE_PARTITION = Deed(
    name="purge",
    title="Purge",
    permission="brokers.purge_queue",
    explains="What this partition holds now is deleted, consumed or not. There is no way back.",
    counts=_held_by_partition,
    form=PurgeForm,
    work=_purge_partition,
    destroys=True,
)
QUEUE_DEEDS = (CONFIGURE, PAUSE, RESUME, PURGE, DELETE)
