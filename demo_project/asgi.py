"""HTTP by Django, WebSockets by the agent; pages of other origins are refused."""

from __future__ import annotations

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo_project.settings")
# Loads the apps: agents import models, so they come after it.
http = get_asgi_application()

from django_streams.chat import agent_routes  # noqa: E402

from .agents import DemoAgent  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": AllowedHostsOriginValidator(
            AuthMiddlewareStack(URLRouter(agent_routes(DemoAgent)))
        ),
    }
)
