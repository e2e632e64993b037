"""The ASGI application of the event stream tests."""

from __future__ import annotations

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.integration.sse_settings"

from django.core.asgi import get_asgi_application

application = get_asgi_application()
