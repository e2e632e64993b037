"""URLs of streams: ``path("", include("django_streams.http.urls"))``."""

from __future__ import annotations

from django.urls import path

from .views import never_atomic, stream_events

app_name = "django_streams"

urlpatterns = [
    path(
        "streams/<path:stream_id>/events",
        never_atomic(stream_events),
        name="stream-events",
    ),
]
