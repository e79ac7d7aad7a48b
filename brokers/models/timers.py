"""Timers: messages that are not yet in the log.

A timer belongs to a queue by name, because the queue need not exist before the fire. What tells
the timers of a deleted queue from those of the next queue of that name is their generation.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Greatest, Now

from brokers.models.log import DEFAULT_TENANT, name_field


class Timer(models.Model):
    """One pending message. Claimed: it has a token, and `claimed_until` is in the future.

    A timer that backs off after a failed fire has a `claimed_until` and no token, so that
    it can be cancelled. `shard` spreads where scans start and keeps a partition's timers
    together.
    """

    pk = models.CompositePrimaryKey("tenant_id", "queue", "timer_key")
    tenant_id = models.UUIDField(default=DEFAULT_TENANT)
    queue = name_field()
    timer_key = name_field()
    partition = name_field()
    deliver_at = models.DateTimeField()
    # The canonical JSON literal, as it will lie in the segment's frame.
    txn = models.TextField()
    message_id = models.UUIDField()
    payload = models.BinaryField()
    # Whether the payload lies in an envelope of a broker's; and whether whoever scheduled it
    # said that it was encrypted, which is shown and means nothing to us.
    encrypted = models.BooleanField(db_default=False)
    marked_encrypted = models.BooleanField(db_default=False)
    producer_sub = models.TextField(null=True)
    attempts = models.BigIntegerField(db_default=0)
    last_error = models.TextField(null=True)
    claimed_until = models.DateTimeField(null=True)
    claim_token = models.UUIDField(null=True)
    visible_at = models.GeneratedField(
        expression=Greatest("deliver_at", "claimed_until"),
        output_field=models.DateTimeField(),
        db_persist=True,
    )
    shard = models.SmallIntegerField()
    generation = models.BigIntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_timer"
        indexes = [models.Index(fields=["shard", "visible_at"], name="queen_timer_visible")]

    def __str__(self) -> str:
        return self.timer_key


class TimerReclaim(models.Model):
    """A queue was deleted: timers of that name and of an older generation are gone.

    Everybody who reads timers looks here. The row stays until the last of them has been
    removed, in bounded steps: `swept_to` is how far the present pass over the keys has come,
    `settled` whether it began when nobody could still add one, `skipped` whether it left any.
    `horizon` is the first transaction that surely saw the delete; null before the first pass.
    """

    pk = models.CompositePrimaryKey("tenant_id", "queue")
    tenant_id = models.UUIDField()
    queue = name_field()
    generation = models.BigIntegerField()
    swept_to = models.TextField(db_collation="C", db_default="")
    settled = models.BooleanField(db_default=False)
    skipped = models.BooleanField(db_default=False)
    horizon = models.BigIntegerField(null=True)

    class Meta:
        db_table = "queen_timer_reclaim"

    def __str__(self) -> str:
        return self.queue
