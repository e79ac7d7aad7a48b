"""Retention, and the figures of queues as they were last counted.

Retention turns segments over: dead ones have to be reusable long before a fifth of the table
is dead, or it grows to several times what is retained. The small tables are updated in place.
"""

import django.db.models.deletion
import django.db.models.functions.comparison
from django.db import migrations, models

STORAGE = """
ALTER TABLE queen_segment SET (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_threshold = 50000);
ALTER TABLE queen_queue_statistics SET (fillfactor = 50, vacuum_truncate = off);
ALTER TABLE queen_retention_history SET (fillfactor = 50);
ALTER TABLE queen_lease SET (fillfactor = 50, vacuum_truncate = off);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0005_spool"),
    ]

    operations = [
        migrations.CreateModel(
            name="QueueStatistics",
            fields=[
                (
                    "queue",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        serialize=False,
                        to="brokers.queue",
                    ),
                ),
                ("computed_at", models.DateTimeField()),
                ("next_at", models.DateTimeField()),
                ("partitions", models.BigIntegerField()),
                ("total", models.BigIntegerField()),
                ("pending", models.BigIntegerField()),
                ("processing", models.BigIntegerField()),
                ("completed", models.BigIntegerField()),
                ("dead_letters", models.BigIntegerField()),
                ("segments", models.BigIntegerField(null=True)),
                ("bytes", models.BigIntegerField(null=True)),
                ("bytes_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "queen_queue_statistics",
            },
        ),
        migrations.CreateModel(
            name="RetentionHistory",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "bucket",
                        "queue_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("bucket", models.DateTimeField()),
                (
                    "queue",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="brokers.queue",
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("retention_messages", models.BigIntegerField(db_default=0)),
                ("completed_messages", models.BigIntegerField(db_default=0)),
                ("eviction_messages", models.BigIntegerField(db_default=0)),
                ("events", models.BigIntegerField(db_default=0)),
                ("segments", models.BigIntegerField(db_default=0)),
                ("bytes", models.BigIntegerField(db_default=0)),
                ("partitions_deleted", models.BigIntegerField(db_default=0)),
            ],
            options={
                "db_table": "queen_retention_history",
            },
        ),
        migrations.AddField(
            model_name="partition",
            name="retention_look_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="partition",
            index=models.Index(
                condition=models.Q(
                    ("oldest_live_at__isnull", False), ("retention_look_at__isnull", True)
                ),
                fields=["queue", "oldest_live_at"],
                name="queen_partition_oldest",
            ),
        ),
        migrations.AddIndex(
            model_name="partition",
            index=models.Index(
                condition=models.Q(("retention_look_at__isnull", False)),
                fields=["queue", "retention_look_at"],
                name="queen_partition_look",
            ),
        ),
        migrations.AddIndex(
            model_name="partition",
            index=models.Index(
                django.db.models.functions.comparison.Coalesce("last_write_at", "created_at"),
                models.F("id"),
                condition=models.Q(("oldest_live_at__isnull", True)),
                name="queen_partition_empty",
            ),
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
