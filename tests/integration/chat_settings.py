"""Settings of the chat servers: database, layer and lease by environment.

``DS_CHAT_DATABASE`` is the alias of everything, ``DS_CHAT_LAYER=redis`` brings a
layer between processes, ``DS_CHAT_LEASE`` shortens the lease of turns and
``DS_CHAT_PACE`` slows replays, ``DS_CHAT_PRESENCE`` is how long who watches counts
without a sign of life, ``DS_CHAT_RETRY`` how long one call waits for the database.
"""

from __future__ import annotations

import os

from tests import services
from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, RUN

ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.integration.chat_site"
DJANGO_STREAMS = {
    "TURN_LEASE": float(os.environ.get("DS_CHAT_LEASE", "5")),
    "PRESENCE_TTL": float(os.environ.get("DS_CHAT_PRESENCE", "15")),
    "RETRY_SECONDS": float(os.environ.get("DS_CHAT_RETRY", "20")),
    "SSE_PACE": int(os.environ.get("DS_CHAT_PACE", "8388608")),
}

if (wanted := os.environ.get("DS_CHAT_DATABASE", "default")) != "default":
    DATABASES["default"] = DATABASES[wanted]

if os.environ.get("DS_CHAT_LAYER") == "redis":
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [services.REDIS_URL], "prefix": f"ds_test_{RUN}"},
        }
    }
