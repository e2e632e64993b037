from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("django_streams", "0008_turn_message_gone"),
    ]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="replaces_after",
            field=models.BigIntegerField(null=True),
        ),
    ]
