"""The database goes away in the middle of a reply and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connections

from tests import services
from tests.settings import POSTGRESQL_NAME

from .chatting import (
    RESPONSE,
    Script,
    Tab,
    message_text,
    responses,
    stored,
    text_of,
)

pytestmark = pytest.mark.needs("postgresql")


def cut_connections() -> int:
    """End every connection to the test's database, as a restart does."""
    with psycopg.connect(
        host=services.POSTGRESQL_HOST,
        port=services.POSTGRESQL_PORT,
        user=services.POSTGRESQL_USER,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        return len(
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = %s AND pid <> pg_backend_pid()",
                [POSTGRESQL_NAME],
            ).fetchall()
        )


@pytest.fixture
def reconnect(chat_alias: str) -> Iterator[None]:
    """This thread's connection is cut too, and emptying the tables needs one."""
    yield
    connections[chat_alias].close()


@pytest.mark.parametrize("chat_alias", ["postgresql"], indirect=True)
@pytest.mark.usefixtures("reconnect", "chat")
async def test_a_reply_goes_through_lost_connections_unharmed() -> None:
    script = Script()
    agent = script.agent()
    expected = ""
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await tab.ask("x")
        await script.begun.wait()
        for at in range(60):
            word = f"w{at} "
            expected += word
            script.say(word)
            if at % 10 == 5:
                cut = await asyncio.to_thread(cut_connections)
                assert cut, "nothing was connected"
            await asyncio.sleep(0.01)
        script.end()
        mine, theirs = await tab.done(), await other.done()
    for frames in (mine, theirs):
        assert text_of(frames) == expected
        seqs = [f["seq"] for f in responses(frames) if not f["done"]]
        assert seqs == list(range(len(seqs)))
        assert frames[-1]["type"] == RESPONSE and "error" not in frames[-1]
    assert message_text((await stored(agent))[1]) == expected
