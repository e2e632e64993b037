"""Settings of the servers that the official hooks talk to."""

from __future__ import annotations

from tests.integration.chat_settings import *  # noqa: F403

ROOT_URLCONF = "tests.wire.site"
