"""How a connection ends that the server ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from channels.routing import URLRouter

from django_streams.chat import agent_routes, connection
from django_streams.chat.consumer import Unclosed

from .chatting import (
    TIMEOUT,
    AgentClass,
    Tab,
    eventually_stored,
    make_agent,
    message_text,
    stored,
    user_message,
    visitor,
)

pytestmark = pytest.mark.usefixtures("chat")


def hello(self: Any, turn: Any) -> str:
    return "hello"


def cannot_tell(self: Any, user: Any, conversation: Any) -> bool:
    raise LookupError("the table of members is gone")


async def test_a_failure_on_our_side_is_a_code_after_which_clients_return() -> None:
    async with Tab(make_agent(hello, authorize=cannot_tell)) as tab:
        assert await tab.next() == {"type": "close", "code": 3011}


async def test_a_socket_that_takes_no_close_is_given_up_by_an_error() -> None:
    agent = make_agent(hello, authorize=cannot_tell)
    receives: asyncio.Queue[Any] = asyncio.Queue()
    receives.put_nowait({"type": "websocket.connect"})

    async def send(message: Any) -> None:
        if message["type"] == "websocket.close":
            raise RuntimeError("invalid close code")

    scope = {
        "type": "websocket",
        "path": f"/agents/{agent.agent_name}/room",
        "user": None,
        "session": visitor(),
    }
    app: Any = URLRouter(agent_routes(agent))
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(Unclosed) as raised:
            await app(scope, receives.get, send)
    assert str(raised.value.__cause__) == "invalid close code"


async def test_a_client_that_went_before_it_could_be_refused_is_no_error() -> None:
    agent = make_agent(hello, authorize=cannot_tell)

    class Gone(Tab):
        async def _take(self, message: Any) -> None:
            if message["type"] == "websocket.close":
                await self._in.put({"type": "websocket.disconnect", "code": 1006})
                raise OSError("gone")
            await super()._take(message)

    async with Gone(agent) as tab, asyncio.timeout(TIMEOUT):
        await tab._task


class Deaf(Tab):
    """A tab whose socket takes nothing more once it is told so."""

    deaf = False

    async def _take(self, message: Any) -> None:
        if self.deaf:
            raise OSError("gone")
        await super()._take(message)


class Stuck(Tab):
    """A tab that tells when a send to it has to wait."""

    def __init__(self, agent: AgentClass) -> None:
        super().__init__(agent)
        self.blocked = asyncio.Event()

    async def _take(self, message: Any) -> None:
        if not self.reading.is_set():
            self.blocked.set()
        await super()._take(message)


def asked(messages: list[Any]) -> list[str]:
    return [message_text(m) for m in messages if m["role"] == "user"]


async def test_what_came_before_the_end_of_a_socket_is_handled_in_order() -> None:
    agent = make_agent(hello)
    async with Tab(agent) as tab:
        await tab.ready()
        for at in range(20):
            await tab.ask(f"m{at}", f"q{at}")
    assert asked(await stored(agent)) == [f"m{at}" for at in range(20)]
    answered = await eventually_stored(agent, 40)
    assert sum(message_text(m) == "hello" for m in answered) == 20


async def test_what_came_before_the_client_was_admitted_is_handled() -> None:
    agent = make_agent(hello)
    async with Tab(agent) as tab:
        await tab.ask("first", "q1")
        await tab.ask("second", "q2")
    assert asked(await stored(agent)) == ["first", "second"]


async def test_nothing_is_sent_to_a_client_that_has_gone() -> None:
    agent = make_agent(hello)
    async with Tab(agent) as tab:
        await tab.ready()
        for at in range(5):
            await tab.ask(f"m{at}", f"q{at}")
        await tab.leave()
        sent = tab.sent
        await eventually_stored(agent, 10)
        assert tab.sent == sent


async def test_a_frame_is_handled_to_its_end_though_the_answer_reaches_nobody() -> None:
    agent = make_agent(hello)
    async with Deaf(agent) as tab:
        await tab.ready()
        tab.deaf = True
        await tab.ask("first", "q1")
        await eventually_stored(agent, 2)
        # It takes nothing, but is not known to have ended.
        await tab.ask("second", "q2")
        assert asked(await eventually_stored(agent, 4)) == ["first", "second"]


async def test_frames_of_a_client_that_does_not_read_are_handled_at_its_end() -> None:
    agent = make_agent(hello)
    async with Stuck(agent) as tab:
        await tab.ready()
        tab.reading.clear()
        await tab.ask("first", "q1")
        await tab.blocked.wait()
        await tab.ask("second", "q2")
    assert asked(await stored(agent)) == ["first", "second"]


async def test_an_outage_loses_the_last_frames_and_says_how_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "LAST", 0.2)
    held, begun = asyncio.Event(), asyncio.Event()

    async def hold(self: Any, message: Any) -> Any:
        begun.set()
        await held.wait()
        return message

    agent = make_agent(hello, sanitize_message=hold)
    async with Tab(agent) as tab:
        await tab.ready()
        await tab.submit([user_message("x", "u1")], "q1")
        await begun.wait()
        await tab.submit([user_message("y", "u2")], "q2")
        await tab.leave()
    assert "2 frames of a client of" in caplog.text
    assert await stored(agent) == []


async def test_a_flooder_that_leaves_gets_nothing_more_handled(settings: Any) -> None:
    settings.DJANGO_STREAMS = settings.DJANGO_STREAMS | {"CHAT_FRAME_RATE": 0.5}
    agent = make_agent(hello)
    async with Tab(agent) as tab:
        await tab.ready()
        for at in range(6):
            await tab.ask(f"m{at}", f"q{at}")
    assert await stored(agent) == []
