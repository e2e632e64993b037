"""The shipped page in a real Chromium, against a server that follows a script."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Tabs
from tests.browser.stage import (
    Frame,
    Stage,
    StageSocket,
    frame,
    frames,
    message,
    reply,
    text,
    transcript,
)

pytestmark = pytest.mark.needs("chromium")

WORDS = "one two three four five six"
CHUNKS = reply(WORDS)
QUESTION = message("u1", "user", text("Tell me"))

WATCH = """
() => {
  // What a reader could have seen: after each change, the last reply and whether
  // the page said that it was thinking.
  window.seen = [];
  const look = () => {
    const replies = document.querySelectorAll(".ds-message--agent .ds-text");
    const thinking = document.querySelector('[data-ds="thinking"]');
    const last = [...replies].at(-1)?.textContent ?? "";
    const now = [last, !thinking.hidden];
    if (String(now) !== String(window.seen.at(-1))) window.seen.push(now);
  };
  new MutationObserver(look).observe(document.querySelector("[data-ds-chat]"), {
    subtree: true, childList: true, characterData: true, attributes: true,
  });
}
"""

WATCH_SPEECH = """
() => {
  window.said = [];
  const live = document.querySelectorAll(
    '[aria-live]:not([aria-live=off]), [role=status], [role=alert], [role=log]');
  for (const region of live) {
    new MutationObserver(() => window.said.push(region.textContent.trim())).observe(
      region, { subtree: true, childList: true, characterData: true });
  }
  return [...live].map((region) => region.dataset.ds);
}
"""


def opened(
    tabs: Tabs, stage: Stage, messages: list[Frame] | None = None, **options: Any
) -> tuple[Page, StageSocket]:
    """A tab whose connection was told that nothing runs."""
    page = tabs.open(stage.url, **options)
    socket = stage.socket()
    socket.greet(messages)
    expect(page.locator("[data-connection=open]")).to_be_visible()
    return page, socket


def ask(page: Page, socket: StageSocket, question: str = "Tell me") -> str:
    """Type and send; the request id under which the server got it."""
    page.get_by_label("Your message").fill(question)
    page.keyboard.press("Enter")
    return socket.submitted()[0]


def replies(page: Page) -> Any:
    return page.locator(".ds-message--agent .ds-message__body")


def test_a_reply_grows_word_by_word_and_can_be_used_when_it_is_whole(
    tabs: Tabs, stage: Stage
) -> None:
    page, socket = opened(tabs, stage)
    request_id = ask(page, socket)
    expect(page.get_by_text("Thinking…")).to_be_visible()
    socket.say(*frames(request_id, CHUNKS[:5]))
    expect(replies(page)).to_have_text("one two ")
    expect(page.get_by_text("Thinking…")).to_be_hidden()
    expect(page.locator(".ds-message--agent button")).to_have_count(2)
    expect(page.locator(".ds-message--agent button:visible")).to_have_count(0)
    socket.say(*frames(request_id, CHUNKS[5:], start=5), frame(request_id, done=True))
    expect(replies(page)).to_have_text(WORDS)
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()


def test_a_reload_shows_the_running_reply_in_one_step(tabs: Tabs, stage: Stage) -> None:
    stage.history = [QUESTION]
    page = tabs.open(stage.url)
    socket = stage.socket()
    probe = socket.hear("cf_agent_stream_resume_request")
    page.evaluate(WATCH)
    socket.say(transcript([QUESTION], connect=True))
    expect(page.get_by_text("Tell me")).to_be_visible()
    socket.say(
        {
            "type": "cf_agent_stream_resuming",
            "id": "r1",
            "probeId": probe["probeId"],
        }
    )
    assert socket.hear("cf_agent_stream_resume_ack")["id"] == "r1"
    socket.say(*frames("r1", CHUNKS[:5], replay=True))
    # Something else to show in the middle of the replay, so that a render comes.
    socket.say(transcript([message("u1", "user", text("Tell me now"))]))
    expect(page.get_by_text("Tell me now")).to_be_visible()
    socket.say(
        *frames("r1", CHUNKS[5:6], start=5, replay=True),
        frame("r1", replay=True, replayComplete=True),
    )
    expect(replies(page)).to_have_text("one two three ")
    socket.say(*frames("r1", CHUNKS[6:], start=6), frame("r1", done=True))
    expect(replies(page)).to_have_text(WORDS)
    seen = page.evaluate("window.seen")
    assert [thinking for _, thinking in seen if thinking] == []
    shown = [content for content, _ in seen if content]
    assert shown[0] == "one two three"


def test_what_is_written_without_a_connection_is_sent_once_when_it_is_back(
    tabs: Tabs, stage: Stage
) -> None:
    tabs.cuts = True
    page, socket = opened(tabs, stage)
    stage.refusing = True
    socket.drop()
    expect(page.get_by_text("Reconnecting…")).to_be_visible()
    for question in ("First", "Second"):
        page.get_by_label("Your message").fill(question)
        page.keyboard.press("Enter")
    note = page.get_by_text("Will be sent as soon as there is a connection")
    expect(note).to_have_count(2)
    stage.refusing = False
    again = stage.socket()
    again.greet([message("u0", "user", text("Older"))])
    bodies = [again.submitted()[1] for _ in range(2)]
    assert [body["messages"][-1]["parts"][0]["text"] for body in bodies] == [
        "First",
        "Second",
    ]
    assert [len(body["messages"]) for body in bodies] == [2, 3]
    expect(page.get_by_text("Connected again")).to_be_visible()
    expect(page.locator(".ds-message--user .ds-text")).to_have_text(
        ["Older", "First", "Second"]
    )
    expect(note).to_have_count(0)
    assert again.nothing_more()


def test_what_was_written_survives_a_reload_without_a_connection(
    tabs: Tabs, stage: Stage
) -> None:
    tabs.cuts = True
    page, socket = opened(tabs, stage)
    stage.refusing = True
    socket.drop()
    expect(page.get_by_text("Reconnecting…")).to_be_visible()
    page.get_by_label("Your message").fill("Sent")
    page.keyboard.press("Enter")
    page.get_by_label("Your message").fill("Not yet")
    page.reload()
    expect(page.get_by_label("Your message")).to_have_value("Not yet")
    expect(page.get_by_text("Sent", exact=True)).to_be_visible()
    stage.refusing = False
    again = stage.socket()
    again.greet()
    request_id, body = again.submitted()
    assert body["messages"][-1]["parts"][0]["text"] == "Sent"
    again.say({"type": "cf_agent_stream_pending", "id": request_id})
    expect(page.get_by_text("Thinking…")).to_be_visible()
    page.reload()
    last = stage.socket()
    last.greet(body["messages"])
    expect(page.get_by_text("Sent", exact=True)).to_have_count(1)
    assert last.nothing_more()


def test_an_error_is_told_and_can_be_tried_again(tabs: Tabs, stage: Stage) -> None:
    page, socket = opened(tabs, stage)
    request_id = ask(page, socket)
    socket.say(*frames(request_id, CHUNKS[:5]))
    socket.say(frame(request_id, done=True, error=True, body="The model went away."))
    expect(page.get_by_role("alert")).to_contain_text("The model went away.")
    expect(replies(page)).to_have_text("one two ")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    _, body = socket.submitted()
    assert body["trigger"] == "regenerate-message"
    assert [m["role"] for m in body["messages"]] == ["user"]


def test_a_refused_page_says_so_and_does_not_try_again(
    tabs: Tabs, stage: Stage
) -> None:
    page = tabs.open(stage.url)
    stage.socket().close(4401)
    expect(page.get_by_text("Please sign in and reload the page")).to_be_visible()
    expect(page.locator("[data-connection=refused]")).to_be_visible()


def test_the_keyboard_is_enough(tabs: Tabs, stage: Stage) -> None:
    page, socket = opened(tabs, stage)
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.type("One line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and another")
    page.keyboard.press("Enter")
    request_id, body = socket.submitted()
    assert body["messages"][-1]["parts"][0]["text"] == "One line\nand another"
    socket.say(*frames(request_id, CHUNKS[:5]))
    expect(replies(page)).to_have_text("one two ")
    page.keyboard.press("Escape")
    assert socket.hear("cf_agent_chat_request_cancel")["id"] == request_id
    socket.say(frame(request_id, done=True, outcome="aborted"))
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Copy").last).to_be_focused()


def test_a_screen_reader_hears_a_reply_once_and_not_word_by_word(
    tabs: Tabs, stage: Stage
) -> None:
    page, socket = opened(tabs, stage)
    assert sorted(page.evaluate(WATCH_SPEECH)) == ["announce", "error", "state"]
    request_id = ask(page, socket)
    expect(page.get_by_text("The assistant is replying")).to_be_attached()
    for index, sent in enumerate(frames(request_id, CHUNKS)):
        socket.say(sent)
        if index == 5:
            expect(replies(page)).to_have_text("one two three ")
            expect(page.locator(".ds-message--agent")).to_have_attribute(
                "aria-busy", "true"
            )
    socket.say(frame(request_id, done=True))
    expect(page.get_by_text(f"The assistant replied: {WORDS}")).to_be_attached()
    assert page.evaluate("window.said") == [
        "The assistant is replying",
        f"The assistant replied: {WORDS}",
    ]
    expect(page.locator(".ds-message--agent")).to_have_attribute("aria-busy", "false")
    expect(page.locator("main")).to_match_aria_snapshot("""
      - main:
        - region "Chat":
          - heading "Demo agent" [level=1]
          - status: Connected
          - button "Clear"
          - region "Messages":
            - list:
              - listitem:
                - heading "You" [level=2]
                - text: Tell me
                - button "Copy"
              - listitem:
                - heading "Assistant" [level=2]
                - paragraph: one two three four five six
                - button "Copy"
                - button "Regenerate"
          - textbox "Your message"
          - button "Send" [disabled]
          - status: "The assistant replied: one two three four five six"
    """)


def test_reasoning_is_folded_and_a_tool_call_shown(tabs: Tabs, stage: Stage) -> None:
    page, socket = opened(tabs, stage)
    request_id = ask(page, socket)
    call = {"toolCallId": "c1", "toolName": "search"}
    chunks: list[Frame] = [
        {"type": "start", "messageId": "a1"},
        {"type": "reasoning-start", "id": "r"},
        {"type": "reasoning-delta", "id": "r", "delta": "Let me see."},
    ]
    socket.say(*frames(request_id, chunks))
    reasoning = page.get_by_text("Let me see.")
    expect(page.get_by_text("Reasoning…")).to_be_visible()
    expect(reasoning).to_be_hidden()
    page.get_by_text("Reasoning…").click()
    expect(reasoning).to_be_visible()
    more: list[Frame] = [
        {"type": "reasoning-end", "id": "r"},
        {"type": "tool-input-start", **call},
        {"type": "tool-input-available", **call, "input": {"query": "streams"}},
    ]
    socket.say(*frames(request_id, more, start=3))
    expect(page.get_by_text("running…")).to_be_visible()
    expect(reasoning).to_be_visible()
    last: list[Frame] = [
        {"type": "tool-output-available", "toolCallId": "c1", "output": {"hits": 3}}
    ]
    socket.say(*frames(request_id, last, start=6), frame(request_id, done=True))
    page.get_by_text("search").click()
    expect(page.get_by_text('"query": "streams"')).to_be_visible()
    expect(page.get_by_text('"hits": 3')).to_be_visible()


def test_a_reply_cannot_bring_markup_scripts_or_other_addresses_into_the_page(
    tabs: Tabs, stage: Stage
) -> None:
    content = (
        "<img src=/x onerror=alert(1)> <script>alert(1)</script>\n\n"
        "[a](javascript:alert(1)) ![i](https://x.example/i.png) [b](https://y.example/)"
    )
    page, _ = opened(tabs, stage, [QUESTION, message("a1", "assistant", text(content))])
    expect(page.get_by_text("<img src=/x onerror=alert(1)>")).to_be_visible()
    assert page.locator(".ds-text :is(img, script, iframe)").count() == 0
    links = page.locator(".ds-text a")
    assert [link.get_attribute("href") for link in links.all()] == [
        "https://x.example/i.png",
        "https://y.example/",
    ]
    assert {link.get_attribute("rel") for link in links.all()} == {
        "noopener noreferrer nofollow"
    }


def test_text_and_code_can_be_copied(tabs: Tabs, stage: Stage) -> None:
    content = "Some **text**:\n\n```py\nprint(1)\n```"
    page, _ = opened(
        tabs,
        stage,
        [QUESTION, message("a1", "assistant", text(content))],
        permissions=["clipboard-read", "clipboard-write"],
    )
    last = page.locator(".ds-message").last
    last.locator("[data-ds-action=copy]").click()
    expect(last.locator("[data-ds-action=copy]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == content
    last.locator("[data-ds-copy-code]").click()
    expect(last.locator("[data-ds-copy-code]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "print(1)"


def test_clearing_asks_first(tabs: Tabs, stage: Stage) -> None:
    page, socket = opened(tabs, stage, [QUESTION])
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("Tell me")).to_be_visible()
    assert socket.nothing_more()
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Tell me")).to_have_count(0)
    expect(page.get_by_text("What would you like to know?")).to_be_visible()
    socket.hear("cf_agent_chat_clear")


def test_a_reader_who_scrolled_up_is_left_there(tabs: Tabs, stage: Stage) -> None:
    long = "\n\n".join(f"Paragraph {n}" for n in range(60))
    page, socket = opened(
        tabs, stage, [QUESTION, message("a1", "assistant", text(long))]
    )
    scroll = page.get_by_role("region", name="Messages")
    distance = "e => e.scrollHeight - e.scrollTop - e.clientHeight"
    expect(page.get_by_text("Paragraph 59")).to_be_in_viewport()
    assert scroll.evaluate(distance) < 2
    scroll.evaluate("e => { e.scrollTop = 300; }")
    newest = page.get_by_role("button", name="Newest")
    expect(newest).to_be_visible()
    socket.say(*frames("r1", reply(f"{long} end", "a3")))
    expect(page.get_by_text("Paragraph 59 end")).to_be_attached()
    assert scroll.evaluate("e => e.scrollTop") == 300
    newest.click()
    expect(page.get_by_text("Paragraph 59 end")).to_be_in_viewport()
    expect(newest).to_be_hidden()


@pytest.mark.parametrize("width", [320, 375, 1280])
@pytest.mark.parametrize("language", ["en", "ar"])
def test_nothing_is_wider_than_the_screen(
    tabs: Tabs, stage: Stage, width: int, language: str
) -> None:
    content = (
        f"{'long' * 60}\n\n```\n{'wide ' * 60}\n```\n\n"
        f"|{'cell|' * 20}\n|{'-|' * 20}\n|{'value|' * 20}"
    )
    page = tabs.open(
        f"{stage.url}?language={language}", viewport={"width": width, "height": 700}
    )
    stage.socket().greet([QUESTION, message("a1", "assistant", text(content))])
    expect(page.get_by_text("wide wide")).to_be_visible()
    wider = page.evaluate(
        """() => [...document.querySelectorAll(".ds-chat, .ds-chat__scroll, body")]
          .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.className)"""
    )
    assert wider == []
    expect(page.locator("html")).to_have_attribute(
        "dir", "rtl" if language == "ar" else "ltr"
    )
