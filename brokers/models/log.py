"""The log: queues, their partitions, the segments that hold messages, the transaction index.

Relations carry no database constraint: a deferred foreign key would lock partition
rows at commit and deadlock with deletes. The procedures keep them true.

Imports nothing of ours. Used by models/__init__.py.
"""

import uuid

from django.db import models
from django.db.models.functions import Coalesce, Now

DEFAULT_TENANT = uuid.UUID("00000000-0000-0000-0000-000000000001")


class RandomUUID(models.Func):
    function = "gen_random_uuid"
    template = "%(function)s()"
    output_field = models.UUIDField()


def name_field(**options: object) -> models.TextField:
    """A name compared by code points; the 255-byte limit is the door's."""
    return models.TextField(db_collation="C", **options)  # type: ignore[arg-type]


class Queue(models.Model):
    """A queue of a tenant and every option it has; `config_version` moves with each change."""

    id = models.BigAutoField(primary_key=True)
    uid = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant_id = models.UUIDField(default=DEFAULT_TENANT)
    name = name_field()
    namespace = name_field(db_default="")
    task = name_field(db_default="")
    created_at = models.DateTimeField(db_default=Now())
    config_version = models.BigIntegerField(db_default=1)
    lease_time = models.BigIntegerField(db_default=300)
    retry_limit = models.BigIntegerField(db_default=3)
    dead_letter_queue = models.BooleanField(db_default=True)
    dlq_after_max_retries = models.BooleanField(db_default=True)
    max_deliveries = models.BigIntegerField(db_default=0)
    delayed_processing = models.BigIntegerField(db_default=0)
    window_buffer = models.BigIntegerField(db_default=0)
    min_pop_wait_time = models.BigIntegerField(db_default=0)
    retention_enabled = models.BooleanField(db_default=False)
    retention_seconds = models.BigIntegerField(db_default=0)
    completed_retention_seconds = models.BigIntegerField(db_default=0)
    max_wait_time_seconds = models.BigIntegerField(db_default=0)
    encryption_enabled = models.BooleanField(db_default=False)
    dedup_window_seconds = models.BigIntegerField(db_default=3600)
    retention_sink_hold = models.TextField(db_default="")
    retention_sink_hold_max_seconds = models.BigIntegerField(db_default=604800)
    priority = models.BigIntegerField(db_default=0)
    ttl = models.BigIntegerField(db_default=3600)
    max_size = models.BigIntegerField(db_default=0)
    retry_delay = models.BigIntegerField(db_default=1000)
    # Whether ttl, max_size and retry_delay are enforced, and not only kept and told.
    enforce = models.BooleanField(db_default=False)
    require_lease = models.BooleanField(db_default=False)
    paused = models.BooleanField(db_default=False)
    # The class of time slots that its transaction rows live in, and whether rows may
    # also lie in another class because the class once changed (see queen_txn).
    txn_class = models.SmallIntegerField(db_default=0)
    txn_class_mixed = models.BooleanField(db_default=False)

    class Meta:
        db_table = "queen_queue"
        permissions = [
            ("pause_queue", "Can pause and resume a queue"),
            ("purge_queue", "Can purge a queue"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "name"], name="queen_queue_tenant_name")
        ]
        # The console lists all tenants' queues by name.
        indexes = [models.Index(fields=["name", "tenant_id"], name="queen_queue_name_tenant")]

    def __str__(self) -> str:
        return self.name


class Partition(models.Model):
    """An ordered lane; its row lock is the serialiser of all writes to it.

    `oldest_live_at` is when its oldest retained message was stored, null when there is none.
    `retention_look_at` is set while that message is old enough for completedRetentionSeconds
    and some group has yet to consume it: retention looks again then, and not at every turn.
    """

    id = models.BigAutoField(primary_key=True)
    uid = models.UUIDField(unique=True, db_default=RandomUUID())
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    name = name_field()
    created_at = models.DateTimeField(db_default=Now())
    last_offset = models.BigIntegerField(db_default=-1)
    log_start = models.BigIntegerField(db_default=0)
    last_created_at = models.DateTimeField(null=True)
    last_id = models.UUIDField(null=True)
    last_write_at = models.DateTimeField(null=True)
    oldest_live_at = models.DateTimeField(null=True)
    retention_look_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "queen_partition"
        constraints = [
            models.UniqueConstraint(fields=["queue", "name"], name="queen_partition_queue_name")
        ]
        # A push into a partition that is not empty changes nothing that the last three hold.
        indexes = [
            models.Index(fields=["queue", "last_write_at"], name="queen_partition_written"),
            models.Index(
                fields=["queue", "oldest_live_at"],
                name="queen_partition_oldest",
                condition=models.Q(retention_look_at__isnull=True, oldest_live_at__isnull=False),
            ),
            models.Index(
                fields=["queue", "retention_look_at"],
                name="queen_partition_look",
                condition=models.Q(retention_look_at__isnull=False),
            ),
            models.Index(
                Coalesce("last_write_at", "created_at"),
                "id",
                name="queen_partition_empty",
                condition=models.Q(oldest_live_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Segment(models.Model):
    """The messages of one flush into one partition: frames joined, with an index to slice them.

    `ends` holds four big-endian bytes a message: where its frame ends in `frames`.
    `flags` is null or one byte a message (bit 0: the payload is encrypted). See
    brokers/frames.py.
    """

    pk = models.CompositePrimaryKey("partition_id", "base_offset")
    partition = models.ForeignKey(
        Partition, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    base_offset = models.BigIntegerField()
    end_offset = models.BigIntegerField()
    created_at = models.DateTimeField()
    format = models.SmallIntegerField()
    frames = models.BinaryField()
    ends = models.BinaryField()
    flags = models.BinaryField(null=True)

    class Meta:
        db_table = "queen_segment"


class Transaction(models.Model):
    """Where a transactionId lies: the index behind dedup and lease-less acks.

    A table partitioned by time slot whose expired slots are truncated; created by hand
    in the migration.
    """

    pk = models.CompositePrimaryKey("partition_id", "hash", "message_offset")
    partition = models.ForeignKey(
        Partition, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    hash = models.BigIntegerField()
    message_offset = models.BigIntegerField()
    created_at = models.DateTimeField()
    slot = models.SmallIntegerField()

    class Meta:
        db_table = "queen_txn"
        managed = False
