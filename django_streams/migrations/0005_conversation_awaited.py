from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_streams', '0004_turn_offered_until'),
    ]

    operations = [
        migrations.AddField(
            model_name='conversation',
            name='awaited',
            field=models.TextField(null=True),
        ),
    ]
