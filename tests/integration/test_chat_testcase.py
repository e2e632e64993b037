"""A chat inside TestCase, whose rows no other thread sees."""

from __future__ import annotations

import pytest
from django.test import TestCase, override_settings

from .chatting import RESPONSE, Script, Tab, message_text, quiet, stored, text_of

SINGLE = {"SINGLE_CONNECTION": True, "POLL_MAX": 0.1}


@pytest.fixture(autouse=True, scope="module")
def made(django_db_setup: None) -> None:
    """TestCase takes it for granted that its databases exist."""


@override_settings(DJANGO_STREAMS=SINGLE)
class InTestCase(TestCase):
    async def test_a_reply_is_written_stored_and_resumed(self) -> None:
        script = Script()
        agent = script.agent()
        async with Tab(agent) as tab:
            await tab.ask("x")
            script.say("a")
            await tab.until(RESPONSE, seq=3)
            async with Tab(agent) as other:
                await other.until("cf_agent_stream_resuming")
                await other.ack()
                await other.until(RESPONSE, replayComplete=True)
                script.say("b")
                script.end()
                assert text_of(await other.done()) == "b"
            await tab.done()
        assert text_of(tab.kept) == message_text((await stored(agent))[1]) == "ab"
        await quiet()

    async def test_a_reply_is_stopped(self) -> None:
        script = Script()
        agent = script.agent()
        async with Tab(agent) as tab:
            await tab.ask("x")
            script.say("a")
            await tab.until(RESPONSE, seq=3)
            await tab.cancel()
            assert (await tab.done())[-1]["outcome"] == "aborted"
        assert message_text((await stored(agent))[1]) == "a"
        await quiet()
