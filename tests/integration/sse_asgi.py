"""The ASGI application of the event stream tests."""

from __future__ import annotations

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.integration.sse_settings"

from django.core.asgi import get_asgi_application
from django.db.backends.signals import connection_created
from django.utils.module_loading import import_string

application = get_asgi_application()
count_queries = import_string("tests.integration.sse_site.count_queries")
connection_created.connect(count_queries, dispatch_uid="tests.sse_site")
