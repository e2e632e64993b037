"""The pytest plugin and the mixin, in projects that use them and that do not."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.projects import Project

SETTINGS = """
import os

SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
if os.environ.get("WITHOUT") != "1":
    INSTALLED_APPS.append("django_streams")
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "x.sqlite3"}}
"""

INI = """
[pytest]
DJANGO_SETTINGS_MODULE = shop_settings
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""

AGENT = """
from django_streams.chat import AIChatConsumer
from django_streams.testing import ScriptedModel

model = ScriptedModel().answer("Hello", when="hi")


class Shop(AIChatConsumer):
    allow_anonymous = True

    async def on_chat_message(self, turn):
        async for word in model(turn):
            yield word
"""

TESTS = """
import threading

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import TestCase, TransactionTestCase, override_settings
from shop_agent import Shop

from django_streams import conf, Streams
from django_streams.testing import AgentClient, StreamsTestMixin


def single():
    return conf.get().SINGLE_CONNECTION


class Plain(TestCase):
    def test_in_a_test_case_all_uses_its_connection(self):
        assert single()

    @override_settings(DJANGO_STREAMS={"TURN_LEASE": 3.0})
    def test_other_settings_leave_it_so(self):
        assert single() and conf.get().TURN_LEASE == 3.0

    @override_settings(DJANGO_STREAMS={"SINGLE_CONNECTION": False})
    def test_unless_they_say_otherwise(self):
        assert not single()

    async def test_async_methods_see_the_transaction(self):
        async with await Streams().aopen("a") as writer:
            await writer.aappend(1)
        assert [c.chunk async for c in Streams().aread("a")] == [1]


class Transactional(TransactionTestCase):
    def test_with_real_commits_it_is_as_in_production(self):
        assert not single()


class Mixed(StreamsTestMixin, TestCase):
    @classmethod
    def setUpTestData(cls):
        assert single()
        cls.user = User.objects.create_user("ada")

    def setUp(self):
        pass  # does not call the mixin's: there is none

    async def test_an_agent_answers_and_is_rolled_back(self):
        async with self.agent_client(Shop, user=self.user) as chat:
            assert await chat.messages() == []
            assert (await chat.send("hi")).text == "Hello"

    test_and_again_from_nothing = test_an_agent_answers_and_is_rolled_back

    async def test_a_client_that_is_left_open_is_closed(self):
        chat = await self.agent_client(Shop)
        await chat.submit("hi")

    async def test_a_stream_is_followed_while_it_is_written(self):
        writer = await self.streams.aopen("b", owner=f"u:{self.user.pk}")
        await writer.aappend("x")
        await writer.aclose()
        assert [c.chunk async for c in self.streams.aread("b")] == ["x"]

    def test_its_tools_are_made_once(self):
        assert self.scripted_model is self.scripted_model
        assert self.sse_client.client is self.async_client


class MixedTransactional(StreamsTestMixin, TransactionTestCase):
    async def test_it_works_with_real_commits_as_well(self):
        assert single() and not connection.in_atomic_block
        async with self.agent_client(Shop) as chat:
            assert (await chat.send("hi")).text == "Hello"


@pytest.mark.django_db
def test_a_marked_function_is_in_a_transaction():
    assert single()


@pytest.mark.django_db(transaction=True)
def test_or_not():
    assert not single()


def test_elsewhere_nothing_changes():
    assert not single()


def test_a_fixture_brings_the_database_along(streams):
    assert connection.in_atomic_block and single()
    streams.open("a").append(1)


def test_and_what_a_test_stored_is_gone(streams):
    assert streams.status("a") is None


@pytest.mark.django_db
async def test_an_async_one_has_real_commits(streams, agent_client):
    assert not connection.in_atomic_block and single()
    async with await streams.aopen("a") as writer:
        await writer.aappend(1)
    async with agent_client(Shop) as chat:
        assert (await chat.send("hi")).text == "Hello"


async def test_and_is_emptied_afterwards(streams):
    assert await streams.astatus("a") is None


async def test_a_client_left_open_is_an_error(agent_client):
    await agent_client(Shop)


def test_no_thread_is_left():
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("django-streams")]
"""

ELSEWHERE = """
import sys

import pytest
from django.db import connection


@pytest.fixture
def streams():
    return "its own"


def test_a_fixture_of_the_same_name_is_the_project_s(streams):
    assert streams == "its own"
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        connection.ensure_connection()


def test_nothing_of_ours_is_loaded():
    assert "django_streams.conf" not in sys.modules
    assert "channels" not in sys.modules


@pytest.mark.django_db
def test_the_database_is_there():
    from django.contrib.auth.models import User

    assert User.objects.count() == 0
"""

WITHOUT_DJANGO = """
def test_plain():
    pass


def test_with_a_model(scripted_model):
    assert scripted_model.left == 0


def test_with_a_fixture(agent_client):
    pass
"""

ALONE = """
import sys
import django_streams.testing.plugin
heavy = {"django", "channels", "asgiref", "asyncio"} & set(sys.modules)
assert heavy <= set(sys.argv[1:]), heavy
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("shop"))
    made.write(
        {
            "shop_settings.py": SETTINGS,
            "pytest.ini": INI,
            "shop_agent.py": AGENT,
            "test_shop.py": TESTS,
            "test_elsewhere.py": ELSEWHERE,
            "test_without.py": WITHOUT_DJANGO,
            "other.ini": "[pytest]\n",
        }
    )
    return made


def outcomes(said: str) -> Counter[str]:
    return Counter(re.findall(r"::\S+ (PASSED|FAILED|ERROR)", said))


def test_the_fixtures_and_the_mixin_work_in_a_project(project: Project) -> None:
    said = project.ask("-m", "pytest", "-W", "error", "-v", "test_shop.py").stdout
    expected = TESTS.count("def test_") + TESTS.count("\n    test_")
    # The client that is left open: its test passes, and its teardown fails.
    assert outcomes(said) == {"PASSED": expected, "ERROR": 1}, said
    assert "<client of shop/default>] is still open" in said


def test_the_mixin_works_under_django_s_runner(project: Project) -> None:
    said = project.run(
        *("-W", "error", "-m", "django", "test", "test_shop.Mixed"),
        DJANGO_SETTINGS_MODULE="shop_settings",
    )
    assert "Ran 5 tests" in said


def test_a_project_without_the_app_notices_nothing(project: Project) -> None:
    run = ("-m", "pytest", "-W", "error", "-v", "test_elsewhere.py")
    assert outcomes(project.run(*run, WITHOUT="1")) == {"PASSED": 3}


def test_without_pytest_django_the_fixtures_say_what_they_need(
    project: Project,
) -> None:
    done = project.ask(
        *("-m", "pytest", "-W", "error", "-v", "-p", "no:django", "-c", "other.ini"),
        *("-p", "no:asyncio", "test_without.py"),
    )
    assert outcomes(done.stdout) == {"PASSED": 2, "ERROR": 1}, done.stdout + done.stderr
    assert "pip install pytest-django" in done.stdout


def test_loading_the_plugin_loads_neither_django_nor_channels(
    project: Project,
) -> None:
    project.run("-W", "error", "-c", ALONE, "asyncio")
