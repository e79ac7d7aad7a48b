"""Who may see the payload of an encrypted dead letter in the console."""

from django.db import migrations

OPEN = ("open_deadletter", "Can see the payload of an encrypted dead letter")
ADMINISTRATOR = "Administrator"


def give(apps, schema_editor):
    """Django makes permissions after all migrations, and leaves those that it finds."""
    codename, name = OPEN
    content_type, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(
        app_label="brokers", model="deadletter"
    )
    permission, _ = apps.get_model("auth", "Permission").objects.get_or_create(
        content_type=content_type, codename=codename, defaults={"name": name}
    )
    group, _ = apps.get_model("auth", "Group").objects.get_or_create(name=ADMINISTRATOR)
    group.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0012_console"),
    ]

    operations = [
        migrations.AlterModelOptions(name="deadletter", options={"permissions": [OPEN]}),
        migrations.RunPython(give, migrations.RunPython.noop),
    ]
