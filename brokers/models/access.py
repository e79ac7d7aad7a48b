"""Who may come in and how much a tenant may have: API keys, quotas, and what is used of them.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Now

from brokers.models.log import name_field


class ApiKey(models.Model):
    """A key as it is known here: by the hash of its text, which nobody keeps.

    Whoever changes a row, by a command, in the admin or with psql, moves the version that all
    brokers watch: a trigger does. Without a tenant it is an operator's, who names the tenant
    by header; with a `queue_prefix` it reaches only queues whose names begin with it.
    """

    ROLES = (
        ("admin", "admin"),
        ("read-write", "read-write"),
        ("read-only", "read-only"),
        ("write-only", "write-only"),
    )

    id = models.BigAutoField(primary_key=True)
    key_id = models.TextField(unique=True)
    digest = models.BinaryField(unique=True)
    name = models.TextField()
    role = models.TextField(choices=ROLES)
    tenant_id = models.UUIDField(null=True)
    queue_prefix = name_field(db_default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "queen_api_key"
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.key_id} ({self.name})"


class Quota(models.Model):
    """What a metered tenant may have; null is no bound. The operator writes these rows.

    `enabled` grants key/value state and timers where grants are required. The default tenant
    is unmetered, whatever its row says.
    """

    tenant_id = models.UUIDField(primary_key=True)
    enabled = models.BooleanField(db_default=True)
    max_rows = models.BigIntegerField(null=True)
    max_bytes = models.BigIntegerField(null=True)
    max_timers = models.BigIntegerField(null=True)
    max_horizon_s = models.BigIntegerField(null=True)
    streams_enabled = models.BooleanField(db_default=False)
    max_queries = models.BigIntegerField(null=True)
    max_queues = models.BigIntegerField(null=True)
    max_partitions = models.BigIntegerField(null=True)
    max_retained_bytes = models.BigIntegerField(null=True)
    push_rate = models.BigIntegerField(null=True)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_quota"


class Usage(models.Model):
    """What a metered tenant has of a kind (`kv`, `timers`), exact but for the pending deltas.

    Whoever adds holds the row from then to its commit. Whoever removes never waits here: it
    leaves a UsageDelta, which the next one to add takes in.
    """

    pk = models.CompositePrimaryKey("tenant_id", "kind")
    tenant_id = models.UUIDField()
    kind = models.TextField()
    rows = models.BigIntegerField(db_default=0)
    bytes = models.BigIntegerField(db_default=0)
    counted_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_usage"


class UsageDelta(models.Model):
    """Something was removed: not yet taken off its tenant's usage."""

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    kind = models.TextField()
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()

    class Meta:
        db_table = "queen_usage_delta"
        indexes = [models.Index(fields=["tenant_id", "kind"], name="queen_usage_delta_of")]


class Holding(models.Model):
    """What any tenant has of a kind (`kv`, `timers`), as it was last counted.

    Nobody who adds or removes touches it. `counted_at` is null before the first count. A count
    goes on in steps: `place_*` is the namespace and key, or queue and key, that it has come to,
    `seen_*` what it found up to there.
    """

    pk = models.CompositePrimaryKey("tenant_id", "kind")
    tenant_id = models.UUIDField()
    kind = models.TextField()
    rows = models.BigIntegerField(db_default=0)
    bytes = models.BigIntegerField(db_default=0)
    counted_at = models.DateTimeField(null=True)
    place_first = models.TextField(db_collation="C", db_default="")
    place_second = models.TextField(db_collation="C", db_default="")
    seen_rows = models.BigIntegerField(db_default=0)
    seen_bytes = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "queen_holding"
