"""Pause, enforced options, and when a nacked message may be delivered again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0009_history"),
    ]

    operations = [
        migrations.AddField(
            model_name="cursor",
            name="retry_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="queue",
            name="enforce",
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name="queue",
            name="paused",
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name="queue",
            name="require_lease",
            field=models.BooleanField(db_default=False),
        ),
    ]
