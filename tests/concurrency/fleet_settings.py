"""Settings of a fleet: database, layer, runner and lease by environment."""

from __future__ import annotations

import os

from tests import services
from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, RUN

ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.concurrency.fleet_site"
ASGI_APPLICATION = "tests.concurrency.fleet_asgi.application"
DJANGO_STREAMS = {
    "RUNNER": os.environ.get("DS_FLEET_RUNNER", "worker"),
    "TURN_LEASE": float(os.environ.get("DS_FLEET_LEASE", "1")),
    "RETRY_SECONDS": float(os.environ.get("DS_FLEET_RETRY", "20")),
    "SWEEP_INTERVAL": float(os.environ.get("DS_FLEET_SWEEP", "0.2")),
}

if (wanted := os.environ.get("DS_FLEET_DATABASE", "default")) != "default":
    DATABASES["default"] = DATABASES[wanted]

if os.environ.get("DS_FLEET_LAYER") == "redis":
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {
                "hosts": [
                    {
                        "address": services.REDIS_URL,
                        "client_name": os.environ.get("DS_FLEET_NAME", "fleet"),
                    }
                ],
                "prefix": f"ds_test_{RUN}",
            },
        }
    }

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django_streams": {"handlers": ["console"], "level": "INFO"}},
}
