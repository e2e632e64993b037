"""The official hooks when the worker dies, and no socket with it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.core.management import call_command

from django_streams.chat import agent_routes
from tests import process
from tests.conftest import RealDb
from tests.process import Child

from .conftest import Site, serve
from .raw import stored, visit
from .site import AGENTS
from .tabs import Tab, text_of

pytestmark = pytest.mark.needs("node-packages", "postgresql")


@pytest.fixture
def site(real_db: RealDb, tmp_path: Path) -> Iterator[Site]:
    """A server that runs no turns."""
    env = {"DS_CHAT_LEASE": "1", "DS_CHAT_DATABASE": "postgresql"}
    for alias in ("default", "postgresql"):
        real_db(alias)
    with ExitStack() as stack:
        yield serve(stack, "uvicorn", env, tmp_path)


def work() -> None:
    agent_routes(*AGENTS)
    process.say("here")
    call_command("run_turns", "--no-gc", stdout=io.StringIO())


@pytest.fixture
def workers(site: Site) -> Iterator[list[Child]]:
    """Two that run its turns."""
    with Child(work, env=site.env) as here, Child(work, env=site.env) as there:
        assert (here.hear(), there.hear()) == ("here", "here")
        yield [here, there]


@pytest.mark.parametrize("agent", ["apart", "apart-again"])
def test_live_tabs_see_the_reply_of_another_worker_and_no_word_twice(
    site: Site, workers: list[Child], new_tab: Callable[[], Tab], agent: str
) -> None:
    cookie, script = visit(site, agent), site.script()
    one, two = new_tab(), new_tab()
    for tab in (one, two):
        tab.open(site.url, cookie, agent=agent)
    one.send(script.name)
    script.say("before, ")
    for tab in (one, two):
        tab.until_said(f"user: {script.name}", "assistant: before, ", status=None)
    next(worker for worker in workers if worker.pid == script.pid).kill()
    if agent == "apart-again":
        script.say("before, ")
    script.say("after", None)
    for tab in (one, two):
        tab.until_said(f"user: {script.name}", "assistant: before, after")
    _, answer = stored(site, cookie, agent=agent)
    assert text_of(answer) == "before, after"
    shown = [
        text_of(m) for v in one.views for m in v["messages"] if m["role"] != "user"
    ]
    assert all("before, after".startswith(text) for text in shown), shown
