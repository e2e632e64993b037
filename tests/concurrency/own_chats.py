"""A PostgreSQL of a test's own with the tables of chats, to stop and start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command

from tests.own_postgresql import OwnPostgreSQL
from tests.process import Child
from tests.settings import POSTGRESQL_NAME


def migrate() -> None:
    call_command("migrate", verbosity=0)


@contextmanager
def own_chats(**env: str) -> Iterator[OwnPostgreSQL]:
    """Children use it with its ``env``, to which *env* is added."""
    with OwnPostgreSQL() as server:
        server.create(POSTGRESQL_NAME)
        server.env |= {
            "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
            "DS_CHAT_DATABASE": "postgresql",
            **env,
        }
        with Child(migrate, env=server.env) as child:
            assert child.wait(40) == 0
        yield server
