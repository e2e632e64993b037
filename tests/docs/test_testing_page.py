"""The how-to on testing, done as it is written: by the tests of a project.

The project knows the package's public kit only. pytest finds the plugin by its
entry point, and the tests of Django's kind run under Django's runner as well.
"""

from __future__ import annotations

import re

import pytest

from django_streams import testing
from django_streams.testing import (
    AgentClient,
    Reply,
    ScriptedModel,
    SSEClient,
    StreamsTestMixin,
)
from tests.projects import Project
from tests.sizes import ROOT

PAGE = (ROOT / "docs/howto/testing.md").read_text(encoding="utf-8")
FILES = dict(
    re.findall(r"```(?:python|ini)\n# ([\w/]+\.(?:py|ini))\n(.*?)```", PAGE, re.DOTALL)
)
KIT = ("client", "answering", "tab", "reply", "model", "http", "cases")
OURS = {f"django_streams.testing.{name}" for name in KIT}
TESTS = sorted(
    (name, test)
    for name, text in FILES.items()
    for test in re.findall(r"def (test_\w+)\(", text)
)

# What the page takes for granted: a project with a chat, and a model of its own.
PROJECT = {
    "shop/llm.py": """
def answer(messages):
    raise AssertionError("the real model was asked")
""",
    "+shop/settings.py": """
INSTALLED_APPS = ["django_streams", *INSTALLED_APPS]
ASGI_APPLICATION = "shop.asgi.application"
""",
    "shop/urls.py": """
from django.urls import include, path

from django_streams.chat import agent_urls
from shop.agents import SupportAgent

urlpatterns = [
    path("", include(agent_urls(SupportAgent))),
    path("", include("django_streams.http.urls")),
]
""",
    "shop/asgi.py": """
import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
http = get_asgi_application()

from django_streams.chat import agent_routes
from shop.agents import SupportAgent

sockets = AuthMiddlewareStack(URLRouter(agent_routes(SupportAgent)))
application = ProtocolTypeRouter(
    {"http": http, "websocket": AllowedHostsOriginValidator(sockets)}
)
""",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    made = Project(folder)
    made.run("-m", "django", "startproject", "shop", ".")
    made.write(PROJECT | FILES)
    return made


def test_the_page_has_a_test_for_everything_it_speaks_of() -> None:
    assert len(TESTS) == len({test for _, test in TESTS}) == 19


@pytest.mark.parametrize("third", range(3))
def test_its_tests_pass_under_pytest(project: Project, third: int) -> None:
    files = sorted({name for name, _ in TESTS})[third::3]
    assert files
    said = project.run("-m", "pytest", "-W", "error", "-v", *files)
    for name, test in TESTS:
        if name in files:
            assert re.search(rf"::{test} PASSED", said), said


def test_its_test_case_passes_under_django_s_runner(project: Project) -> None:
    said = project.run("-W", "error", "manage.py", "test", "shop")
    assert "Ran 1 test" in said


def test_the_reference_names_everything_that_is_public() -> None:
    page = (ROOT / "docs/reference/testing.md").read_text(encoding="utf-8")
    missing = [n for n in testing.__all__ if f"`{n}" not in page]
    for cls in (AgentClient, Reply, ScriptedModel, SSEClient, StreamsTestMixin):
        own = [n for c in cls.__mro__ for n in vars(c) if c.__module__ in OURS]
        missing += [
            n for n in own if not n.startswith(("_", "setUp")) and n not in page
        ]
    assert missing == []
