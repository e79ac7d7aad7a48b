"""What tenants hold of key/value state and timers, as it was last counted."""

from django.db import migrations, models

STORAGE = "ALTER TABLE queen_holding SET (fillfactor = 50, vacuum_truncate = off);"


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0014_spool_figures"),
    ]

    operations = [
        migrations.CreateModel(
            name="Holding",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "kind",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("kind", models.TextField()),
                ("rows", models.BigIntegerField(db_default=0)),
                ("bytes", models.BigIntegerField(db_default=0)),
                ("counted_at", models.DateTimeField(null=True)),
                ("place_first", models.TextField(db_collation="C", db_default="")),
                ("place_second", models.TextField(db_collation="C", db_default="")),
                ("seen_rows", models.BigIntegerField(db_default=0)),
                ("seen_bytes", models.BigIntegerField(db_default=0)),
            ],
            options={
                "db_table": "queen_holding",
            },
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
