"""What consumers leave behind: groups, cursors, dead letters, and the wake versions.

Imports models/log.py. Used by models/__init__.py.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from brokers.models.log import Partition, Queue, RandomUUID, name_field


class Group(models.Model):
    """The durable subscription of a consumer group to a queue.

    `start_at` is set once a cursor that is missing no longer means that the partition is new to
    everybody (the start was changed, or the cursors were deleted): a cursor that is born then
    begins at the first message stored at or after it, and not at the oldest.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    consumer_group = name_field()
    subscription_mode = models.TextField()
    subscription_timestamp = models.DateTimeField(null=True)
    start_at = models.DateTimeField(null=True)
    conflation = models.BooleanField(db_default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_group"
        verbose_name = "consumer group"
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "consumer_group"], name="queen_group_queue_group"
            )
        ]

    def __str__(self) -> str:
        return self.consumer_group


class GroupStatistics(models.Model):
    """The figures of a group at a queue as the statistics task last found them.

    `oldest` are the partitions whose first unconsumed message is oldest, oldest first, at most
    a hundred of them.
    """

    pk = models.CompositePrimaryKey("queue_id", "consumer_group")
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    consumer_group = name_field()
    computed_at = models.DateTimeField()
    cursors = models.BigIntegerField()
    partitions_lagging = models.BigIntegerField()
    lag = models.BigIntegerField()
    consumed = models.BooleanField()
    oldest_at = models.DateTimeField(null=True)
    oldest = ArrayField(models.BigIntegerField())

    class Meta:
        db_table = "queen_group_statistics"


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
    """A message that a group gave up on: a snapshot that outlives the original.

    Tenant and queue are those of its partition, which never change: a listing finds its rows
    by them without a walk over partitions, or over what other tenants have.
    """

    id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    tenant_id = models.UUIDField()
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
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
        permissions = [("open_deadletter", "Can see the payload of an encrypted dead letter")]
        constraints = [
            models.UniqueConstraint(
                fields=["partition", "consumer_group", "message_offset"],
                name="queen_dead_letter_message",
            )
        ]
        indexes = [
            models.Index(
                fields=["partition", "transaction_hash"], name="queen_dead_letter_address"
            ),
            # One for each way to ask: of a tenant or a queue, and with a group or without.
            models.Index(fields=["tenant_id", "failed_at", "id"], name="queen_dead_letter_tenant"),
            models.Index(
                fields=["tenant_id", "consumer_group", "failed_at", "id"],
                name="queen_letter_tenant_group",
            ),
            models.Index(fields=["queue", "failed_at", "id"], name="queen_dead_letter_queue"),
            models.Index(
                fields=["queue", "consumer_group", "failed_at", "id"],
                name="queen_letter_queue_group",
            ),
        ]


class LetterStatistics(models.Model):
    """How many dead letters a partition has that has too many to be counted for whoever asks."""

    pk = models.CompositePrimaryKey("queue_id", "partition_id")
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    partition = models.ForeignKey(
        Partition, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    dead_letters = models.BigIntegerField()

    class Meta:
        db_table = "queen_letter_statistics"


class Redrive(models.Model):
    """A job that moves the dead letters of a queue, as its filter says, back into a log.

    `state` is running | done | cancelled | failed. `reached_*` is the last letter that was
    looked at: it moves in the transaction that moves letters, so a job goes on where its last
    commit was. `next_at` paces it on the database's clock.
    """

    id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    tenant_id = models.UUIDField()
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    queue_name = name_field()
    consumer_group = models.TextField(db_collation="C", null=True)
    error_text = models.TextField(null=True)
    failed_from = models.DateTimeField(null=True)
    failed_to = models.DateTimeField()
    target_queue = models.TextField(db_collation="C", null=True)
    target_partition = models.TextField(db_collation="C", null=True)
    rate = models.IntegerField()
    state = models.TextField(db_default="running")
    # Null when there were too many to count.
    total = models.BigIntegerField(null=True)
    looked_at = models.BigIntegerField(db_default=0)
    moved = models.BigIntegerField(db_default=0)
    skipped = models.BigIntegerField(db_default=0)
    problem = models.TextField(null=True)
    reached_at = models.DateTimeField(null=True)
    reached_id = models.UUIDField(null=True)
    next_at = models.DateTimeField(db_default=Now())
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "queen_redrive"
        indexes = [
            models.Index(fields=["tenant_id", "created_at", "id"], name="queen_redrive_tenant"),
            models.Index(
                fields=["next_at"],
                name="queen_redrive_running",
                condition=models.Q(state="running"),
            ),
        ]
