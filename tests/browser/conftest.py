"""Fixtures of the browser tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests import services
from tests.browser.chromium import Tabs, chromium
from tests.browser.stage import Stage


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a module, whose tests therefore use no database."""
    services.chromium.require()
    with chromium() as browser:
        yield browser


@pytest.fixture
def tabs(browser: Browser) -> Iterator[Tabs]:
    """Opens tabs; the test fails if one of them wrote an error to its console."""
    tabs = Tabs(browser)
    yield tabs
    tabs.close()
    assert tabs.complaints() == []


@pytest.fixture
def stage(tabs: Tabs) -> Iterator[Stage]:
    """A server that follows the test's script; it ends after the tabs."""
    with Stage() as stage:
        yield stage
        tabs.close()
