"""The test settings over the channels-redis layer on Redis publish/subscribe."""

from __future__ import annotations

from tests import services
from tests.settings import *  # noqa: F403
from tests.settings import RUN

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [services.REDIS_URL], "prefix": f"ds_test_{RUN}"},
    }
}
