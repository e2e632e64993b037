"""The official React hooks, unmodified, against real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Site
from .raw import stored
from .site import words
from .tabs import Script, Tab, idle, said, shows, text_of

pytestmark = pytest.mark.needs("node-packages")

NewTab = Callable[[], Tab]


def ends(site: Site, cookie: str, script: Script, text: str, *tabs: Tab) -> None:
    """The reply is over and is *text*: in all tabs, stored, and at any time a
    beginning of it was shown and nothing else."""
    for tab in tabs:
        tab.until(idle)
        shows(tab, script, text, status="ready")
        for view in tab.views:
            for message in view["messages"]:
                if message["role"] == "assistant":
                    assert text.startswith(text_of(message))
    asked, answer = stored(site, cookie, agent="scripted")
    assert text_of(asked) == script.name
    assert text_of(answer) == text


def test_a_simple_reply_is_shown_word_by_word_and_ends(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    script.say("Hello")
    shows(tab, script, "Hello")
    script.say(", world")
    shows(tab, script, "Hello, world")
    script.end()
    ends(site, cookie, script, "Hello, world", tab)
    end = tab.until_report("turnEnd")
    assert end["outcome"] == "completed"
    assert end["messageIds"] == [tab.view["messages"][0]["id"]]


def test_a_refresh_in_mid_reply_shows_all_of_it_and_goes_on(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    script.say(*(f"w{at} " for at in range(30)))
    shows(tab, script, words(30))
    tab.reload()
    shows(tab, script, words(30))
    script.say("and on")
    shows(tab, script, words(30) + "and on")
    script.end()
    ends(site, cookie, script, words(30) + "and on", tab)


def test_a_refresh_before_the_first_word_waits_for_it(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    tab.until_said(f"user: {script.name}", status="submitted")
    while len(stored(site, cookie, agent="scripted")) < 1:
        pass
    tab.reload()
    tab.until_said(f"user: {script.name}", status=None)
    script.say("late")
    shows(tab, script, "late")
    script.end()
    ends(site, cookie, script, "late", tab)


def test_a_dropped_socket_comes_back_to_the_running_reply(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    for text, so_far in (("one ", "one "), ("two ", "one two ")):
        script.say(text)
        shows(tab, script, so_far)
        tab.do("cut")
        assert tab.until_report("error") == "WebSocket closed mid-stream"
        shows(tab, script, so_far)
    script.say("three")
    shows(tab, script, "one two three")
    script.end()
    ends(site, cookie, script, "one two three", tab)


def test_a_reply_that_ended_while_the_socket_was_gone_is_whole(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie, socket={"minReconnectionDelay": 1500})
    tab.send(script.name)
    script.say("begun ")
    shows(tab, script, "begun ")
    tab.do("cut")
    tab.until(lambda view: view["status"] == "error")
    script.say("and ended", None)
    ends(site, cookie, script, "begun and ended", tab)


def test_twenty_refreshes_in_one_reply_lose_and_double_nothing(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    for round_ in range(20):
        script.say(f"w{round_} ")
        shows(tab, script, words(round_ + 1))
        tab.reload()
    shows(tab, script, words(20))
    script.end()
    ends(site, cookie, script, words(20), tab)


def test_a_reply_of_three_thousand_words_is_exact_through_a_refresh(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    script.say({"words": 3000}, None)
    tab.until(lambda view: view["status"] == "streaming")
    tab.reload()
    ends(site, cookie, script, words(3000), tab)


def test_a_second_tab_sees_the_same_from_any_moment(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, before, amid, after = (new_tab() for _ in range(4))
    one.open(site.url, cookie)
    before.open(site.url, cookie)
    one.send(script.name)
    script.say("Hello")
    shows(one, script, "Hello")
    before.until_said(f"user: {script.name}", "assistant: Hello", status=None)
    assert before.view["isServerStreaming"]
    amid.open(site.url, cookie)
    shows(amid, script, "Hello")
    script.say(", world")
    for tab in (one, amid):
        shows(tab, script, "Hello, world")
    script.end()
    ends(site, cookie, script, "Hello, world", one, before, amid)
    after.open(site.url, cookie)
    ends(site, cookie, script, "Hello, world", after)


def test_stop_keeps_what_was_said_in_all_tabs(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie)
    two.open(site.url, cookie)
    one.send(script.name)
    script.say("so far ")
    shows(one, script, "so far ")
    two.until_said(f"user: {script.name}", "assistant: so far ", status=None)
    one.do("stop")
    assert one.until_report("turnEnd")["outcome"] == "aborted"
    assert two.until_report("turnEnd")["outcome"] == "aborted"
    ends(site, cookie, script, "so far ", one, two)
    # Nothing of it is left that would be resumed.
    one.reload()
    ends(site, cookie, script, "so far ", one)


def test_stop_works_after_a_refresh_and_before_the_first_word(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    tab.until_said(f"user: {script.name}", status="submitted")
    tab.do("stop")
    assert tab.until_report("turnEnd")["outcome"] == "aborted"
    tab.until_said(f"user: {script.name}")
    expected = [f"user: {script.name}", f"user: {script.name}", "assistant: again "]
    tab.send(script.name)
    script.say("again ")
    tab.until_said(*expected, status="streaming")
    tab.reload()
    tab.until_said(*expected, status="streaming")
    tab.do("stop")
    assert tab.until_report("turnEnd")["outcome"] == "aborted"
    tab.until_said(*expected)


@pytest.mark.parametrize(
    "failure", [{"raise": "no credit"}, {"type": "error", "errorText": "no credit"}]
)
def test_an_error_of_the_model_is_told_also_to_who_comes_later(
    site: Site, cookie: str, script: Script, tab: Tab, failure: dict[str, str]
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    script.say("half an ")
    shows(tab, script, "half an ")
    script.say(failure)
    view = tab.until(lambda view: view["status"] == "error")
    assert view["error"] == "no credit"
    for _ in range(2):
        tab.reload()
        view = tab.until(lambda view: view["status"] == "error")
        assert view["error"] == "no credit"
        shows(tab, script, "half an ", status="error")
    again = site.script()
    tab.send(again.name)
    again.say("better", None)
    tab.until_said(
        f"user: {script.name}",
        "assistant: half an ",
        f"user: {again.name}",
        "assistant: better",
    )
    tab.reload()
    tab.until(lambda view: len(view["messages"]) == 4)
    assert tab.view["error"] is None


def test_clear_in_mid_reply_empties_all_tabs_for_good(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie)
    two.open(site.url, cookie)
    one.send(script.name)
    script.say("never mind ")
    shows(one, script, "never mind ")
    two.until_said(f"user: {script.name}", "assistant: never mind ", status=None)
    one.do("clear")
    two.until_said()
    assert one.until_report("turnEnd")["outcome"] == "aborted"
    one.until_said()
    one.reload()
    one.until_said()
    assert stored(site, cookie, agent="scripted") == []
    again = site.script()
    one.send(again.name)
    again.say("fresh", None)
    for tab in (one, two):
        shows(tab, again, "fresh", status="ready")


def test_regenerate_replaces_the_last_answer(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie)
    two.open(site.url, cookie)
    one.send(script.name)
    script.say("first", None)
    shows(one, script, "first", status="ready")
    one.do("regenerate")
    script.say("second", None)
    for tab in (one, two):
        shows(tab, script, "second", status="ready")
    one.reload()
    ends(site, cookie, script, "second", one)


def test_regenerating_from_two_tabs_at_once_leaves_one_answer(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie)
    two.open(site.url, cookie)
    one.send(script.name)
    script.say("first", None)
    for tab in (one, two):
        shows(tab, script, "first", status="ready")
        tab.until(idle)
    one.do("regenerate")
    two.do("regenerate")
    script.say("second", None, "third", None)
    for tab in (one, two):
        shows(tab, script, "third", status="ready")
    one.reload()
    ends(site, cookie, script, "third", one)


def test_plain_text_and_nothing_at_all_are_answers_too(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    script.say({"return": "plain text"})
    shows(tab, script, "plain text", status="ready")
    nothing = site.script()
    tab.send(nothing.name)
    nothing.say({"return": None})
    expected = [f"user: {script.name}", "assistant: plain text"]
    tab.until_said(*expected, f"user: {nothing.name}")
    tab.reload()
    tab.until_said(*expected, f"user: {nothing.name}")


def test_parts_of_all_kinds_are_shown_live_as_after_a_refresh(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie)
    tab.send(script.name)
    script.say(
        {"type": "message-metadata", "messageMetadata": {"model": "m1"}},
        {"type": "reasoning-start", "id": "r1"},
        {"type": "reasoning-delta", "id": "r1", "delta": "Hm"},
        {"type": "reasoning-delta", "id": "r1", "delta": "."},
        {"type": "reasoning-end", "id": "r1"},
        {"type": "source-url", "sourceId": "s1", "url": "https://example.com/"},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi"},
        {"type": "data-chart", "id": "d1", "data": {"points": [1]}},
        {"type": "data-chart", "id": "d1", "data": {"points": [1, 2]}},
        {"type": "data-progress", "data": 7, "transient": True},
        {"type": "tool-input-start", "toolCallId": "t1", "toolName": "add"},
        {"type": "tool-input-delta", "toolCallId": "t1", "inputTextDelta": '{"a'},
        {
            "type": "tool-input-available",
            "toolCallId": "t1",
            "toolName": "add",
            "input": {"a": 1},
        },
        {"type": "tool-output-available", "toolCallId": "t1", "output": {"sum": 1}},
        "Done\u2028\U0001f389\u0000.",
        None,
    )
    live = tab.until(lambda view: view["status"] == "ready" and view["messages"][1:])
    assert tab.until_report("data", is_progress)["data"] == 7
    tab.reload()
    later = tab.until(lambda view: view["messages"][1:])
    assert [kept(part) for part in live["messages"][1]["parts"]] == [
        kept(part) for part in later["messages"][1]["parts"]
    ]
    for view in (live, later):
        answer = view["messages"][1]
        assert answer["metadata"] == {"model": "m1"}
        reasoning = next(p for p in answer["parts"] if p["type"] == "reasoning")
        assert reasoning["text"] == "Hm."
        chart = next(p for p in answer["parts"] if p["type"] == "data-chart")
        assert chart["data"] == {"points": [1, 2]}
        tool = next(p for p in answer["parts"] if p["type"] == "tool-add")
        assert (tool["state"], tool["output"]) == ("output-available", {"sum": 1})
        assert text_of(answer) == "Done\u2028\U0001f389\u0000."


def kept(part: dict[str, object]) -> dict[str, object]:
    """Without what the client notes for itself alone."""
    return {k: v for k, v in part.items() if k not in ("id", "toolName")}


def test_two_quick_messages_are_answered_one_after_the_other(
    site: Site, cookie: str, script: Script, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie)
    two.open(site.url, cookie)
    second = site.script()
    one.send(script.name)
    one.send(second.name)
    script.say("first", None)
    second.say("second", None)
    expected = {f"user: {script.name}", f"user: {second.name}"}
    expected |= {"assistant: first", "assistant: second"}
    for tab in (one, two):
        tab.until(lambda view: said_set(view) == expected and idle(view))
        assert len(tab.view["messages"]) == 4
    one.reload()
    one.until_said(
        f"user: {script.name}",
        f"user: {second.name}",
        "assistant: first",
        "assistant: second",
    )


def is_progress(part: dict[str, object]) -> bool:
    return part["type"] == "data-progress"


def said_set(view: dict[str, object]) -> set[str]:
    return set(said(view))


def test_without_resume_a_refresh_shows_the_reply_when_it_is_over(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie, resume=False)
    tab.send(script.name)
    script.say("begun ")
    shows(tab, script, "begun ")
    tab.reload()
    tab.until_said(f"user: {script.name}")
    script.say("and ended", None)
    ends(site, cookie, script, "begun and ended", tab)
    again = site.script()
    tab.send(again.name)
    again.say("as ever", None)
    tab.until_said(
        f"user: {script.name}",
        "assistant: begun and ended",
        f"user: {again.name}",
        "assistant: as ever",
    )


def test_a_message_written_while_the_socket_is_gone_is_sent_and_kept(
    site: Site, cookie: str, script: Script, tab: Tab
) -> None:
    tab.open(site.url, cookie, socket={"minReconnectionDelay": 500})
    tab.do("cut")
    tab.until_report("socket", lambda socket: socket == "closed")
    tab.send(script.name)
    tab.until_said(f"user: {script.name}", status="submitted")
    script.say("got it", None)
    ends(site, cookie, script, "got it", tab)
    shown = [bool(view["messages"]) for view in tab.views]
    assert all(shown[shown.index(True) :])


def test_all_tabs_share_the_state_and_may_be_refused_a_change(
    site: Site, cookie: str, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    one.open(site.url, cookie)
    two.open(site.url, cookie)
    assert one.view["state"] == two.view["state"] == {"count": 0}
    one.do("setState", state={"count": 5})
    two.until(lambda view: view["state"] == {"count": 5})
    one.do("setState", state={"count": -1})
    assert one.until_report("stateError") == "State update rejected"
    one.reload()
    one.until(lambda view: view["state"] == {"count": 5})
    two.call("c1", "increment")
    for tab in (one, two):
        tab.until(lambda view: view["state"] == {"count": 6})


def test_methods_are_called_and_stream(site: Site, cookie: str, tab: Tab) -> None:
    tab.open(site.url, cookie)
    assert tab.call("c1", "add", 1, 2) == [{"call": "c1", "result": 3}]
    assert tab.call("c2", "count", 2, streaming=True) == [
        {"call": "c2", "chunk": 0},
        {"call": "c2", "chunk": 1},
        {"call": "c2", "done": None},
        {"call": "c2", "result": None},
    ]
    (refused,) = tab.call("c3", "authorize")
    assert refused["rejected"] == "Method authorize is not callable"
