"""Streams in views under ATOMIC_REQUESTS: a failed request never was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_streams import Streams

from .conftest import Follow
from .stores import DatabaseUnderTest
from .test_streams_append import stored
from .test_streams_settle import status_of
from .waiting import holds


def say(request: HttpRequest, alias: str) -> HttpResponse:
    """Append twice and read once inside the request's transaction."""
    streams = Streams(using=alias)
    writer = streams.open("s")
    writer.append("one")
    writer.append("two")
    cursor = status_of(streams, "s").cursor
    if "fail" in request.GET:
        raise LookupError("the view failed")
    if "close" in request.GET:
        writer.close()
    return HttpResponse(str(cursor))


urlpatterns = [path("say/<alias>/", say)]


@pytest.fixture
def store(db_store: DatabaseUnderTest) -> DatabaseUnderTest:
    return db_store


Get = Callable[..., Any]


@pytest.fixture
def get(store: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch) -> Get:
    """A client of a project whose requests are transactions."""
    config = connections[store.alias].settings_dict
    monkeypatch.setitem(config, "ATOMIC_REQUESTS", True)
    client = Client(raise_request_exception=False)

    def fetch(query: str = "") -> Any:
        return client.get(f"/say/{store.alias}/{query}")

    return fetch


pytestmark = pytest.mark.urls(__name__)


def test_a_request_that_succeeds_stores_its_chunks(
    store: DatabaseUnderTest, get: Get, follow: Follow
) -> None:
    store.streams().open("s").append("zero")
    reader = follow("s")
    reader.wait_for(1)
    response = get("?close")
    assert (response.status_code, response.content) == (200, b"3")
    assert reader.finish() == ["zero", "one", "two"]


def test_a_request_that_fails_stores_nothing(
    store: DatabaseUnderTest, get: Get, follow: Follow
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    writer.append("zero")
    reader = follow("s")
    reader.wait_for(1)
    assert get("?fail").status_code == 500
    assert holds(lambda: reader.values == ["zero"])
    assert writer.append("after") == 1
    assert get().content == b"4"
    assert stored(streams, "s") == ["zero", "after", "one", "two"]
    writer.close()
    assert reader.finish() == ["zero", "after", "one", "two"]
