"""What is done to dead letters: replay, edit and resend, delete; one, those chosen, all that match.

Imports deeds, letter_filter, payload_text, services. Used by dead_letters.py and redrives.py.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError

from brokers.admin import payload_text
from brokers.admin.deeds import Answers, Deed, Work
from brokers.admin.letter_filter import LetterFilter, NameField
from brokers.errors import BrokerError, RequestError, StoreError
from brokers.runtime import Broker
from brokers.services import dead_letters, letters, redrive
from brokers.services.audit import Done
from brokers.services.dead_letters import Replayed, ReplayRequest
from brokers.services.letters import TALLY_LOOKS_MAX, WEED_S, Opened
from brokers.services.redrive import RATE_DEFAULT, RATE_MAX, RedriveRequest
from brokers.store.letter_calls import Letter, Tally

REPLAY, DELETE = "brokers.change_deadletter", "brokers.delete_deadletter"
START = "brokers.add_redrive"
GONE = "It is gone: somebody has moved or deleted it meanwhile. Nothing was done."
MOVES = (
    "The message is appended to the partition named here and the letter deleted, in one commit: it "
    "is neither lost nor doubled, and whoever presses second finds it gone. Its transactionId "
    "becomes dlq:<id of the letter>."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Letters that were ticked in a list, the oldest failure first."""

    tenant: UUID
    ids: Sequence[UUID]


class DestinationForm(forms.Form):
    queue = NameField(required=True)
    partition = NameField(required=True)


class ResendForm(DestinationForm):
    payload = forms.CharField(
        strip=False,
        widget=forms.Textarea(attrs={"rows": 16, "spellcheck": "false", "class": "payload"}),
        help_text="A JSON value. It is sent as it is written here, digit for digit.",
    )
    field_order = ("payload", "queue", "partition")

    def clean_payload(self) -> payload_text.Edited:
        try:
            return payload_text.edited(self.cleaned_data["payload"])
        except RequestError as error:
            raise ValidationError(error.text) from None


# One letter


def _destination(opened: Opened) -> Answers:
    return {"queue": opened.letter.queue, "partition": opened.letter.partition}


def _replay(opened: Opened, answers: Answers) -> Work:
    return _move(opened.letter, answers, None)


def _resend(opened: Opened, answers: Answers) -> Work:
    original = opened.payload
    if original is None:
        raise RequestError(opened.problem or "the payload is not to be seen", code="conflict")
    return _move(opened.letter, answers, answers["payload"].unless_same(original))


def _move(letter: Letter, answers: Answers, payload: bytes | None) -> Work:
    asked = ReplayRequest(
        tenant=UUID(letter.tenant),
        dead_letter_id=UUID(letter.id),
        queue=_meant(answers["queue"], letter.queue),
        partition=_meant(answers["partition"], letter.partition),
        payload=payload,
    )

    async def work(broker: Broker) -> Done:
        moved = await dead_letters.replay(broker, asked)
        if moved is None:
            raise RequestError(GONE, code="not_found")
        return _told(moved, changed=payload is not None)

    return work


def _meant(answer: str, own: str) -> str:
    """A name may hold the end of a line, which no browser gives back out of its field."""
    return own if answer == own.translate({10: None, 13: None}) else answer


def _told(moved: Replayed, *, changed: bool) -> Done:
    where = f"{moved.queue} / {moved.partition}"
    if not moved.moved:
        text = f"{where} has {moved.transaction_id} already: nothing was written, the letter stays."
        return Done(text=text, hits=0, complete=False)
    how = "with another payload" if changed else "as it was"
    text = f"Sent to {where} {how}, at offset {moved.offset}, as {moved.transaction_id}."
    return Done(text=text, hits=1)


def _delete(opened: Opened, answers: Answers) -> Work:
    letter_id = UUID(opened.letter.id)

    async def work(broker: Broker) -> Done:
        deleted = await letters.discard(broker, [letter_id])
        if not deleted:
            raise RequestError(GONE, code="not_found")
        return Done(text="The dead letter is deleted.", hits=deleted)

    return work


def _is_message(opened: Opened) -> bool:
    return opened.letter.group != dead_letters.TIMER_GROUP


REPLAY_ONE = Deed(
    name="replay dead letter",
    title="Replay",
    permission=REPLAY,
    work=_replay,
    explains=f"{MOVES} The payload stays as it is, byte for byte.",
    form=DestinationForm,
    initial=_destination,
    fits=_is_message,
    removes=True,
)
RESEND_ONE = Deed(
    name="edit and resend dead letter",
    title="Edit and resend",
    permission=REPLAY,
    work=_resend,
    explains=f"{MOVES} A payload that was changed is no longer told as its producer's.",
    form=ResendForm,
    initial=lambda opened: {
        **_destination(opened),
        "payload": payload_text.text_of(opened.payload or b""),
    },
    fits=lambda opened: (
        _is_message(opened)
        and opened.payload is not None
        and len(opened.payload) <= payload_text.SHOWN_BYTES_MAX
    ),
    removes=True,
)


async def _one(broker: Broker) -> str:
    return "One dead letter will be deleted. The message is in no other place."


DELETE_ONE = Deed(
    name="delete dead letter",
    title="Delete",
    permission=DELETE,
    work=_delete,
    hits=lambda opened: _one,
    destroys=True,
    removes=True,
)


# Those chosen


def _replay_chosen(chosen: Chosen, answers: Answers) -> Work:
    async def work(broker: Broker) -> Done:
        counts: Counter[str] = Counter()
        failures: list[BrokerError] = []
        for letter_id in chosen.ids:
            asked = ReplayRequest(tenant=chosen.tenant, dead_letter_id=letter_id)
            try:
                moved = await dead_letters.replay(broker, asked)
            except BrokerError as error:
                unknown = isinstance(error, StoreError) and error.outcome_unknown
                counts["of unknown outcome" if unknown else "failed"] += 1
                failures.append(error)
                continue
            counts["gone" if moved is None else "moved" if moved.moved else "there already"] += 1
        if failures and counts["failed"] == len(chosen.ids):
            raise failures[-1]  # nothing was done, which is no deed that was done
        text = ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing to do"
        if failures:
            text += f" (the last: {failures[-1].text})"
        done = counts["moved"]
        return Done(text=f"Replayed: {text}.", hits=done, complete=done == len(chosen.ids))

    return work


def _delete_chosen(chosen: Chosen, answers: Answers) -> Work:
    async def work(broker: Broker) -> Done:
        deleted = await letters.discard(broker, chosen.ids)
        return Done(
            text=f"{deleted} deleted, {len(chosen.ids) - deleted} were gone already.", hits=deleted
        )

    return work


def _number_chosen(chosen: Chosen) -> Any:
    async def hits(broker: Broker) -> str:
        return f"Chosen: {len(chosen.ids)}."

    return hits


REPLAY_CHOSEN = Deed(
    name="replay dead letters",
    title="Replay those chosen",
    permission=REPLAY,
    work=_replay_chosen,
    explains="Each goes back to where it came from, the oldest failure first.",
    hits=_number_chosen,
)
DELETE_CHOSEN = Deed(
    name="delete dead letters",
    title="Delete those chosen",
    permission=DELETE,
    work=_delete_chosen,
    hits=_number_chosen,
    destroys=True,
)


# All that match


def _number_purged(asked: LetterFilter) -> Any:
    async def hits(broker: Broker) -> str:
        found = await letters.tally(broker, asked.tenant, asked.which)
        return f"{amount(found.found, found)} will be deleted, and are in no other place."

    return hits


def _number_moved(asked: LetterFilter) -> Any:
    async def hits(broker: Broker) -> str:
        found = await letters.tally(broker, asked.tenant, asked.which)
        return f"{amount(found.found - found.timers, found)} will be moved."

    return hits


def amount(count: int, found: Tally) -> str:
    """A number of letters, which is no number where nobody has counted them all."""
    if not found.more:
        return f"{count:,} dead letter{'' if count == 1 else 's'}"
    if count == 0:
        return f"An unknown number (none among the first {TALLY_LOOKS_MAX:,} looked at)"
    return f"More than {count:,} dead letters"


def _purge(asked: LetterFilter, answers: Answers) -> Work:
    async def work(broker: Broker) -> Done:
        weeded = await letters.weed(broker, asked.tenant, asked.which)
        text = f"{weeded.deleted:,} dead letters deleted."
        if not weeded.done:
            text += f" There are more: this ended after {WEED_S:.0f} seconds. Purge again to go on."
        return Done(text=text, hits=weeded.deleted, complete=weeded.done)

    return work


class RedriveForm(forms.Form):
    queue = NameField(label="To queue", help_text="where each came from, if empty")
    partition = NameField(label="To partition", help_text="where each came from, if empty")
    rate = forms.IntegerField(
        label="Letters a second", min_value=1, max_value=RATE_MAX, initial=RATE_DEFAULT
    )


def start_redrive(asked: LetterFilter, answers: Answers, started: list[tuple[UUID, str]]) -> Work:
    """The job, its tenant and id, is left in `started`."""
    request = RedriveRequest(
        tenant=asked.tenant,
        which=asked.which,
        target_queue=answers["queue"] or None,
        target_partition=answers["partition"] or None,
        rate=answers["rate"],
    )

    async def work(broker: Broker) -> Done:
        job = await redrive.create(broker, request)
        started.append((asked.tenant, job.id))
        return Done(text=f"The redrive {job.id} has begun.", hits=job.total)

    return work


PURGE = Deed(
    name="purge dead letters",
    title="Purge",
    permission=DELETE,
    work=_purge,
    hits=_number_purged,
    destroys=True,
)
REDRIVE = Deed(
    name="redrive dead letters",
    title="Redrive",
    permission=START,
    work=lambda asked, answers: start_redrive(asked, answers, []),
    explains=(
        "A job moves them back into the log, the oldest failure first, each exactly once. "
        "It can be cancelled and resumed."
    ),
    hits=_number_moved,
    form=RedriveForm,
)
