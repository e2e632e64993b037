"""The pytest plugin; pytest loads it by itself where the package is installed.

It costs a project that does not use it nothing: Django and Channels are loaded
by the first fixture that is used. See ``docs/reference/testing.md``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..streams import Streams
    from .client import AgentClient
    from .http import SSEClient
    from .model import ScriptedModel

_DATABASE = frozenset(("agent_client", "sse_client", "streams"))
_DATABASE = frozenset(("db", "transactional_db", "live_server"))
_settings = pytest.StashKey[ExitStack]()


def _kit(item: pytest.Item) -> bool:
    """Whether the test uses fixtures of this plugin that need the database.

    By the one they share: a project may have fixtures of their names itself.
    """
    return "_streams_kit" in getattr(item, "fixturenames", ())


def _is_async(item: pytest.Item) -> bool:
    return inspect.iscoroutinefunction(getattr(item, "obj", None))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give the tests that use the fixtures the database that they need.

    What an async test awaits uses the database on another thread, which does not
    see a transaction of the test's own: real commits, and a flush afterwards.
    """
    if not _kit(item) or not item.config.pluginmanager.hasplugin("django"):
        return
    marker = item.get_closest_marker("django_db")
    if _is_async(item):
        options = dict(marker.kwargs) if marker else {}
        options["transaction"] = True
        item.add_marker(pytest.mark.django_db(**options), append=False)
    elif marker is None and _DATABASE.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.django_db)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Settings for a test that uses the fixtures, or runs in a transaction."""
    stack = item.stash[_settings] = ExitStack()
    if not item.config.pluginmanager.hasplugin("django"):
        return  # a fixture says what is missing
    if _kit(item) or (_in_transaction(item) and _installed()):
        from .. import conf
        from .isolation import DEFAULTS

        stack.enter_context(conf.defaults(**DEFAULTS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    with item.stash.get(_settings, None) or ExitStack():
        return (yield)


def _in_transaction(item: pytest.Item) -> bool:
    case = getattr(item, "cls", None)
    django_test = sys.modules.get("django.test")
    if django_test is None:
        return False
    if isinstance(case, type) and issubclass(case, django_test.TransactionTestCase):
        return issubclass(case, django_test.TestCase)
    names = getattr(item, "fixturenames", ())
    marker = item.get_closest_marker("django_db")
    if "transactional_db" in names or "live_server" in names:
        return False
    if marker is None:
        return "db" in names
    return not (marker.kwargs.get("transaction") or any(marker.args[:1]))


def _installed() -> bool:
    from django.apps import apps

    return apps.ready and apps.is_installed("django_streams")


def _close_connections_of_async_work() -> None:
    """Those of asgiref's one thread would keep the test database in use."""
    from asgiref.sync import SyncToAsync
    from django.db import connections

    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture
def _streams_kit(request: pytest.FixtureRequest) -> Generator[None, None, None]:
    # The others depend on it: it ends after whatever a test made of them, and
    # before the database, which is dropped after the last test.
    if not request.config.pluginmanager.hasplugin("django"):
        raise pytest.UsageError(
            "the fixtures of django_streams that use the database need "
            "pytest-django: pip install pytest-django; or use StreamsTestMixin in "
            "a TestCase of Django's"
        )
    from .isolation import nothing_left

    with ExitStack() as stack:
        if _is_async(request.node):
            stack.callback(_close_connections_of_async_work)
        stack.enter_context(nothing_left())
        yield


@pytest.fixture
def streams(_streams_kit: None) -> Streams:
    """The project's streams: ``Streams()`` on the database of the setting."""
    from .. import conf
    from ..streams import Streams

    return Streams(using=conf.get().DATABASE)


@pytest.fixture
def agent_client(_streams_kit: None) -> Callable[..., AgentClient]:
    """Makes agent clients: ``async with agent_client(SupportAgent, "room1")``."""
    from .client import AgentClient

    return AgentClient


@pytest.fixture
def sse_client(_streams_kit: None) -> SSEClient:
    """Reads event streams: ``async with sse_client.get("/streams/a/events")``."""
    from .http import SSEClient

    return SSEClient()


@pytest.fixture
def scripted_model() -> ScriptedModel:
    """A model without a key, whose answers the test decides."""
    from .model import ScriptedModel

    return ScriptedModel()
