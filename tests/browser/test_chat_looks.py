"""What the page looks like: screenshots to be looked at, and what can be measured."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Tabs, screenshot
from tests.browser.stage import (
    Frame,
    Stage,
    StageSocket,
    frame,
    frames,
    message,
    reply,
    text,
)

pytestmark = pytest.mark.needs("chromium")

DESK: dict[str, Any] = {"viewport": {"width": 1100, "height": 800}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 375, "height": 720},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "light": ("en", {**DESK, "color_scheme": "light"}),
    "dark": ("en", {**DESK, "color_scheme": "dark"}),
    "phone": ("de", {**PHONE, "color_scheme": "light"}),
    "phone-dark": ("en", {**PHONE, "color_scheme": "dark"}),
    "right-to-left": ("ar", {**DESK, "color_scheme": "light"}),
}

ANSWER = """\
## Keeping a reply

A reply is **stored before it is shown**. Each piece becomes a *chunk* in a stream, \
and `append` returns once the database has it. So you can:

1. reload the page,
2. lose the network,
   - on a train,
   - in a lift,
3. or come back tomorrow.

```python
async with await streams.aopen("answer") as writer:
    async for token in model.stream(question):
        await writer.aappend(token)
```

> Losing a connection costs latency, never data.

| What breaks | What you lose |
|---|---|
| the browser | nothing |
| the server | a second or two |

- [x] Read [the documentation](https://example.org/docs)
- [ ] Ask on
"""

CALL = {"toolCallId": "c1", "toolName": "search_docs"}
BEFORE: list[Frame] = [
    {"type": "start", "messageId": "a1"},
    {"type": "reasoning-start", "id": "r"},
    {"type": "reasoning-delta", "id": "r", "delta": "They ask how a reply is kept."},
    {"type": "reasoning-end", "id": "r"},
    {"type": "tool-input-start", **CALL},
    {"type": "tool-input-available", **CALL, "input": {"query": "keep a reply"}},
    {"type": "tool-output-available", "toolCallId": "c1", "output": {"hits": 3}},
]

CONTRAST = """
() => {
  // The contrast of each visible text with what is behind it, by WCAG 2.2.
  const canvas = document.createElement("canvas").getContext("2d", {
    willReadFrequently: true,
  });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const light = ([...channels]) => {
    const [r, g, b] = channels.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = {};
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const said = walker.currentNode.data.trim();
    if (!said || element.closest("script, :disabled, .ds-hidden")) continue;
    if (!element.checkVisibility({ opacityProperty: true })) continue;
    const pair = [rgba(getComputedStyle(element).color), behind(element)].map(light);
    pair.sort((a, b) => b - a);
    found[said.slice(0, 40)] = (pair[0] + 0.05) / (pair[1] + 0.05);
  }
  return found;
}
"""


def conversation(
    tabs: Tabs, stage: Stage, language: str, options: dict[str, Any]
) -> tuple[Page, StageSocket, str]:
    """A page in mid-conversation: its connection, and the id of its request."""
    page = tabs.open(f"{stage.url}?language={language}", **options)
    socket = stage.socket()
    socket.greet([message("u0", "user", text("Hello"))])
    page.get_by_role("textbox").fill("How do I keep a reply?")
    page.locator(".ds-composer button[type=submit]").click()
    return page, socket, socket.submitted()[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_text_can_be_read(tabs: Tabs, stage: Stage, variant: str) -> None:
    language, options = VARIANTS[variant]
    page, socket, request_id = conversation(tabs, stage, language, options)
    chunks = BEFORE + reply(ANSWER)[1:]
    socket.say(*frames(request_id, chunks[:120]))
    expect(page.get_by_text("never data")).to_be_attached()
    screenshot(page, f"looks-{variant}-writing")
    socket.say(*frames(request_id, chunks[120:], start=120))
    socket.say(frame(request_id, done=True, error=True, body="The model went away."))
    expect(page.get_by_role("alert")).to_be_visible()
    screenshot(page, f"looks-{variant}-end")
    page.locator("summary").nth(0).click()
    page.locator("summary").nth(1).click()
    page.get_by_role("region").nth(1).evaluate("e => { e.scrollTop = 0; }")
    expect(page.locator(".ds-latest")).to_be_visible()
    screenshot(page, f"looks-{variant}-start")
    contrasts = page.evaluate(CONTRAST)
    assert len(contrasts) > 25
    assert {said: ratio for said, ratio in contrasts.items() if ratio < 4.5} == {}


def test_a_page_without_a_connection_says_what_waits(tabs: Tabs, stage: Stage) -> None:
    tabs.cuts = True
    page, socket, request_id = conversation(tabs, stage, "en", DESK)
    socket.say(*frames(request_id, reply("This is **being written** now")[:6]))
    expect(page.locator(".ds-message--agent .ds-text")).to_have_text("This is being")
    stage.refusing = True
    socket.drop()
    expect(page.get_by_text("Reconnecting…")).to_be_visible()
    page.get_by_label("Your message").fill("Written without a network")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Will be sent")).to_be_visible()
    screenshot(page, "looks-no-connection")
    assert min(page.evaluate(CONTRAST).values()) >= 4.5


def test_an_empty_page_invites_and_a_dialog_warns(tabs: Tabs, stage: Stage) -> None:
    page = tabs.open(stage.url, **DESK)
    socket = stage.socket()
    socket.greet()
    expect(page.get_by_text("What would you like to know?")).to_be_visible()
    screenshot(page, "looks-empty")
    page.get_by_label("Your message").fill("Hello")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Thinking…")).to_be_visible()
    screenshot(page, "looks-thinking")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    screenshot(page, "looks-dialog")


@pytest.mark.parametrize("preference", ["forced_colors", "reduced_motion"])
def test_a_readers_preferences_are_kept(
    tabs: Tabs, stage: Stage, preference: str
) -> None:
    value = {"forced_colors": "active", "reduced_motion": "reduce"}[preference]
    page, socket, request_id = conversation(
        tabs, stage, "en", {**DESK, preference: value}
    )
    socket.say(*frames(request_id, reply("One two three")[:5]))
    expect(page.locator(".ds-message--agent .ds-text")).to_have_text("One two")
    screenshot(page, f"looks-{preference.replace('_', '-')}")
    moving = page.evaluate("document.getAnimations().length")
    assert (moving == 0) == (preference == "reduced_motion")
