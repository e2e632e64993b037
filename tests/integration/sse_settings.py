"""A project with everything installed that touches streaming responses."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, MIDDLEWARE

ROOT_URLCONF = "tests.integration.sse_site"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.middleware.common.CommonMiddleware",
    "tests.integration.sse_site.old_middleware",
    *MIDDLEWARE,
]
DJANGO_STREAMS: dict[str, Any] = json.loads(os.environ.get("SITE_STREAMS", "{}"))
for _database in DATABASES.values():
    _database["ATOMIC_REQUESTS"] = True
