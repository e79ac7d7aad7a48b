"""What the console needs: the audit, the permissions that are not Django's own, the roles.

Django makes permissions after all migrations, so those of the roles are made here; it finds
them later and leaves them as they are.
"""

import django.db.models.functions.datetime
from django.db import migrations, models

from brokers.admin.roles import ROLES

STORAGE = """
ALTER TABLE queen_audit SET (fillfactor = 80, vacuum_truncate = off);
"""
OWN = [
    ("pause_queue", "Can pause and resume a queue"),
    ("purge_queue", "Can purge a queue"),
]


def make_roles(apps, schema_editor):
    permission_of = _permissions(apps)
    for role, codenames in ROLES.items():
        group, _ = apps.get_model("auth", "Group").objects.get_or_create(name=role)
        group.permissions.add(*(permission_of(codename) for codename in codenames))


def _permissions(apps):
    ContentType = apps.get_model("contenttypes", "ContentType")
    Permission = apps.get_model("auth", "Permission")
    own = dict(OWN)

    def permission_of(codename):
        model = codename.partition("_")[2]
        verb = codename.partition("_")[0]
        content_type, _ = ContentType.objects.get_or_create(app_label="brokers", model=model)
        verbose = apps.get_model("brokers", model)._meta.verbose_name
        name = own.get(codename, f"Can {verb} {verbose}")
        return Permission.objects.get_or_create(
            content_type=content_type, codename=codename, defaults={"name": name}
        )[0]

    return permission_of


def remove_roles(apps, schema_editor):
    apps.get_model("auth", "Group").objects.filter(name__in=ROLES).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0011_access"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.AlterModelOptions(name="queue", options={"permissions": OWN}),
        migrations.AlterModelOptions(name="apikey", options={"verbose_name": "API key"}),
        migrations.AlterModelOptions(name="group", options={"verbose_name": "consumer group"}),
        migrations.AddIndex(
            model_name="queue",
            index=models.Index(fields=["name", "tenant_id"], name="queen_queue_name_tenant"),
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                ("user_id", models.BigIntegerField(null=True)),
                ("user_name", models.TextField()),
                ("peer", models.TextField()),
                ("action", models.TextField()),
                ("tenant_id", models.UUIDField(null=True)),
                ("target", models.TextField()),
                (
                    "outcome",
                    models.TextField(
                        choices=[
                            ("begun", "begun"),
                            ("done", "done"),
                            ("failed", "failed"),
                            ("unknown", "unknown"),
                        ],
                        db_default="begun",
                    ),
                ),
                ("hits", models.BigIntegerField(null=True)),
                ("detail", models.TextField(db_default="")),
            ],
            options={
                "db_table": "queen_audit",
                "verbose_name_plural": "audit entries",
                "indexes": [models.Index(fields=["user_name", "id"], name="queen_audit_user")],
            },
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunPython(make_roles, remove_roles),
    ]
