"""Stream queries with their state, and traces.

State rows are updated in place at every cycle, so they have room on their pages; nothing that
moves is indexed. The numbers of states come from a sequence: one is never used again.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

import brokers.models.log

STORAGE = """
CREATE SEQUENCE queen_stream_state_number AS bigint OWNED BY queen_stream_query.state;
ALTER TABLE queen_stream_state SET (
    fillfactor = 70, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.2);
ALTER TABLE queen_stream_query SET (fillfactor = 70);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0006_retention"),
    ]

    operations = [
        migrations.CreateModel(
            name="StreamReclaim",
            fields=[
                ("state", models.BigIntegerField(primary_key=True, serialize=False)),
            ],
            options={
                "db_table": "queen_stream_reclaim",
            },
        ),
        migrations.CreateModel(
            name="TraceName",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "name",
                        "created_at",
                        "trace_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("name", models.TextField(db_collation="C")),
                ("created_at", models.DateTimeField()),
                ("trace_id", models.UUIDField()),
                ("partition_uid", models.UUIDField()),
                ("transaction_hash", models.BigIntegerField()),
            ],
            options={
                "db_table": "queen_trace_name",
            },
        ),
        migrations.CreateModel(
            name="StreamQuery",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_default=brokers.models.log.RandomUUID(),
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("name", models.TextField(db_collation="C")),
                ("source_queue", models.TextField(db_collation="C")),
                ("sink_queue", models.TextField(db_collation="C", null=True)),
                ("config_hash", models.TextField()),
                ("state", models.BigIntegerField()),
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
                "db_table": "queen_stream_query",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant_id", "name"), name="queen_stream_query_tenant_name"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StreamState",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "state",
                        "partition_id",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("state", models.BigIntegerField()),
                ("partition_id", models.BigIntegerField()),
                ("key", models.TextField(db_collation="C")),
                ("value", models.BinaryField()),
                ("window_end", models.FloatField(null=True)),
                (
                    "updated_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "queen_stream_state",
                "indexes": [
                    models.Index(fields=["partition_id"], name="queen_stream_state_partition")
                ],
            },
        ),
        migrations.CreateModel(
            name="Trace",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("partition_uid", models.UUIDField()),
                ("transaction_id", models.TextField()),
                ("transaction_hash", models.BigIntegerField()),
                ("consumer_group", models.TextField(db_collation="C")),
                ("event_type", models.TextField()),
                ("names", models.TextField()),
                ("data", models.BinaryField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "queen_trace",
                "indexes": [
                    models.Index(
                        fields=["partition_uid", "transaction_hash", "created_at"],
                        name="queen_trace_address",
                    )
                ],
            },
        ),
        migrations.RunSQL(STORAGE, "DROP SEQUENCE queen_stream_state_number"),
    ]
