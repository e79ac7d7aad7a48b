"""The history that analytics read, the figures of groups, and the start of cursors born late.

queen_queue_counter is made anew: its key begins with the width of the bucket now.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

STORAGE = """
ALTER TABLE queen_queue_counter SET (fillfactor = 80);
ALTER TABLE queen_broker_history SET (fillfactor = 80);
ALTER TABLE queen_cell_counter SET (fillfactor = 50, vacuum_truncate = off);
ALTER TABLE queen_group_statistics SET (fillfactor = 50, vacuum_truncate = off);
ALTER TABLE queen_letter_statistics SET (fillfactor = 50, vacuum_truncate = off);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0008_letters"),
    ]

    operations = [
        migrations.DeleteModel(name="QueueCounter"),
        migrations.CreateModel(
            name="BrokerHistory",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "bucket",
                        "server_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("bucket", models.DateTimeField()),
                ("server_id", models.TextField()),
                ("push_requests", models.BigIntegerField(db_default=0)),
                ("push_messages", models.BigIntegerField(db_default=0)),
                ("pop_requests", models.BigIntegerField(db_default=0)),
                ("pop_messages", models.BigIntegerField(db_default=0)),
                ("ack_requests", models.BigIntegerField(db_default=0)),
                ("ack_messages", models.BigIntegerField(db_default=0)),
                ("ack_success", models.BigIntegerField(db_default=0)),
                ("ack_failed", models.BigIntegerField(db_default=0)),
                ("transactions", models.BigIntegerField(db_default=0)),
                ("dead_letters", models.BigIntegerField(db_default=0)),
                ("db_errors", models.BigIntegerField(db_default=0)),
                ("pop_lag_ms", models.BigIntegerField(db_default=0)),
                ("pop_lag_count", models.BigIntegerField(db_default=0)),
                ("pop_lag_max_ms", models.BigIntegerField(db_default=0)),
                ("loop_lag_max_us", models.BigIntegerField(db_default=0)),
                ("loop_lag_us", models.BigIntegerField(db_default=0)),
                ("cpu_user", models.BigIntegerField(db_default=0)),
                ("cpu_system", models.BigIntegerField(db_default=0)),
                ("rss_bytes", models.BigIntegerField(db_default=0)),
                ("pool_size", models.BigIntegerField(db_default=0)),
                ("pool_idle", models.BigIntegerField(db_default=0)),
                ("waiting", models.BigIntegerField(db_default=0)),
                ("parked", models.BigIntegerField(db_default=0)),
                ("uptime_s", models.BigIntegerField(db_default=0)),
            ],
            options={
                "db_table": "queen_broker_history",
            },
        ),
        migrations.CreateModel(
            name="CellCounter",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("value", models.BigIntegerField()),
            ],
            options={
                "db_table": "queen_cell_counter",
            },
        ),
        migrations.AddField(
            model_name="group",
            name="start_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="queuestatistics",
            name="created_24h",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="queuestatistics",
            name="newest_write_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="queuestatistics",
            name="oldest_write_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="queuestatistics",
            name="written_1h",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="queuestatistics",
            name="written_24h",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name="queuestatistics",
            name="written_7d",
            field=models.BigIntegerField(db_default=0),
        ),
        migrations.CreateModel(
            name="LetterStatistics",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "queue_id",
                        "partition_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("dead_letters", models.BigIntegerField()),
                (
                    "partition",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="brokers.partition",
                    ),
                ),
                (
                    "queue",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="brokers.queue",
                    ),
                ),
            ],
            options={
                "db_table": "queen_letter_statistics",
            },
        ),
        migrations.CreateModel(
            name="GroupStatistics",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "queue_id",
                        "consumer_group",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("consumer_group", models.TextField(db_collation="C")),
                ("computed_at", models.DateTimeField()),
                ("cursors", models.BigIntegerField()),
                ("partitions_lagging", models.BigIntegerField()),
                ("lag", models.BigIntegerField()),
                ("consumed", models.BooleanField()),
                ("oldest_at", models.DateTimeField(null=True)),
                (
                    "oldest",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "queue",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="brokers.queue",
                    ),
                ),
            ],
            options={
                "db_table": "queen_group_statistics",
            },
        ),
        migrations.CreateModel(
            name="QueueCounter",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "span",
                        "bucket",
                        "queue_id",
                        "server_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("span", models.SmallIntegerField()),
                ("bucket", models.DateTimeField()),
                ("server_id", models.TextField()),
                ("push_requests", models.BigIntegerField(db_default=0)),
                ("push_messages", models.BigIntegerField(db_default=0)),
                ("pop_requests", models.BigIntegerField(db_default=0)),
                ("pop_messages", models.BigIntegerField(db_default=0)),
                ("pop_empty", models.BigIntegerField(db_default=0)),
                ("ack_requests", models.BigIntegerField(db_default=0)),
                ("ack_success", models.BigIntegerField(db_default=0)),
                ("ack_failed", models.BigIntegerField(db_default=0)),
                ("transactions", models.BigIntegerField(db_default=0)),
                ("conflated", models.BigIntegerField(db_default=0)),
                ("dead_letters", models.BigIntegerField(db_default=0)),
                ("pop_lag_ms", models.BigIntegerField(db_default=0)),
                ("pop_lag_count", models.BigIntegerField(db_default=0)),
                ("parked", models.BigIntegerField(db_default=0)),
                ("parked_samples", models.BigIntegerField(db_default=0)),
                ("pop_lag_max_ms", models.BigIntegerField(db_default=0)),
                ("partitions_created", models.BigIntegerField(db_default=0)),
                (
                    "queue",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="brokers.queue",
                    ),
                ),
            ],
            options={
                "db_table": "queen_queue_counter",
            },
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
