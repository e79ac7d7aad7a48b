"""The marks of the spools: how far each spool file was replayed.

A mark is updated in place with every replayed batch and deleted with its file, so the
table holds a handful of rows that are written all the time: room on the page, no index on
what moves, and vacuumed by a threshold of its own.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

STORAGE = """
ALTER TABLE queen_spool SET (
    fillfactor = 50, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
"""


class Migration(migrations.Migration):
    dependencies = [("brokers", "0004_timers")]

    operations = [
        migrations.CreateModel(
            name="SpoolFile",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "spool_id",
                        "file",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("spool_id", models.UUIDField()),
                ("file", models.TextField(db_collation="C")),
                ("done", models.BigIntegerField()),
                ("server_id", models.TextField()),
                ("oldest_accepted_at", models.DateTimeField(null=True)),
                (
                    "updated_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={"db_table": "queen_spool"},
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
