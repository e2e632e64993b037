from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("django_streams", "0006_turn_handovers"),
    ]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="seq_base",
            field=models.BigIntegerField(default=0),
        ),
    ]
