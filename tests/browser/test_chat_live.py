"""The demo in a real Chromium: the main job, on real servers and a real network.

The network is a proxy that the test cuts; the server is killed and started
again on its port. What counts is the end: one reply, whole, word for word.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from demo_project.agents import script as answer
from tests.browser.chromium import ARTEFACTS, Tabs, filmstrip, screenshot
from tests.browser.proxy import Proxy
from tests.liveserver import SERVERS, LiveServer, Server

pytestmark = pytest.mark.needs("chromium")

QUICK, STEADY = "0.008", "0.025"
"""Seconds a word: as fast as a reply can be watched, and long enough for a reload,
a cut and a return in its middle."""
BOTH = pytest.mark.parametrize(
    "demo", [(server, STEADY) for server in SERVERS], indirect=True, ids=SERVERS
)
ROOT = Path(__file__).resolve().parents[2]
QUESTION = "What happens to a reply while I reload?"
PICTURE = ROOT / "docs" / "images" / "refresh.png"
"""The README's picture; written anew with ``UPDATE_IMAGES=1``."""

WATCH = """
() => {
  // The text of the last reply after each change, as the connection has it.
  window.texts = [];
  const { chat } = document.querySelector("[data-ds-chat]");
  chat.addEventListener("change", () => {
    const last = chat.messages.at(-1);
    if (last?.role !== "assistant") return;
    const text = last.parts.map((part) => part.text ?? "").join("");
    if (text !== window.texts.at(-1)) window.texts.push(text);
  });
}
"""

TRANSCRIPT = """
() => document.querySelector("[data-ds-chat]").chat.messages.map(
  ({ role, parts }) => [role, parts.map((part) => part.text ?? "").join("")])
"""

THINKING = """
() => {
  window.thoughts = 0;
  const thinking = document.querySelector('[data-ds="thinking"]');
  new MutationObserver(() => { window.thoughts += thinking.hidden ? 0 : 1; })
    .observe(thinking, { attributes: true });
}
"""


@dataclass
class Demo:
    """The demo project with a database of its own."""

    server: Server
    environment: dict[str, str]
    live: LiveServer
    proxy: Proxy

    def restart(self) -> LiveServer:
        """The server again, on the same port."""
        return _serve(self.server, self.environment, self.live.port)

    def stored(self, page: Page) -> list[tuple[str, str]]:
        """The transcript as the server has it, asked beside the browser."""
        cookies = page.context.cookies(self.proxy.url)
        request = urllib.request.Request(
            f"{self.live.url}/agents/demo-agent/default/get-messages",
            headers={"Cookie": "; ".join(f"{c['name']}={c['value']}" for c in cookies)},
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return [_plain(message) for message in json.load(response)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file of the demo, to be copied."""
    path = tmp_path_factory.mktemp("demo") / "demo.sqlite3"
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=ROOT,
        env=os.environ | _environment(path),
        check=True,
    )
    return path


@pytest.fixture
def demo(
    request: pytest.FixtureRequest, database: Path, tmp_path: Path, tabs: Tabs
) -> Iterator[Demo]:
    """The demo behind its proxy: on Daphne, as by ``make demo``, or as asked.

    It ends after the tabs, which would complain of that.
    """
    given: tuple[Server, str] = getattr(request, "param", ("daphne", QUICK))
    server, pace = given
    copy = tmp_path / "demo.sqlite3"
    shutil.copy(database, copy)
    environment = _environment(copy) | {"DEMO_DELAY": pace}
    with _serve(server, environment) as live, Proxy(live.port) as proxy:
        yield Demo(server, environment, live, proxy)
        tabs.close()


def _environment(path: Path) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "demo_project.settings",
        "DEMO_SQLITE_FILE": str(path),
        "OPENAI_API_KEY": "",
        "OPENAI_BASE_URL": "",
    }


def _serve(server: Server, environment: dict[str, str], port: int = 0) -> LiveServer:
    return LiveServer(
        "demo_project.asgi:application", server=server, env=environment, port=port
    )


def _plain(message: dict[str, Any]) -> tuple[str, str]:
    return message["role"], "".join(part.get("text", "") for part in message["parts"])


def ask(page: Page, question: str = QUESTION) -> None:
    page.get_by_label("Your message").fill(question)
    page.keyboard.press("Enter")


def reply(page: Page) -> Any:
    return page.locator(".ds-message--agent .ds-message__body").last


def finished(page: Page) -> None:
    """Wait until a reply is whole."""
    button = page.get_by_role("button", name="Regenerate")
    expect(button).to_be_visible(timeout=15_000)


def shown(page: Page) -> list[tuple[str, str]]:
    """The transcript as the page has it."""
    return [(role, text) for role, text in page.evaluate(TRANSCRIPT)]


def whole(question: str = QUESTION) -> list[tuple[str, str]]:
    return [("user", question), ("assistant", answer(question))]


@BOTH
def test_a_reply_outlives_reload_and_cut_network_and_both_tabs_end_with_it_once(
    tabs: Tabs, demo: Demo
) -> None:
    tabs.cuts = True
    viewport: Any = {"width": 760, "height": 900}
    page = tabs.open(demo.proxy.url, viewport=viewport)
    ask(page)
    expect(reply(page)).to_contain_text("Reload the page in the middle")
    before = screenshot(page, f"{demo.server}-1-before-the-reload")
    (_, had) = shown(page)[-1]
    page.reload(wait_until="commit")
    page.wait_for_selector('[data-ds="thinking"]', state="attached")
    page.evaluate(THINKING)
    expect(reply(page)).to_be_visible()
    after = screenshot(page, f"{demo.server}-2-right-after")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert shown(page)[-1][1].startswith(had)

    other = page.context.new_page()
    other.goto(demo.proxy.url)
    expect(reply(other)).to_contain_text("Reload the page in the middle")
    for tab in (page, other):
        tab.evaluate(WATCH)
    expect(reply(page)).to_contain_text("Every word you see")
    demo.proxy.cut()
    for tab in (page, other):
        expect(tab.get_by_text("Reconnecting…")).to_be_visible()
    demo.proxy.mend()
    expect(page.get_by_text("Connected again")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()

    for tab in (page, other):
        finished(tab)
        assert shown(tab) == whole()
        expect(tab.locator(".ds-message")).to_have_count(2)
        # What was on the screen only ever grew: nothing blinked or came twice.
        texts = tab.evaluate("window.texts")
        assert texts[-1] == answer(QUESTION)
        assert all(texts[-1].startswith(text) for text in texts)
        assert [len(text) for text in texts] == sorted({len(text) for text in texts})
    assert page.evaluate("window.thoughts") == 0
    assert demo.stored(page) == whole()
    assert reply(page).inner_text() == reply(other).inner_text()
    page.reload()
    finished(page)
    assert shown(page) == whole()

    done = screenshot(page, f"{demo.server}-3-finished")
    picture = ARTEFACTS / f"{demo.server}-refresh.png"
    captions = ("Before the reload", "Right after it", "Finished")
    steps = dict(zip(captions, (before, after, done), strict=True))
    filmstrip(tabs, steps, picture)
    if os.environ.get("UPDATE_IMAGES") == "1":
        PICTURE.parent.mkdir(exist_ok=True)
        shutil.copy(picture, PICTURE)


def test_what_is_asked_while_the_network_is_gone_is_answered_once(
    tabs: Tabs, demo: Demo
) -> None:
    tabs.cuts = True
    page = tabs.open(demo.proxy.url)
    expect(page.locator("[data-connection=open]")).to_be_visible()
    ask(page)
    # Cut at once: the question may have arrived or not, the page cannot know.
    demo.proxy.cut()
    # "Connecting" if the cut came before the first probe was answered.
    lost = page.locator("[data-connection=connecting], [data-connection=reconnecting]")
    expect(lost).to_be_visible()
    expect(page.get_by_text(QUESTION)).to_be_visible()
    demo.proxy.mend()
    finished(page)
    assert shown(page) == whole()
    assert demo.stored(page) == whole()


@BOTH
def test_a_killed_server_costs_time_and_no_word_of_the_reply(
    tabs: Tabs, demo: Demo
) -> None:
    tabs.cuts = True
    page = tabs.open(demo.proxy.url)
    ask(page)
    expect(reply(page)).to_contain_text("Reload the page in the middle")
    demo.live.kill()
    expect(page.get_by_text("Reconnecting…")).to_be_visible()
    with demo.restart():
        expect(page.get_by_text("Reconnecting…")).to_be_hidden(timeout=15_000)
        finished(page)
        assert shown(page) == whole()
        assert demo.stored(page) == whole()
        page.reload()
        finished(page)
        assert shown(page) == whole()


def test_stop_keeps_what_was_written_and_the_next_question_is_answered(
    tabs: Tabs, demo: Demo
) -> None:
    page = tabs.open(demo.proxy.url)
    other = page.context.new_page()
    other.goto(demo.proxy.url)
    ask(page)
    expect(reply(other)).to_contain_text("I am a script")
    other.get_by_role("button", name="Stop").click()
    for tab in (page, other):
        finished(tab)
    (_, partial) = shown(page)[-1]
    assert answer(QUESTION).startswith(partial)
    assert len(partial) < len(answer(QUESTION))
    assert shown(other) == shown(page) == demo.stored(page)
    ask(other, "And now?")
    expect(reply(page)).to_contain_text("thank you for 2 words", timeout=15_000)
    assert shown(page)[2:] == whole("And now?")


def test_a_reply_can_be_regenerated(tabs: Tabs, demo: Demo) -> None:
    page = tabs.open(demo.proxy.url)
    other = page.context.new_page()
    other.goto(demo.proxy.url)
    ask(page, "First")
    expect(reply(page)).to_contain_text("I am a script")
    page.get_by_role("button", name="Stop").click()
    finished(page)
    first = page.locator(".ds-message--agent").get_attribute("data-id")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(f'[data-id="{first}"]')).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    for tab in (page, other):
        finished(tab)
        assert shown(tab) == whole("First")
    assert demo.stored(page) == whole("First")


def test_clearing_in_mid_reply_empties_both_tabs_for_good(
    tabs: Tabs, demo: Demo
) -> None:
    page = tabs.open(demo.proxy.url)
    other = page.context.new_page()
    other.goto(demo.proxy.url)
    ask(page, "First")
    expect(reply(page)).to_contain_text("I am a script")
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Delete").click()
    for tab in (page, other):
        expect(tab.get_by_text("What would you like to know?")).to_be_visible()
    page.reload()
    expect(page.get_by_text("What would you like to know?")).to_be_visible()
    assert demo.stored(page) == []


def test_a_reply_goes_on_when_nobody_is_there_and_is_whole_afterwards(
    tabs: Tabs, demo: Demo
) -> None:
    page = tabs.open(demo.proxy.url)
    context = page.context
    ask(page)
    expect(reply(page)).to_contain_text("I am a script")
    page.close()
    again = context.new_page()
    again.goto(demo.proxy.url)
    finished(again)
    assert shown(again) == whole()


def test_a_question_in_mid_reply_waits_its_turn_and_both_are_answered_once(
    tabs: Tabs, demo: Demo
) -> None:
    page = tabs.open(demo.proxy.url)
    ask(page, "First")
    expect(reply(page)).to_contain_text("I am a script")
    ask(page, "And second")
    expect(page.locator(".ds-message--user")).to_have_count(2)
    expect(reply(page)).to_contain_text("thank you for 2 words", timeout=15_000)
    finished(page)
    assert shown(page) == whole("First") + whole("And second")
    page.reload()
    finished(page)
    assert shown(page) == demo.stored(page)
    assert sorted(shown(page)) == sorted(whole("First") + whole("And second"))
