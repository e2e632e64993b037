"""The official hooks when the server dies in the middle of a reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import services
from tests.conftest import RealDb
from tests.liveserver import LiveServer

from .conftest import APP, Site, serve
from .raw import stored, visit
from .site import AGENTS_PREFIX
from .tabs import Script, Tab, View, text_of
from .test_hooks_tools import called, tool_states

pytestmark = pytest.mark.needs("node-packages")


@pytest.fixture(params=["uvicorn", "both"])
def site(
    request: pytest.FixtureRequest, real_db: RealDb, tmp_path: Path
) -> Iterator[Site]:
    """As for the other tests, but one that may be killed."""
    env = {"DS_CHAT_LEASE": "1", AGENTS_PREFIX: "mortal-"}
    real_db("default")
    if request.param == "both":
        services.redis.require()
        env |= {"DS_CHAT_DATABASE": "postgresql", "DS_CHAT_LAYER": "redis"}
        real_db("postgresql")
    with ExitStack() as stack:
        yield serve(stack, request.param, env, tmp_path)


def kill_who_runs(site: Site, script: Script) -> None:
    """``kill -9`` the server that runs the turn; a lone one is started again."""
    dying = next(server for server in site.servers if server.pid == script.pid)
    dying.kill()
    if len(site.servers) == 1:
        again = LiveServer(APP, server=dying.server, env=site.env, port=dying.port)
        site.stack.enter_context(again)


@pytest.mark.parametrize("agent", ["mortal-scripted", "mortal-again"])
def test_a_reply_goes_on_after_its_server_was_killed(
    site: Site, new_tab: Callable[[], Tab], agent: str
) -> None:
    cookie, script = visit(site, agent), site.script()
    one, two = new_tab(), new_tab()
    for tab in (one, two):
        tab.open(site.url, cookie, agent=agent)
    one.send(script.name)
    script.say("before, ")
    for tab in (one, two):
        tab.until_said(f"user: {script.name}", "assistant: before, ", status=None)
    kill_who_runs(site, script)
    if agent == "mortal-again":
        script.say("before, ")
    script.say("after", None)
    for tab in (one, two):
        tab.until_said(f"user: {script.name}", "assistant: before, after")
    two.reload()
    two.until_said(f"user: {script.name}", "assistant: before, after")
    _, answer = stored(site, cookie, agent=agent)
    assert text_of(answer) == "before, after"


def told(view: View) -> str:
    """What the assistant has said: the tab that answered shows a continuation as a
    second message until the transcript comes."""
    replies = [m for m in view["messages"] if m["role"] == "assistant"]
    return "".join(map(text_of, replies))


@pytest.mark.parametrize("agent", ["mortal-scripted", "mortal-again"])
def test_a_continuation_goes_on_after_its_server_was_killed(
    site: Site, new_tab: Callable[[], Tab], agent: str
) -> None:
    cookie, script = visit(site, agent), site.script()
    one, two = new_tab(), new_tab()
    answers = {"where": {"output": {"city": "Oslo"}}}
    one.open(site.url, cookie, agent=agent, answers=answers)
    two.open(site.url, cookie, agent=agent)
    one.send(script.name)
    script.say("Let me see. ", called(), None)
    two.until(lambda view: tool_states(view) == ["output-available"])
    script.say("before, ")
    for tab in (one, two):
        tab.until(lambda view: told(view) == "Let me see. before, ")
    kill_who_runs(site, script)
    if agent == "mortal-again":
        script.say("anew, ")
        for tab in (one, two):
            tab.until(lambda view: told(view) == "Let me see. anew, ")
        whole = "Let me see. anew, after"
    else:
        whole = "Let me see. before, after"
    script.say("after", None)
    asked = f"user: {script.name}"
    for tab in (one, two):
        tab.until_said(asked, f"assistant: {whole}")
        assert tool_states(tab.view) == ["output-available"]
    two.reload()
    two.until_said(asked, f"assistant: {whole}")
    _, answer = stored(site, cookie, agent=agent)
    assert text_of(answer) == whole
