"""Who may enter a conversation, through the socket and through the views."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied

from django_streams.access import AccessPolicy, Subject
from django_streams.models import Conversation
from django_streams.turns import door

from .chatting import (
    MESSAGES,
    Script,
    Session,
    Tab,
    make_agent,
    message_text,
    stored,
    text_of,
    visitor,
)

pytestmark = pytest.mark.usefixtures("chat")


async def hello(self: Any, turn: Any) -> str:
    return f"hello {turn.user}"


@pytest.fixture
def ann(chat_alias: str) -> User:
    return User.objects.create_user("ann")


@pytest.fixture
def bob(chat_alias: str) -> User:
    return User.objects.create_user("bob")


def rows() -> int:
    return Conversation.objects.using(door.alias()).count()


async def test_a_visitor_without_a_login_is_turned_away_for_good() -> None:
    agent = make_agent(hello, allow_anonymous=False)
    for user in (None, AnonymousUser()):
        async with Tab(agent, user=user) as tab:
            assert await tab.next() == {"type": "close", "code": 4401}
    assert await door.run(rows) == 0


async def test_a_visitor_needs_a_session_even_where_everybody_may_enter() -> None:
    async with Tab(make_agent(hello), session=Session()) as tab:
        assert await tab.next() == {"type": "close", "code": 4401}


async def test_frames_of_a_refused_client_do_nothing() -> None:
    agent = make_agent(hello, allow_anonymous=False)
    async with Tab(agent) as tab:
        await tab.ask("x")
        assert (await tab.next())["type"] == "close"
    assert await door.run(rows) == 0


async def test_the_same_name_is_another_conversation_for_another_user(
    ann: User, bob: User
) -> None:
    agent = make_agent(hello, allow_anonymous=False)
    async with Tab(agent, user=ann) as hers:
        await hers.ask("x")
        assert text_of(await hers.done()) == "hello ann"
    async with Tab(agent, user=bob) as his:
        assert (await his.ready())[1]["messages"] == []
    assert len(await stored(agent, owner=f"u:{ann.pk}")) == 2
    assert await stored(agent, owner=f"u:{bob.pk}") == []


async def test_a_stranger_cannot_touch_a_reply_by_its_ids(ann: User, bob: User) -> None:
    script = Script()
    agent = script.agent(allow_anonymous=False)
    async with Tab(agent, user=ann) as hers, Tab(agent, user=bob) as his:
        await his.ready()
        await hers.ask("x")
        script.say("a")
        await hers.until("cf_agent_use_chat_response", seq=3)
        assert (await his.probe())["type"] == "cf_agent_stream_resume_none"
        await his.ack("q1")
        # The same answer as for an id that never was.
        assert (await his.done())[-1]["replay"] is True
        await his.cancel("q1")
        await his.send({"type": "cf_agent_chat_clear"})
        assert await his.silent()
        script.say("b")
        script.end()
        assert text_of(await hers.done()) == "b"
    assert message_text((await stored(agent, owner=f"u:{ann.pk}"))[1]) == "ab"


async def test_looking_makes_no_row() -> None:
    async with Tab(make_agent(hello)) as tab:
        await tab.probe()
        await tab.ack("q1")
        await tab.cancel("q1")
        await tab.send({"type": "cf_agent_chat_clear"})
        await tab.probe("p2")
    assert await door.run(rows) == 0


async def test_authorize_decides_who_enters(ann: User, bob: User) -> None:
    async def authorize(self: Any, user: Any, conversation: Any) -> bool:
        return bool(user.username == "ann")

    agent = make_agent(hello, authorize=authorize)
    async with Tab(agent, user=ann) as hers:
        await hers.ready()
    async with Tab(agent, user=bob) as his:
        assert await his.next() == {"type": "close", "code": 4403}


def denies(self: Any, user: Any, conversation: Any) -> bool:
    raise PermissionDenied


async def test_a_hook_may_also_raise(ann: User) -> None:
    async with Tab(make_agent(hello, authorize=denies), user=ann) as tab:
        assert await tab.next() == {"type": "close", "code": 4403}


async def test_a_room_without_an_owner_is_shared_by_all_who_are_admitted(
    ann: User, bob: User
) -> None:
    agent = make_agent(
        hello, allow_anonymous=False, conversation_owner=lambda self, user, name: ""
    )
    async with Tab(agent, user=ann) as hers, Tab(agent, user=bob) as his:
        await his.ready()
        await hers.ask("x")
        await hers.done()
        assert text_of(await his.done()) == "hello ann"
    async with Tab(agent) as nobody:
        assert (await nobody.next())["code"] == 4401


async def test_an_owner_of_ones_own_making_is_denied_until_it_is_authorised(
    ann: User,
) -> None:
    def team(self: Any, user: Any, name: str) -> str:
        return "t:7"

    agent = make_agent(hello, conversation_owner=team)
    async with Tab(agent, user=ann) as tab:
        assert (await tab.next())["code"] == 4403
    agent = make_agent(
        hello, conversation_owner=team, authorize=lambda self, user, ref: True
    )
    async with Tab(agent, user=ann) as tab:
        await tab.ready()


class ReadOnly(AccessPolicy):
    def can_read(self, subject: Subject, owner_key: str) -> bool:
        return True


async def test_a_policy_may_let_read_and_not_write(
    ann: User, settings: Any, chat_alias: str
) -> None:
    settings.DJANGO_STREAMS = {
        "DATABASE": chat_alias,
        "ACCESS_POLICY": f"{__name__}.ReadOnly",
    }
    async with Tab(make_agent(hello), user=ann) as tab:
        await tab.ready()
        await tab.ask("x")
        (frame,) = await tab.done()
        assert (frame["error"], frame["body"]) == (True, "Not allowed.")
        await tab.cancel()
        await tab.send({"type": "cf_agent_chat_clear"})
        await tab.send({"type": MESSAGES, "messages": [{"id": "x"}]})
        assert await tab.silent()
    assert await door.run(rows) == 0


async def test_who_is_no_longer_admitted_loses_the_connection(
    ann: User, settings: Any, chat_alias: str
) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": chat_alias, "ACCESS_RECHECK": 0.1}
    agent = make_agent(hello, allow_anonymous=False)
    async with Tab(agent, user=ann, session=Session()) as tab:
        await tab.ready()
        await door.run(User.objects.filter(pk=ann.pk).update, is_active=False)
        assert await tab.next() == {"type": "close", "code": 4401}


@pytest.mark.parametrize("name", ["a%00b", "x" * 257, "a%0Ab"])
async def test_a_name_that_no_conversation_can_have_is_forbidden(name: str) -> None:
    from urllib.parse import unquote

    agent = make_agent(hello)
    path = f"/agents/{agent.agent_name}/{unquote(name)}"
    async with Tab(agent, path=path) as tab:
        assert await tab.next() == {"type": "close", "code": 4403}


@pytest.mark.parametrize("rest", ["", "/", "/sub/x"])
async def test_an_address_may_go_on_behind_the_name(rest: str) -> None:
    agent = make_agent(hello)
    path = f"/agents/{agent.agent_name}/my room é{rest}"
    async with Tab(agent, path=path) as tab:
        frames = await tab.ready()
    assert frames[0] == {
        "type": "cf_agent_identity",
        "name": "my room é",
        "agent": agent.agent_name,
    }


async def test_a_visitor_is_known_by_the_session_only() -> None:
    agent = make_agent(hello)
    async with Tab(agent, session=visitor("one")) as tab:
        await tab.ask("x")
        await tab.done()
    async with Tab(agent, session=visitor("two")) as tab:
        assert (await tab.ready())[1]["messages"] == []
