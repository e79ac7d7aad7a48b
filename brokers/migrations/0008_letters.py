"""Dead letters know their tenant and queue, and can be moved back by a job.

Letters whose partition is gone are nobody's: they were waiting to be reclaimed.
"""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import brokers.models.log

FILL = """
UPDATE queen_dead_letter letter
   SET tenant_id = queue.tenant_id, queue_id = queue.id
  FROM queen_partition lane
  JOIN queen_queue queue ON queue.id = lane.queue_id
 WHERE lane.id = letter.partition_id;
DELETE FROM queen_dead_letter WHERE queue_id IS NULL;
"""
STORAGE = "ALTER TABLE queen_redrive SET (fillfactor = 50)"


def queue(*, null: bool = False):
    return models.ForeignKey(
        db_constraint=False,
        db_index=False,
        null=null,
        on_delete=django.db.models.deletion.DO_NOTHING,
        to="brokers.queue",
    )


def now():
    return models.DateTimeField(db_default=django.db.models.functions.datetime.Now())


def letter_index(name: str, *fields: str):
    return migrations.AddIndex(
        model_name="deadletter", index=models.Index(fields=list(fields), name=name)
    )


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0007_streams_and_traces"),
    ]

    operations = [
        migrations.AddField("deadletter", "tenant_id", models.UUIDField(null=True)),
        migrations.AddField("deadletter", "queue", queue(null=True)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField("deadletter", "tenant_id", models.UUIDField()),
        migrations.AlterField("deadletter", "queue", queue()),
        migrations.RemoveIndex("deadletter", "queen_dead_letter_failed"),
        migrations.RemoveIndex("deadletter", "queen_dead_letter_newest"),
        letter_index("queen_dead_letter_tenant", "tenant_id", "failed_at", "id"),
        letter_index("queen_letter_tenant_group", "tenant_id", "consumer_group", "failed_at", "id"),
        letter_index("queen_dead_letter_queue", "queue", "failed_at", "id"),
        letter_index("queen_letter_queue_group", "queue", "consumer_group", "failed_at", "id"),
        migrations.CreateModel(
            name="Redrive",
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
                ("queue_name", models.TextField(db_collation="C")),
                ("consumer_group", models.TextField(db_collation="C", null=True)),
                ("error_text", models.TextField(null=True)),
                ("failed_from", models.DateTimeField(null=True)),
                ("failed_to", models.DateTimeField()),
                ("target_queue", models.TextField(db_collation="C", null=True)),
                ("target_partition", models.TextField(db_collation="C", null=True)),
                ("rate", models.IntegerField()),
                ("state", models.TextField(db_default="running")),
                ("total", models.BigIntegerField(null=True)),
                ("looked_at", models.BigIntegerField(db_default=0)),
                ("moved", models.BigIntegerField(db_default=0)),
                ("skipped", models.BigIntegerField(db_default=0)),
                ("problem", models.TextField(null=True)),
                ("reached_at", models.DateTimeField(null=True)),
                ("reached_id", models.UUIDField(null=True)),
                ("next_at", now()),
                ("created_at", now()),
                ("updated_at", now()),
                ("finished_at", models.DateTimeField(null=True)),
                ("queue", queue()),
            ],
            options={
                "db_table": "queen_redrive",
                "indexes": [
                    models.Index(
                        fields=["tenant_id", "created_at", "id"], name="queen_redrive_tenant"
                    ),
                    models.Index(
                        condition=models.Q(("state", "running")),
                        fields=["next_at"],
                        name="queen_redrive_running",
                    ),
                ],
            },
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
