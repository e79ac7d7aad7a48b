"""API keys, quotas of metered tenants, and what these use.

Every change of the keys moves one version number, in its own transaction and under that row's
lock, so that versions commit in their order: a broker that has seen one has seen all changes
before it. Timers go in many ways (fired, cancelled, dead, swept up behind a queue), so it is
the table that tells of them.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

STORAGE = """
ALTER TABLE queen_api_key SET (fillfactor = 80, vacuum_truncate = off);
ALTER TABLE queen_usage SET (
    fillfactor = 50, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE queen_usage_delta SET (
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION queen_api_key_moved() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO queen_system AS system (key, value) VALUES ('apiKeys', '1')
    ON CONFLICT (key) DO UPDATE
       SET value = to_jsonb((system.value #>> '{}')::bigint + 1), updated_at = now();
    RETURN NULL;
END;
$$;
CREATE TRIGGER queen_api_key_moved
 AFTER INSERT OR DELETE OR TRUNCATE
    OR UPDATE OF digest, name, role, tenant_id, queue_prefix, expires_at, revoked_at
    ON queen_api_key
   FOR EACH STATEMENT EXECUTE FUNCTION queen_api_key_moved();

CREATE FUNCTION queen_timer_gone() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO queen_usage_delta (tenant_id, kind, rows, bytes)
    SELECT usage.tenant_id, usage.kind, -count(*), 0
      FROM gone
      JOIN queen_usage usage ON usage.tenant_id = gone.tenant_id AND usage.kind = 'timers'
     GROUP BY usage.tenant_id, usage.kind;
    RETURN NULL;
END;
$$;
CREATE TRIGGER queen_timer_gone
 AFTER DELETE ON queen_timer REFERENCING OLD TABLE AS gone
   FOR EACH STATEMENT EXECUTE FUNCTION queen_timer_gone();
"""
REVERSE = """
DROP TRIGGER queen_timer_gone ON queen_timer;
DROP FUNCTION queen_timer_gone;
DROP TRIGGER queen_api_key_moved ON queen_api_key;
DROP FUNCTION queen_api_key_moved;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0010_queue_operations"),
    ]

    operations = [
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("key_id", models.TextField(unique=True)),
                ("digest", models.BinaryField(unique=True)),
                ("name", models.TextField()),
                (
                    "role",
                    models.TextField(
                        choices=[
                            ("admin", "admin"),
                            ("read-write", "read-write"),
                            ("read-only", "read-only"),
                            ("write-only", "write-only"),
                        ]
                    ),
                ),
                ("tenant_id", models.UUIDField(null=True)),
                ("queue_prefix", models.TextField(blank=True, db_collation="C", db_default="")),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("expires_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "queen_api_key",
            },
        ),
        migrations.CreateModel(
            name="Quota",
            fields=[
                ("tenant_id", models.UUIDField(primary_key=True, serialize=False)),
                ("enabled", models.BooleanField(db_default=True)),
                ("max_rows", models.BigIntegerField(null=True)),
                ("max_bytes", models.BigIntegerField(null=True)),
                ("max_timers", models.BigIntegerField(null=True)),
                ("max_horizon_s", models.BigIntegerField(null=True)),
                ("streams_enabled", models.BooleanField(db_default=False)),
                ("max_queries", models.BigIntegerField(null=True)),
                ("max_queues", models.BigIntegerField(null=True)),
                ("max_partitions", models.BigIntegerField(null=True)),
                ("max_retained_bytes", models.BigIntegerField(null=True)),
                ("push_rate", models.BigIntegerField(null=True)),
                (
                    "updated_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "queen_quota",
            },
        ),
        migrations.CreateModel(
            name="Usage",
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
                (
                    "counted_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "queen_usage",
            },
        ),
        migrations.CreateModel(
            name="UsageDelta",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_id", models.UUIDField()),
                ("kind", models.TextField()),
                ("rows", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
            ],
            options={
                "db_table": "queen_usage_delta",
                "indexes": [
                    models.Index(fields=["tenant_id", "kind"], name="queen_usage_delta_of")
                ],
            },
        ),
        migrations.RunSQL(STORAGE, REVERSE),
    ]
