"""Key/value entries, and the one sequence that their versions come from.

No cache on the sequence: a session that kept numbers back would hand out older ones later,
and versions must rise along a key.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

STORAGE = """
CREATE SEQUENCE queen_kv_version CACHE 1;
ALTER TABLE queen_kv SET (
    fillfactor = 80, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2);
"""


class Migration(migrations.Migration):
    dependencies = [("brokers", "0002_storage")]

    operations = [
        migrations.CreateModel(
            name="KeyValue",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "ns",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("ns", models.TextField(db_collation="C")),
                ("key", models.TextField(db_collation="C")),
                ("value", models.BinaryField()),
                ("version", models.BigIntegerField()),
                ("expires_at", models.DateTimeField(null=True)),
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
                "db_table": "queen_kv",
                "indexes": [
                    models.Index(
                        condition=models.Q(("expires_at__isnull", False)),
                        fields=["expires_at"],
                        name="queen_kv_expires",
                    )
                ],
            },
        ),
        migrations.RunSQL(STORAGE, "DROP SEQUENCE queen_kv_version"),
    ]
