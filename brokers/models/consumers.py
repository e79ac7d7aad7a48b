"""What consumers leave behind: groups, cursors, dead letters, and the wake versions.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Now

from brokers.models.log import Partition, Queue, RandomUUID, name_field


class Group(models.Model):
    """The durable subscription of a consumer group to a queue."""

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    consumer_group = name_field()
    subscription_mode = models.TextField()
    subscription_timestamp = models.DateTimeField(null=True)
    conflation = models.BooleanField(db_default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_group"
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "consumer_group"], name="queen_group_queue_group"
            )
        ]

    def __str__(self) -> str:
        return self.consumer_group


class Cursor(models.Model):
    """How far a group got in a partition, and the one lease that may be live on it.

    `committed` is the last offset that is done. A lease covers `batch_start..batch_end`;
    `last_lease_id` is the lease that last ended by completion, so that a repeated ack
    under it is a harmless no-op. `retry_*` is the budget of one offset, `attempt_*` the
    deliveries of one batch start, `expiry_count` those of them that ran out unacked,
    `solo_until` the old batch end up to which messages are handed out one at a time, and
    `retry_at` when what was nacked may be delivered again.
    """

    pk = models.CompositePrimaryKey("partition_id", "consumer_group")
    partition = models.ForeignKey(
        Partition, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    consumer_group = name_field()
    committed = models.BigIntegerField(db_default=-1)
    batch_start = models.BigIntegerField(null=True)
    batch_end = models.BigIntegerField(null=True)
    lease_id = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    last_lease_id = models.UUIDField(null=True)
    retry_offset = models.BigIntegerField(null=True)
    retry_count = models.BigIntegerField(db_default=0)
    attempt_offset = models.BigIntegerField(null=True)
    attempt_count = models.BigIntegerField(db_default=0)
    expiry_count = models.BigIntegerField(db_default=0)
    solo_until = models.BigIntegerField(null=True)
    total_consumed = models.BigIntegerField(db_default=0)
    leased_at = models.DateTimeField(null=True)
    retry_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "queen_cursor"


class Wake(models.Model):
    """A version that moves when a group's cursors move backwards or are released.

    Only the floor reads it: it finds what no hint told it.
    """

    pk = models.CompositePrimaryKey("queue_id", "consumer_group")
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    consumer_group = name_field()
    version = models.BigIntegerField(db_default=1)

    class Meta:
        db_table = "queen_wake"


class DeadLetter(models.Model):
    """A message that a group gave up on: a snapshot that outlives the original."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    partition = models.ForeignKey(
        Partition, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    consumer_group = name_field()
    message_offset = models.BigIntegerField()
    message_id = models.UUIDField()
    # The canonical JSON literal, as in the segment's frame; null keeps what fits no column.
    transaction_id = models.TextField()
    transaction_hash = models.BigIntegerField()
    payload = models.BinaryField()
    encrypted = models.BooleanField(db_default=False)
    producer_sub = models.TextField(null=True)
    error = models.TextField()
    retry_count = models.BigIntegerField()
    failed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_dead_letter"
        constraints = [
            models.UniqueConstraint(
                fields=["partition", "consumer_group", "message_offset"],
                name="queen_dead_letter_message",
            )
        ]
        indexes = [
            models.Index(fields=["partition", "failed_at"], name="queen_dead_letter_failed"),
            models.Index(
                fields=["partition", "transaction_hash"], name="queen_dead_letter_address"
            ),
            models.Index(fields=["-failed_at", "id"], name="queen_dead_letter_newest"),
        ]
