"""Traces: what programs noted about messages, and the names that they noted it under.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Now

from brokers.models.log import name_field


class Trace(models.Model):
    """One event of a message, which need not exist. It outlives the message and its queue.

    `names` is a JSON array and `data` a JSON value, both as text.
    """

    id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    partition_uid = models.UUIDField()
    transaction_id = models.TextField()
    transaction_hash = models.BigIntegerField()
    consumer_group = name_field()
    event_type = models.TextField()
    names = models.TextField()
    data = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_trace"
        indexes = [
            models.Index(
                fields=["partition_uid", "transaction_hash", "created_at"],
                name="queen_trace_address",
            )
        ]


class TraceName(models.Model):
    """A trace under one of its names, with what the listings count."""

    pk = models.CompositePrimaryKey("tenant_id", "name", "created_at", "trace_id")
    tenant_id = models.UUIDField()
    name = name_field()
    created_at = models.DateTimeField()
    trace_id = models.UUIDField()
    partition_uid = models.UUIDField()
    transaction_hash = models.BigIntegerField()

    class Meta:
        db_table = "queen_trace_name"
