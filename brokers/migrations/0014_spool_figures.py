"""What lay in a broker's spool when it wrote down its minute; of older minutes it is not known."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0013_letters_console"),
    ]

    operations = [
        migrations.AddField(
            model_name="brokerhistory",
            name="spool_pending",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="brokerhistory",
            name="spool_bytes",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="brokerhistory",
            name="spool_failed",
            field=models.BigIntegerField(null=True),
        ),
    ]
