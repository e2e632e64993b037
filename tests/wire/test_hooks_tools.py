"""Tools and approvals through the official React hooks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Site
from .tabs import Script, Tab, View, answers_probe, idle, said, shows

pytestmark = pytest.mark.needs("node-packages")

NewTab = Callable[[], Tab]


def called(name: str = "where", call_id: str = "t1") -> dict[str, object]:
    kind = {"type": "tool-input-available", "toolCallId": call_id, "toolName": name}
    return kind | {"input": {"q": 1}}


def tool_states(view: View) -> list[str]:
    parts = [p for m in view["messages"] for p in m["parts"] if "toolCallId" in p]
    return [part["state"] for part in parts]


def test_a_tool_of_the_page_is_run_and_the_reply_goes_on(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie, answers={"where": {"output": {"city": "Oslo"}}})
    two.open(site.url, cookie)
    one.send(script.name)
    script.say("Let me see. ", called(), None)
    one.until(lambda view: tool_states(view) == ["output-available"])
    two.until(lambda view: tool_states(view) == ["output-available"])
    script.say("You are in Oslo.", None)
    whole = "Let me see. You are in Oslo."
    for tab in (one, two):
        shows(tab, script, whole, status="ready")
        tab.until(idle)
        assert tool_states(tab.view) == ["output-available"]
    one.reload()
    shows(one, script, whole, status="ready")
    assert tool_states(one.view) == ["output-available"]


def test_a_continuation_that_is_over_before_the_page_accepts_it_is_shown_once(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie, answers={"where": {"output": {"city": "Oslo"}}})
    two.open(site.url, cookie)
    one.do("hold", text="cf_agent_stream_resume_ack")
    one.send(script.name)
    script.say("Let me see. ", called(), None)
    one.until(lambda view: tool_states(view) == ["output-available"])
    script.say("You are in Oslo.", None)
    one.until_report("frame", lambda f: f["type"] == "cf_agent_stream_resuming")
    whole = "Let me see. You are in Oslo."
    for tab in (two, one):
        tab.until(lambda view: said(view)[-1:] == [f"assistant: {whole}"])
    del one.reports[:]
    one.do("release")
    one.until(idle)
    shows(one, script, whole, status="ready")


@pytest.mark.parametrize("approved", [True, False])
def test_an_approval_is_given_after_a_refresh_and_the_reply_goes_on(
    site: Site, cookie: str, script: Script, tab: Tab, approved: bool
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    asks = {"type": "tool-approval-request", "approvalId": "ap1", "toolCallId": "t1"}
    script.say("May I? ", called("delete"), asks, None)
    tab.until(lambda view: tool_states(view) == ["approval-requested"] and idle(view))
    tab.reload()
    tab.until(lambda view: tool_states(view) == ["approval-requested"])
    tab.until_report("frame", answers_probe)
    tab.do("approve", answer={"id": "ap1", "approved": approved})
    script.say("Well then.", None)
    state = "approval-responded" if approved else "output-denied"
    shows(tab, script, "May I? Well then.", status="ready")
    # The hook may keep its own word for a denied call until it loads the page anew.
    tab.reload()
    tab.until(lambda view: tool_states(view) == [state])
    tab.reload()
    shows(tab, script, "May I? Well then.", status="ready")
    assert tool_states(tab.view) == [state]


def tool_outputs(view: View) -> list[object]:
    parts = [p for m in view["messages"] for p in m["parts"] if "toolCallId" in p]
    return [part.get("output") for part in parts]


def test_a_tool_of_the_server_is_run_and_one_that_needs_it_after_its_approval(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    script.say(called("double", "t1"), called("triple", "t2"), None)
    states = ["output-available", "approval-requested"]
    tab.until(lambda view: tool_states(view) == states and idle(view))
    assert tool_outputs(tab.view)[0] == 2
    part = tab.view["messages"][-1]["parts"][-1]
    tab.do("approve", answer={"id": part["approval"]["id"], "approved": True})
    script.say("Six.", None)
    shows(tab, script, "Six.", status="ready")
    tab.until(lambda view: tool_outputs(view) == [2, 3])
    tab.reload()
    shows(tab, script, "Six.", status="ready")
    assert tool_outputs(tab.view) == [2, 3]
