"""The chat over HTTP: its messages, and the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from django_streams.models import Conversation
from django_streams.turns import door, queue
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef

from .chat_site import Paced
from .chatting import user_message

URL = "/agents/paced/room/get-messages"


@pytest.fixture(autouse=True)
def site(settings: Any, sqlite_db: str) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.integration.chat_site"
    settings.LOGIN_URL = "/login/"
    yield


def fill(owner: str, *messages: dict[str, Any]) -> None:
    ref = ConversationRef(Paced.agent_name, "room", owner)
    queue.sync_messages(ref, messages, "")


def owner_of(client: Client | AsyncClient) -> str:
    return f"a:{client.session['django_streams_owner']}"


def test_a_new_visitor_gets_an_empty_list_and_an_id() -> None:
    client = Client()
    response = client.get(URL)
    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "no-store"
    assert response.json() == []
    assert owner_of(client).startswith("a:")
    assert not Conversation.objects.exists()


def test_the_messages_come_in_order_and_exactly() -> None:
    client = Client()
    client.get(URL)
    messages = [user_message("\x00 é \ud800 \u2028", "u1"), user_message("b", "u2")]
    fill(owner_of(client), *messages)
    body = client.get(URL).content.decode()
    assert json.loads(body) == messages
    assert "\u2028" not in body
    # Parameters of the socket's address are the project's own.
    assert client.get(URL + "?token=x").json() == messages
    assert client.get("/agents/paced/room/sub/get-messages").json() == messages
    assert Client().get(URL).json() == []


async def test_an_event_loop_serves_them_too() -> None:
    client = AsyncClient()
    response = await client.get(URL)
    assert response.json() == []


def test_head_is_answered_and_nothing_else() -> None:
    client = Client()
    assert client.head(URL).status_code == 200
    for method in (client.post, client.put, client.delete, client.patch):
        response = method(URL)
        assert response.status_code == 405
        assert response["Allow"] == "GET, HEAD"


def test_messages_want_a_login_where_the_agent_does() -> None:
    url = "/agents/secret/room/get-messages"
    response = Client().get(url)
    assert (response.status_code, response.content) == (401, b"[]")
    client = Client()
    client.force_login(User.objects.create_user("ann"))
    assert client.get(url).json() == []


def test_a_hook_may_forbid_them() -> None:
    client = Client()
    client.force_login(User.objects.create_user("banned"))
    assert client.get("/agents/shared/room/get-messages").status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/agents/unknown/room/get-messages",
        "/agents/paced/get-messages",
        "/agents/paced/room/get-messagesx",
        "/agents/paced/room",
    ],
)
def test_other_addresses_are_not_ours(path: str) -> None:
    assert Client().get(path).status_code == 404


def config_of(response: Any) -> Any:
    assert response.status_code == 200
    return response.context["chat"]


def test_the_page_tells_the_script_where_the_chat_is() -> None:
    client = Client()
    response = client.get("/chat/my%20room/")
    assert config_of(response) == {
        "agent": "paced",
        "name": "my room",
        "resume": True,
        "socket": "/agents/paced/my%20room",
        "messages": "/agents/paced/my%20room/get-messages",
    }
    assert "/agents/paced/my%20room" in response.content.decode()
    assert "no-store" in response["Cache-Control"]
    # The socket cannot set a cookie: the visitor is known from the page on.
    assert owner_of(client)


def test_the_room_is_in_the_path_or_the_query_or_the_default() -> None:
    client = Client()
    assert config_of(client.get("/chat/"))["name"] == "default"
    assert config_of(client.get("/chat/?room=other"))["name"] == "other"
    assert client.get("/chat/?room=" + "x" * 300).status_code == 403


def test_the_page_asks_for_a_login_where_the_agent_does() -> None:
    response = Client().get("/secret/")
    assert response.status_code == 302
    assert response["Location"] == "/login/?next=/secret/"


def test_the_page_is_read_only() -> None:
    assert Client().post("/chat/").status_code == 405


def test_a_submitted_message_is_there_before_its_reply() -> None:
    client = Client()
    client.get(URL)
    ref = ConversationRef(Paced.agent_name, "room", owner_of(client))
    message = user_message("1 0", "u1")
    queue.submit(ref, Submission(request_id="q", messages=[message], origin_ids=["u1"]))
    assert client.get(URL).json() == [message]
    assert door.alias() == "default"


ELSEWHERE = "https://app.example"


def test_pages_of_other_origins_read_nothing_by_default() -> None:
    for method in (Client().get, Client().options):
        response = method(URL, headers={"origin": ELSEWHERE})
        assert not [h for h in response.headers if h.startswith("Access-Control")]


def test_pages_of_a_named_origin_may_read_with_their_cookies(settings: Any) -> None:
    settings.DJANGO_STREAMS = {"CHAT_CORS_ORIGINS": [ELSEWHERE]}
    preflight = Client().options(
        URL,
        headers={"origin": ELSEWHERE, "access-control-request-headers": "x-token"},
    )
    assert (preflight.status_code, preflight.content) == (200, b"")
    assert preflight["Access-Control-Allow-Headers"] == "x-token"
    assert "GET" in preflight["Access-Control-Allow-Methods"]
    for response in (preflight, Client().get(URL, headers={"origin": ELSEWHERE})):
        assert response["Access-Control-Allow-Origin"] == ELSEWHERE
        assert response["Access-Control-Allow-Credentials"] == "true"
    other = Client().get(URL, headers={"origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in other
    assert "Origin" in other["Vary"]


def test_all_pages_may_read_without_cookies(settings: Any) -> None:
    settings.DJANGO_STREAMS = {"CHAT_CORS_ORIGINS": ["*"]}
    response = Client().get(URL, headers={"origin": ELSEWHERE})
    assert response["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in response
