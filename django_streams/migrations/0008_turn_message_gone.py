from django.db import migrations, models
from django.db.models import Exists, OuterRef


def note_missing(apps, schema_editor):
    """What was deleted before nobody noted it was deleted on purpose."""
    alias = schema_editor.connection.alias
    turns = apps.get_model("django_streams", "Turn").objects.using(alias)
    messages = apps.get_model("django_streams", "Message").objects.using(alias)
    kept = messages.filter(
        conversation_id=OuterRef("conversation_id"),
        message_id=OuterRef("message_id"),
    )
    turns.filter(~Exists(kept)).update(message_gone=True)


class Migration(migrations.Migration):

    dependencies = [
        ("django_streams", "0007_turn_seq_base"),
    ]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="message_gone",
            field=models.BooleanField(default=False),
        ),
        migrations.RunPython(
            note_missing, migrations.RunPython.noop, elidable=True
        ),
    ]
