"""Settings of the test suite: SQLite by default, PostgreSQL and MariaDB beside it.

Each run has its own databases, named after ``DS_TEST_RUN`` (the process id of
the run, or of its worker, inherited by child processes). ``NAME`` and
``TEST["NAME"]`` are the same, so a child process that loads these settings works
on the run's database.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests import services

ROOT = Path(__file__).resolve().parent.parent
# Workers of pytest-xdist inherit the run of who started them, and need their own.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if os.environ.get("DS_TEST_WORKER", "") != _WORKER:
    os.environ |= {"DS_TEST_WORKER": _WORKER, "DS_TEST_RUN": str(os.getpid())}
RUN = os.environ.setdefault("DS_TEST_RUN", str(os.getpid()))
CACHE = ROOT / ".cache" / "tests"
CACHE.mkdir(parents=True, exist_ok=True)

SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "daphne",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "channels",
    "django_streams",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "/static/"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
            ]
        },
    }
]
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}

SQLITE_FILE = str(CACHE / f"{RUN}.sqlite3")
POSTGRESQL_NAME = f"ds_test_{RUN}"
MARIADB_NAME = f"ds_test_{RUN}"

DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": SQLITE_FILE,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "timeout": 20,
        },
        "TEST": {"NAME": SQLITE_FILE},
    }
}
if services.postgresql.missing() is None:
    DATABASES["postgresql"] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": POSTGRESQL_NAME,
        "HOST": services.POSTGRESQL_HOST,
        "PORT": services.POSTGRESQL_PORT,
        "USER": services.POSTGRESQL_USER,
        "PASSWORD": services.POSTGRESQL_PASSWORD,
        # The test databases are made one at a time, see tests/databases.py.
        "TEST": {"NAME": POSTGRESQL_NAME, "DEPENDENCIES": []},
    }
if services.mariadb.missing() is None:
    DATABASES["mariadb"] = {
        "ENGINE": "django.db.backends.mysql",
        "NAME": MARIADB_NAME,
        "HOST": services.MARIADB_HOST,
        "PORT": services.MARIADB_PORT,
        "USER": services.MARIADB_USER,
        "PASSWORD": services.MARIADB_PASSWORD,
        "TEST": {"NAME": MARIADB_NAME, "CHARSET": "utf8mb4", "DEPENDENCIES": []},
    }
