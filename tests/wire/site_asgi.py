"""The ASGI application of the servers that the official hooks talk to."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.wire.site_settings")

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

http = get_asgi_application()

from django_streams.chat import agent_routes  # noqa: E402

from .site import AGENTS  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": AllowedHostsOriginValidator(
            AuthMiddlewareStack(URLRouter(agent_routes(*AGENTS)))
        ),
    }
)
