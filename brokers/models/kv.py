"""Key/value state: the entries of a tenant's namespaces.

Imports models/log.py. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Now

from brokers.models.log import name_field


class KeyValue(models.Model):
    """One entry. `value` is the JSON text as it was sent, byte for byte.

    An entry whose `expires_at` has passed is gone for everyone, whether or not its row is
    still there. `version` comes from one sequence under the row's lock, so it is never used
    twice and rises along a key, also across its deletion; 0 marks a row that holds a key's
    place inside the call that is about to decide about it.
    """

    pk = models.CompositePrimaryKey("tenant_id", "ns", "key")
    tenant_id = models.UUIDField()
    ns = name_field()
    key = name_field()
    value = models.BinaryField()
    version = models.BigIntegerField()
    expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "queen_kv"
        indexes = [
            models.Index(
                fields=["expires_at"],
                name="queen_kv_expires",
                condition=models.Q(expires_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.ns}/{self.key}"
