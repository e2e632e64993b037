"""The test settings with wakes through PostgreSQL's LISTEN and NOTIFY."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

DJANGO_STREAMS = {"CHANNEL_LAYER": None, "WAKE_DATABASE": "postgresql"}
