"""``stream.js`` in a real Chromium, against a live server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, async_playwright

from tests import services
from tests.integration.test_sse_live import APP, Site
from tests.liveserver import LiveServer

pytestmark = pytest.mark.needs("chromium")

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

FOLLOW = """
async ([path, options]) => {
  const Native = window.EventSource;
  window.sources = [];
  window.EventSource = class extends Native {
    constructor(...given) { super(...given); window.sources.push(this); }
  };
  const { StreamConnection } = await import("/static/stream.js");
  window.seen = [];
  window.stream = new StreamConnection(path, options);
  for (const name of ["chunk", "reset", "up-to-date", "done", "failed", "state"]) {
    stream.addEventListener(name, ({ detail }) => seen.push([name, detail]));
  }
}
"""


@pytest.fixture
def site(sqlite_db: str) -> Iterator[Site]:
    with LiveServer(APP, server="uvicorn") as server:
        yield Site(server)


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=services.program("chromium"),
            args=ARGUMENTS,
        )
        try:
            yield context.pages[0]
        finally:
            await context.close()


async def follow(page: Page, site: Site, stream_id: str, **options: Any) -> None:
    await page.goto(f"{site.url}/page")
    await page.evaluate(FOLLOW, [f"/watched/{stream_id}", options])


async def seen(page: Page, name: str) -> list[Any]:
    """The details of the events called *name*, in order."""
    found: list[Any] = await page.evaluate(
        "name => seen.filter((event) => event[0] === name).map(([, detail]) => detail)",
        name,
    )
    return found


async def until(page: Page, condition: str, seconds: float = 15) -> None:
    await page.wait_for_function(condition, timeout=seconds * 1000)


async def chunks(page: Page) -> list[tuple[int, Any]]:
    return [(one["seq"], one["chunk"]) for one in await seen(page, "chunk")]


async def all_closed(page: Page) -> bool:
    """Whether the browser will make no connection any more."""
    return bool(
        await page.evaluate("sources.every(({ readyState }) => readyState > 1)")
    )


async def test_it_replays_follows_and_stops_for_good_at_the_end(
    page: Page, site: Site
) -> None:
    await site.do("open", "a")
    await site.do("append", "a", text=["one", "two"])
    await follow(page, site, "a")
    await until(page, "seen.some(([name]) => name === 'up-to-date')")
    assert await chunks(page) == [(0, "one"), (1, "two")]
    await site.do("append", "a", text="three")
    await until(page, "stream.next === 3")
    assert await page.evaluate("stream.state") == "open"
    await site.do("close", "a")
    await until(page, "stream.ended")
    assert await page.evaluate("stream.state") == "done"
    assert len(await seen(page, "done")) == 1
    assert await all_closed(page)


async def test_it_goes_on_after_the_server_was_killed_and_came_back(
    page: Page, sqlite_db: str
) -> None:
    with LiveServer(APP, server="uvicorn") as first:
        site = Site(first)
        await site.do("open", "a")
        await site.do("append", "a", text=["one", "two"])
        await follow(page, site, "a")
        await until(page, "stream.next === 2")
        first.kill()
        await until(page, "stream.state === 'reconnecting'")
        port = first.port
    with LiveServer(APP, server="uvicorn", port=port) as second:
        site = Site(second)
        await site.do("open", "a")
        await site.do("append", "a", text="three")
        await site.do("close", "a")
        await until(page, "stream.ended")
    assert await chunks(page) == [(0, "one"), (1, "two"), (2, "three")]
    assert await page.evaluate("stream.state") == "done"


async def test_the_producers_error_is_not_a_lost_connection(
    page: Page, site: Site
) -> None:
    await site.do("open", "a")
    await follow(page, site, "a")
    await site.do("error", "a", text="out of credit")
    await until(page, "stream.ended")
    assert await seen(page, "failed") == [{"reason": "out of credit"}]
    assert await all_closed(page)


async def test_a_position_beyond_the_stream_begins_anew(page: Page, site: Site) -> None:
    await site.do("open", "a")
    await site.do("append", "a", text=["one", "two"])
    await site.do("close", "a")
    await follow(page, site, "a", **{"from": 9})
    await until(page, "stream.ended")
    assert await seen(page, "reset") == [{"cursor": 2}]
    assert await chunks(page) == [(0, "one"), (1, "two")]


async def test_it_begins_where_it_is_told(page: Page, site: Site) -> None:
    await site.do("open", "a")
    await site.do("append", "a", text=["one", "two"])
    await site.do("close", "a")
    await follow(page, site, "a", **{"from": 1})
    await until(page, "stream.ended")
    assert await chunks(page) == [(1, "two")]


async def test_closing_ends_the_reader_on_the_server(page: Page, site: Site) -> None:
    await site.do("open", "a")
    await follow(page, site, "a")
    await until(page, "stream.state === 'open'")
    await page.evaluate("stream.close()")
    assert await page.evaluate("stream.state") == "closed"
    assert (await site.stats_when(lambda now: not now["tails"]))["tails"] == 0


async def test_a_stream_that_does_not_exist_is_gone(page: Page, site: Site) -> None:
    await follow(page, site, "a")
    await until(page, "stream.ended")
    assert await page.evaluate("stream.state") == "gone"
    assert await all_closed(page)


async def test_an_answer_of_204_is_the_end(page: Page, site: Site) -> None:
    async def end_was_seen(route: Route) -> None:
        await route.fulfill(status=204)

    await page.route("**/watched/a*", end_was_seen)
    await follow(page, site, "a")
    await until(page, "stream.ended")
    assert await page.evaluate("stream.state") == "done"
    assert await all_closed(page)


async def test_a_server_that_is_being_deployed_is_asked_again(
    page: Page, site: Site
) -> None:
    await site.do("open", "a")
    await site.do("append", "a", text="one")
    refused = 0

    async def deploying(route: Route) -> None:
        nonlocal refused
        refused += 1
        if refused <= 4:
            await route.fulfill(status=503, body="deploying")
        else:
            await route.continue_()

    await page.route("**/watched/a*", deploying)
    await follow(page, site, "a", retry={"first": 50})
    await until(page, "stream.next === 1")
    assert refused > 4
    assert await page.evaluate("stream.state") == "open"
