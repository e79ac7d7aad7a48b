"""What the brokers counted, by time: the history that analytics read.

A bucket is kept once for each of four widths, so that a long window costs no more rows than a
short one. Retention forgets it after METRICS_RETENTION_DAYS.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models

from brokers.models.log import Queue


class QueueCounter(models.Model):
    """What one broker counted for one queue in one bucket of `span` minutes: 1, 15, 60 or 360.

    `pop_lag_*` are how old messages were when they were delivered; `parked` is the sum of
    `parked_samples` looks at how many pops waited. The statistics task counts
    `partitions_created`, under an empty server id.
    """

    pk = models.CompositePrimaryKey("span", "bucket", "queue_id", "server_id")
    span = models.SmallIntegerField()
    bucket = models.DateTimeField()
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False
    )
    server_id = models.TextField()
    push_requests = models.BigIntegerField(db_default=0)
    push_messages = models.BigIntegerField(db_default=0)
    pop_requests = models.BigIntegerField(db_default=0)
    pop_messages = models.BigIntegerField(db_default=0)
    pop_empty = models.BigIntegerField(db_default=0)
    ack_requests = models.BigIntegerField(db_default=0)
    ack_success = models.BigIntegerField(db_default=0)
    ack_failed = models.BigIntegerField(db_default=0)
    transactions = models.BigIntegerField(db_default=0)
    conflated = models.BigIntegerField(db_default=0)
    dead_letters = models.BigIntegerField(db_default=0)
    pop_lag_ms = models.BigIntegerField(db_default=0)
    pop_lag_count = models.BigIntegerField(db_default=0)
    parked = models.BigIntegerField(db_default=0)
    parked_samples = models.BigIntegerField(db_default=0)
    pop_lag_max_ms = models.BigIntegerField(db_default=0)
    partitions_created = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "queen_queue_counter"


class BrokerHistory(models.Model):
    """What one broker counted and measured of itself in one minute.

    `cpu_*` are hundredths of a percent of one processor. `spool_*` are what lay on its disk when
    it last wrote: messages that waited, their bytes, messages set aside; null where not told.
    """

    pk = models.CompositePrimaryKey("bucket", "server_id")
    bucket = models.DateTimeField()
    server_id = models.TextField()
    push_requests = models.BigIntegerField(db_default=0)
    push_messages = models.BigIntegerField(db_default=0)
    pop_requests = models.BigIntegerField(db_default=0)
    pop_messages = models.BigIntegerField(db_default=0)
    ack_requests = models.BigIntegerField(db_default=0)
    ack_messages = models.BigIntegerField(db_default=0)
    ack_success = models.BigIntegerField(db_default=0)
    ack_failed = models.BigIntegerField(db_default=0)
    transactions = models.BigIntegerField(db_default=0)
    dead_letters = models.BigIntegerField(db_default=0)
    db_errors = models.BigIntegerField(db_default=0)
    pop_lag_ms = models.BigIntegerField(db_default=0)
    pop_lag_count = models.BigIntegerField(db_default=0)
    pop_lag_max_ms = models.BigIntegerField(db_default=0)
    loop_lag_max_us = models.BigIntegerField(db_default=0)
    loop_lag_us = models.BigIntegerField(db_default=0)
    cpu_user = models.BigIntegerField(db_default=0)
    cpu_system = models.BigIntegerField(db_default=0)
    rss_bytes = models.BigIntegerField(db_default=0)
    pool_size = models.BigIntegerField(db_default=0)
    pool_idle = models.BigIntegerField(db_default=0)
    waiting = models.BigIntegerField(db_default=0)
    parked = models.BigIntegerField(db_default=0)
    uptime_s = models.BigIntegerField(db_default=0)
    spool_pending = models.BigIntegerField(null=True)
    spool_bytes = models.BigIntegerField(null=True)
    spool_failed = models.BigIntegerField(null=True)

    class Meta:
        db_table = "queen_broker_history"


class CellCounter(models.Model):
    """What all brokers counted since the beginning, by the name of a column of BrokerHistory."""

    name = models.TextField(primary_key=True)
    value = models.BigIntegerField()

    class Meta:
        db_table = "queen_cell_counter"
