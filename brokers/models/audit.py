"""What people did in the console.

Imports nothing of ours. Used by models/__init__.py.
"""

from django.db import models
from django.db.models.functions import Now


class AuditEntry(models.Model):
    """One action: who, what, when, on what, how many.

    It is written before the action begins (`begun`) and completed when its outcome is known
    (`done`, `failed`, or `unknown` when nobody could tell); one that stays `begun` is of a
    broker that went away in between. The user is named and not referred to: an entry outlives
    who it is about. `hits` is how many rows, messages or whatever `detail` says.
    """

    OUTCOMES = tuple((one, one) for one in ("begun", "done", "failed", "unknown"))

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    user_id = models.BigIntegerField(null=True)
    user_name = models.TextField()
    peer = models.TextField()
    action = models.TextField()
    tenant_id = models.UUIDField(null=True)
    target = models.TextField()
    outcome = models.TextField(db_default="begun", choices=OUTCOMES)
    hits = models.BigIntegerField(null=True)
    detail = models.TextField(db_default="")

    class Meta:
        db_table = "queen_audit"
        verbose_name_plural = "audit entries"
        indexes = [models.Index(fields=["user_name", "id"], name="queen_audit_user")]

    def __str__(self) -> str:
        return f"{self.action} {self.target}"
