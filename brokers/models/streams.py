"""Stream processing: the registered queries, and the state that they keep by partition.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Now

from brokers.models.log import RandomUUID, name_field


class StreamQuery(models.Model):
    """A query of a tenant, by name. `config_hash` says what its state means.

    `state` names its present state rows: a reset takes a new number, so that all older rows
    are out of every reader's reach at once.
    """

    id = models.UUIDField(primary_key=True, db_default=RandomUUID())
    tenant_id = models.UUIDField()
    name = name_field()
    source_queue = name_field()
    sink_queue = name_field(null=True)
    config_hash = models.TextField()
    state = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_stream_query"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "name"], name="queen_stream_query_tenant_name"
            )
        ]

    def __str__(self) -> str:
        return self.name


class StreamState(models.Model):
    """One entry of a query's state in one source partition.

    `value` is the JSON text as it was sent, byte for byte. `window_end` is its member
    `windowEnd` where that is a number: when the window is ripe.
    """

    pk = models.CompositePrimaryKey("state", "partition_id", "key")
    state = models.BigIntegerField()
    partition_id = models.BigIntegerField()
    key = name_field()
    value = models.BinaryField()
    window_end = models.FloatField(null=True)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_stream_state"
        indexes = [models.Index(fields=["partition_id"], name="queen_stream_state_partition")]


class StreamReclaim(models.Model):
    """The number of a state that was reset, and whose rows are still to be removed."""

    state = models.BigIntegerField(primary_key=True)

    class Meta:
        db_table = "queen_stream_reclaim"
