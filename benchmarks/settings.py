"""Django settings of everything the benchmark starts: plain defaults.

The environment says which databases and which Redis; see ``databases.py``.
"""

from __future__ import annotations

import os
from typing import Any

from tests import services

SECRET_KEY = "only for benchmarks"  # noqa: S105
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_streams",
]
ROOT_URLCONF = "benchmarks.site"

DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("BENCH_SQLITE", ":memory:"),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "timeout": 20,
        },
    },
    "postgresql": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("BENCH_POSTGRESQL", ""),
        "HOST": services.POSTGRESQL_HOST,
        "PORT": services.POSTGRESQL_PORT,
        "USER": services.POSTGRESQL_USER,
        "PASSWORD": services.POSTGRESQL_PASSWORD,
    },
}

CHANNEL_LAYERS: dict[str, dict[str, Any]] = {}
if url := os.environ.get("BENCH_REDIS"):
    CHANNEL_LAYERS["default"] = {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [url]},
    }

DJANGO_STREAMS = {"DATABASE": "postgresql"}
"""Where conversations and their replies are."""
