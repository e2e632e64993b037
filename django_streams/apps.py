from __future__ import annotations

from django.apps import AppConfig


class DjangoStreamsConfig(AppConfig):
    name = "django_streams"
    label = "django_streams"
    verbose_name = "Streams"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401  (registers them)
