"""Fixtures for the whole suite.

Databases
    ``default`` is a SQLite file in WAL mode with IMMEDIATE transactions;
    ``postgresql`` exists where a server can be reached. Each run has its own,
    made at first use. Two ways to use them:

    ``real_db("default")`` / ``real_db("postgresql")``
        returns the alias, ready for real commits from any thread, process and
        event loop; skips where the server is missing. The rows are deleted
        after the test. Call it in a synchronous fixture or test (it queries):

            @pytest.fixture(params=["default", "postgresql"])
            def alias(request, real_db):
                return real_db(request.param)

        ``sqlite_db`` and ``postgresql_db`` are the two as fixtures.
    ``module_db("default")``
        the same for what a whole module shares, such as a server: the rows are
        deleted after its last test, and the next module finds none.
    ``@pytest.mark.django_db``
        as ever: one transaction that is rolled back, on ``default`` unless
        ``databases=[...]`` says otherwise (with ``postgresql`` among them, add
        ``@pytest.mark.needs("postgresql")``).

Services
    ``@pytest.mark.needs("postgresql", "redis", "redis-server", "chromium",
    "node", "node-packages", "nginx")`` on a test, class or module: skipped with
    one line where one is missing, failed with ``CI=true`` or ``REQUIRE_ALL=1``.
    ``redis_url`` and ``redis_prefix``: the server, and key names of this test.
    ``services.program("nginx")`` from ``tests.services`` gives a path.

Processes
    ``tests.process.Child`` runs a function in another Python process and is
    killed by pid; ``tests.liveserver.LiveServer`` runs Daphne or uvicorn.
    Both use the run's databases. Load the ``real_db`` of the alias first.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests import services
from tests.databases import Databases, empty

RealDb = Callable[[str], str]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            services.BY_NAME[name].require()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where everything is required, whatever the reason, a skip is a failure."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome == "skipped" and services.required():
        report.outcome = "failed"
        report.longrepr = f"{_reason(report)} (required: CI or REQUIRE_ALL is set)"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # pytest gives (path, line, reason) for a skip.
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason to skip, with the number of tests it cost."""
    reasons = Counter(
        _reason(report) for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}", yellow=True)


@pytest.fixture(scope="session")
def databases(
    django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Databases]:
    """The run's databases; :meth:`Databases.ensure` makes one.

    From here on pytest-django blocks no access. Threads of pools outlive a
    test: blocked at the end of a transaction, one would leave its connection
    out of autocommit mode and fail in a later test.
    """
    made = Databases()
    with django_db_blocker.unblock():
        yield made
        made.drop()


@pytest.fixture(scope="session")
def django_db_setup(request: pytest.FixtureRequest, databases: Databases) -> None:
    """Replaces pytest-django's: ours are made one by one, when first used."""
    aliases = {"default"}
    for item in request.session.items:
        for mark in item.iter_markers("django_db"):
            aliases.update(mark.kwargs.get("databases") or ())
    for alias in sorted(aliases):
        if alias == "default" or services.BY_NAME[alias].missing() is None:
            databases.ensure(alias)


def _lend(databases: Databases) -> Iterator[RealDb]:
    used: list[str] = []

    def use(alias: str) -> str:
        if alias != "default":
            services.BY_NAME[alias].require()
        databases.ensure(alias)
        if alias not in used:
            used.append(alias)
        return alias

    yield use
    for alias in used:
        empty(alias)


@pytest.fixture
def real_db(databases: Databases) -> Iterator[RealDb]:
    """See the module's docstring."""
    yield from _lend(databases)


@pytest.fixture(scope="module")
def module_db(databases: Databases) -> Iterator[RealDb]:
    """See the module's docstring."""
    yield from _lend(databases)


@pytest.fixture
def sqlite_db(real_db: RealDb) -> str:
    """The alias of the SQLite file, with real commits."""
    return real_db("default")


@pytest.fixture
def postgresql_db(real_db: RealDb) -> str:
    """The alias of PostgreSQL, with real commits."""
    return real_db("postgresql")


@pytest.fixture
def redis_url() -> str:
    """URL of a running Redis."""
    services.redis.require()
    return services.REDIS_URL


@pytest.fixture
def redis_prefix() -> str:
    """A prefix for channel layers and keys that no other test uses."""
    return f"ds_test_{secrets.token_hex(6)}"
