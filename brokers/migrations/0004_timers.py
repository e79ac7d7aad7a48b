"""The table of timers, how it is stored, and the generations of deleted queues.

A claim moves `visible_at`, which is indexed, and a fire deletes the row: dead rows gather
at the front of the index, where every probe starts. So it is vacuumed early, by a
threshold that does not grow with the timers that lie far ahead.
"""

import uuid

import django.db.models.functions.comparison
import django.db.models.functions.datetime
from django.db import migrations, models

STORAGE = """
CREATE SEQUENCE queen_timer_generation CACHE 1;
ALTER TABLE queen_timer SET (
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2);
"""


class Migration(migrations.Migration):
    dependencies = [("brokers", "0003_kv")]

    operations = [
        migrations.CreateModel(
            name="Timer",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "queue",
                        "timer_key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "tenant_id",
                    models.UUIDField(default=uuid.UUID("00000000-0000-0000-0000-000000000001")),
                ),
                ("queue", models.TextField(db_collation="C")),
                ("timer_key", models.TextField(db_collation="C")),
                ("partition", models.TextField(db_collation="C")),
                ("deliver_at", models.DateTimeField()),
                ("txn", models.TextField()),
                ("message_id", models.UUIDField()),
                ("payload", models.BinaryField()),
                ("encrypted", models.BooleanField(db_default=False)),
                ("marked_encrypted", models.BooleanField(db_default=False)),
                ("producer_sub", models.TextField(null=True)),
                ("attempts", models.BigIntegerField(db_default=0)),
                ("last_error", models.TextField(null=True)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("claim_token", models.UUIDField(null=True)),
                (
                    "visible_at",
                    models.GeneratedField(
                        db_persist=True,
                        expression=django.db.models.functions.comparison.Greatest(
                            "deliver_at", "claimed_until"
                        ),
                        output_field=models.DateTimeField(),
                    ),
                ),
                ("shard", models.SmallIntegerField()),
                ("generation", models.BigIntegerField(db_default=0)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "updated_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "queen_timer",
                "indexes": [
                    models.Index(fields=["shard", "visible_at"], name="queen_timer_visible")
                ],
            },
        ),
        migrations.CreateModel(
            name="TimerReclaim",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "queue",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("queue", models.TextField(db_collation="C")),
                ("generation", models.BigIntegerField()),
                ("swept_to", models.TextField(db_collation="C", db_default="")),
                ("settled", models.BooleanField(db_default=False)),
                ("skipped", models.BooleanField(db_default=False)),
                ("horizon", models.BigIntegerField(null=True)),
            ],
            options={"db_table": "queen_timer_reclaim"},
        ),
        migrations.RunSQL(STORAGE, "DROP SEQUENCE queen_timer_generation"),
    ]
