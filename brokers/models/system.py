"""What the brokers keep for themselves: flags, schedules, slots, marks, figures, leftovers.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Now

from brokers.models.log import Queue


class System(models.Model):
    """A named switch or value of the whole cell (the operator's switches, checksums)."""

    key = models.TextField(primary_key=True)
    value = models.JSONField()
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_system"


class Lease(models.Model):
    """The schedule of one leader task, and who holds it.

    The fencing token rises with every holder: a step under an older one does nothing.
    """

    task = models.TextField(primary_key=True)
    enabled = models.BooleanField(db_default=True)
    next_due_at = models.DateTimeField(db_default=Now())
    holder = models.TextField(null=True)
    held_until = models.DateTimeField(null=True)
    fencing_token = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "queen_lease"


class TransactionSlot(models.Model):
    """A time slot of queen_txn: which period was last cleared out of it, and whether it may hold
    rows of queues that have moved to longer slots since, which are carried there first.

    The slot of the longest class has no periods; `cleared_period` is how far the purge got
    (microseconds since 1970)."""

    slot = models.SmallIntegerField(primary_key=True)
    txn_class = models.SmallIntegerField()
    span_s = models.BigIntegerField()
    cleared_period = models.BigIntegerField(db_default=0)
    carry = models.BooleanField(db_default=False)

    class Meta:
        db_table = "queen_txn_slot"


class SpoolFile(models.Model):
    """A mark: how many records of one spool file are stored, and who drains it.

    It moves in the transaction that stores them. `oldest_accepted_at` is when the oldest
    record that the spool still held had been accepted; transaction slots wait for it.
    """

    pk = models.CompositePrimaryKey("spool_id", "file")
    spool_id = models.UUIDField()
    file = models.TextField(db_collation="C")
    done = models.BigIntegerField()
    server_id = models.TextField()
    oldest_accepted_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_spool"


class QueueStatistics(models.Model):
    """The figures of a queue as the statistics task last found them.

    `next_at` keeps a queue that is long in counting from being counted at every turn.
    `segments`, `bytes` and `bytes_at` belong to the retained-bytes task, which comes much less
    often. `written_*` are partitions by the age of their last write.
    """

    queue = models.OneToOneField(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, primary_key=True
    )
    computed_at = models.DateTimeField()
    next_at = models.DateTimeField()
    partitions = models.BigIntegerField()
    total = models.BigIntegerField()
    pending = models.BigIntegerField()
    processing = models.BigIntegerField()
    completed = models.BigIntegerField()
    dead_letters = models.BigIntegerField()
    segments = models.BigIntegerField(null=True)
    bytes = models.BigIntegerField(null=True)
    bytes_at = models.DateTimeField(null=True)
    written_1h = models.BigIntegerField(db_default=0)
    written_24h = models.BigIntegerField(db_default=0)
    written_7d = models.BigIntegerField(db_default=0)
    created_24h = models.BigIntegerField(db_default=0)
    oldest_write_at = models.DateTimeField(null=True)
    newest_write_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "queen_queue_statistics"


class RetentionHistory(models.Model):
    """What retention deleted from one queue in one minute, by the rule that asked for it.

    It outlives its queue, so it says itself whose it was.
    """

    pk = models.CompositePrimaryKey("bucket", "queue_id")
    bucket = models.DateTimeField()
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    tenant_id = models.UUIDField()
    retention_messages = models.BigIntegerField(db_default=0)
    completed_messages = models.BigIntegerField(db_default=0)
    eviction_messages = models.BigIntegerField(db_default=0)
    events = models.BigIntegerField(db_default=0)
    segments = models.BigIntegerField(db_default=0)
    bytes = models.BigIntegerField(db_default=0)
    partitions_deleted = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "queen_retention_history"


class Reclaim(models.Model):
    """A partition whose queue was deleted: its rows are removed behind it in bounded steps."""

    partition_id = models.BigIntegerField(primary_key=True)
    deleted_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_reclaim"
