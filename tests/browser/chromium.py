"""The system's Chromium, driven by Playwright, and what a test wants of a page."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    sync_playwright,
)

from tests import services

ARTEFACTS = Path(__file__).resolve().parent.parent / "artefacts"
"""Screenshots are kept here; nothing in it is under version control."""

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
PATIENCE = 10_000
"""Milliseconds until a condition that does not come true fails the test."""

NETWORK = re.compile(r"WebSocket connection to .* failed|net::ERR_")
"""What Chromium itself writes when a test cuts the connection."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own profile; closed at the end of the block.

    While it is open its thread has a running event loop: synchronous database
    access and asyncio tests are not possible there until it is closed.
    """
    path = services.program(*services.CHROMIUM_NAMES)
    assert path is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=list(ARGUMENTS), handle_sigint=False
        )
        try:
            yield browser
        finally:
            browser.close()


class Tabs:
    """Opens tabs and keeps what their consoles say against them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._complaints: list[str] = []
        self.cuts = False
        """Set by a test that cuts connections: Chromium then says so too."""

    def context(self, **options: Any) -> BrowserContext:
        """A browser without a past: own cookies and storage."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE)
        context.on("console", self._console)
        context.on("weberror", lambda error: self._complaints.append(str(error.error)))
        self._contexts.append(context)
        return context

    def open(self, url: str, **options: Any) -> Page:
        """A tab in a browser without a past."""
        page = self.context(**options).new_page()
        page.goto(url)
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(message.text)

    def close(self) -> None:
        while self._contexts:
            self._contexts.pop().close()

    def complaints(self) -> list[str]:
        """Errors and warnings that the test did not bring about itself."""
        return [
            text
            for text in self._complaints
            if not (self.cuts and NETWORK.search(text))
        ]


def screenshot(page: Page, name: str) -> Path:
    """Keep what the page looks like as ``tests/artefacts/<name>.png``."""
    ARTEFACTS.mkdir(exist_ok=True)
    path = ARTEFACTS / f"{name}.png"
    page.screenshot(path=path)
    return path


STRIP = """
<!doctype html><style>
  body { margin: 0; padding: 24px; background: #eceee9; width: max-content;
         font: 600 22px/1.4 system-ui, sans-serif; color: #1b211e; }
  main { display: flex; gap: 24px; }
  figure { margin: 0; }
  figcaption { padding: 0 4px 12px; }
  img { display: block; width: 500px; border-radius: 14px;
        box-shadow: 0 1px 12px rgb(0 0 0 / 14%); }
</style><main></main>
"""


def filmstrip(tabs: Tabs, steps: dict[str, Path], target: Path) -> None:
    """Put screenshots side by side, each under its caption."""
    page = tabs.context(viewport={"width": 1700, "height": 800}).new_page()
    page.set_content(STRIP)
    for caption, path in steps.items():
        page.evaluate(
            """async ([caption, data]) => {
              const figure = document.createElement("figure");
              const image = new Image();
              image.src = `data:image/png;base64,${data}`;
              await image.decode();
              const text = document.createElement("figcaption");
              text.textContent = caption;
              figure.append(text, image);
              document.querySelector("main").append(figure);
            }""",
            [caption, base64.b64encode(path.read_bytes()).decode()],
        )
    page.locator("body").screenshot(path=target)
