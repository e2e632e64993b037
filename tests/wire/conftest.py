"""Fixtures of the tests with the official hooks: servers, visitors and tabs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import services
from tests.conftest import RealDb
from tests.liveserver import LiveServer

from .balancer import Balancer
from .raw import visit
from .site import SCRIPTS
from .tabs import Script, Tab

APP = "tests.wire.site_asgi:application"


@dataclass
class Site:
    """Where the pages come from."""

    url: str
    scripts: Path
    servers: list[LiveServer]
    env: dict[str, str]
    stack: ExitStack
    _names: Iterator[int] = field(default_factory=itertools.count)

    def script(self) -> Script:
        """A new script; a message with its name is answered by it."""
        return Script(self.scripts, f"script-{next(self._names)}")


def serve(stack: ExitStack, kind: str, env: dict[str, str], scripts: Path) -> Site:
    """The site on Daphne, on uvicorn, or on one of each behind one address."""
    env = env | {
        "DJANGO_SETTINGS_MODULE": "tests.wire.site_settings",
        SCRIPTS: str(scripts),
    }
    if kind != "both":
        server = LiveServer(APP, server=kind, env=env)  # type: ignore[arg-type]
        stack.enter_context(server)
        return Site(server.url, scripts, [server], env, stack)
    servers = [
        stack.enter_context(LiveServer(APP, server="daphne", env=env)),
        stack.enter_context(LiveServer(APP, server="uvicorn", env=env)),
    ]
    balancer = stack.enter_context(Balancer([server.port for server in servers]))
    return Site(balancer.url, scripts, servers, env, stack)


@pytest.fixture(scope="module", params=["daphne", "uvicorn", "both"])
def site(
    request: pytest.FixtureRequest,
    module_db: RealDb,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """One server on SQLite, or two that share PostgreSQL and Redis, with each
    connection going to the other one than the last."""
    services.node_packages.require()
    env = {}
    if request.param == "both":
        services.postgresql.require()
        services.redis.require()
        env = {"DS_CHAT_DATABASE": "postgresql", "DS_CHAT_LAYER": "redis"}
    module_db("default")
    module_db(env.get("DS_CHAT_DATABASE", "default"))
    with ExitStack() as stack:
        running = serve(stack, request.param, env, tmp_path_factory.mktemp("scripts"))
        yield running
        logs = []
        for server in running.servers:
            server.stop()
            logs.append(server.log())
    for log in logs:
        assert "Traceback" not in log, log


@pytest.fixture(scope="session")
def _parked_tabs() -> Iterator[list[Tab]]:
    """Tabs without a page; a process is started once, a page is cheap."""
    parked: list[Tab] = []
    yield parked
    for tab in parked:
        tab.end()


@pytest.fixture
def new_tab(_parked_tabs: list[Tab]) -> Iterator[Callable[[], Tab]]:
    """Tabs for this test; fails if the console of one has a word for it."""
    mine: list[Tab] = []

    def give() -> Tab:
        tab = _parked_tabs.pop() if _parked_tabs else Tab()
        mine.append(tab)
        return tab

    yield give
    complaints = []
    for tab in mine:
        if tab.close():
            _parked_tabs.append(tab)
        else:
            tab.end()
        complaints += tab.complaints()
    assert complaints == []


@pytest.fixture
def tab(new_tab: Callable[[], Tab]) -> Tab:
    return new_tab()


@pytest.fixture
def cookie(site: Site) -> str:
    """A visitor of this test alone."""
    return visit(site, "scripted")


@pytest.fixture
def script(site: Site) -> Script:
    return site.script()
