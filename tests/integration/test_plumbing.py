"""What the other tests stand on: databases, services, processes, servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from urllib.request import urlopen

import pytest
from django.db import connections
from django.utils import timezone

from django_streams.models import Stream
from tests import process
from tests.conftest import RealDb
from tests.liveserver import SERVERS, LiveServer, Server
from tests.process import Child, ChildError
from tests.sizes import ROOT

ALIASES = ["default", "postgresql"]
HELLO = "tests.integration.apps:hello"


def make_stream(alias: str) -> None:
    now = timezone.now()
    Stream.objects.using(alias).create(
        stream_id="a", key="0" * 32, created_at=now, updated_at=now
    )


def in_child(alias: str) -> None:
    process.say("ready")
    assert process.hear() == "go"
    make_stream(alias)
    process.say("done")
    process.hear()


def fails() -> None:
    raise ZeroDivisionError


async def adds_one(number: int) -> None:
    process.say(number + 1)


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("round_", [1, 2])
def test_rows_that_a_thread_committed_are_gone_before_the_next_test(
    real_db: RealDb, alias: str, round_: int
) -> None:
    real_db(alias)
    assert not Stream.objects.using(alias).exists()

    def commit() -> None:
        make_stream(alias)
        connections[alias].close()

    thread = threading.Thread(target=commit)
    thread.start()
    thread.join()
    assert Stream.objects.using(alias).count() == 1


@pytest.mark.parametrize("alias", ALIASES)
def test_a_child_process_works_on_the_database_of_the_run_and_can_be_killed(
    real_db: RealDb, alias: str
) -> None:
    real_db(alias)
    with Child(in_child, alias=alias) as child:
        assert child.hear() == "ready"
        child.say("go")
        assert child.hear() == "done"
        assert Stream.objects.using(alias).count() == 1
        child.kill()
        assert child.wait() == -signal.SIGKILL


def test_a_coroutine_function_runs_in_a_child(sqlite_db: str) -> None:
    with Child(adds_one, number=1) as child:
        assert child.hear() == 2
        assert child.wait() == 0


def test_a_child_that_fails_fails_the_test_with_its_traceback() -> None:
    with pytest.raises(ChildError, match="ZeroDivisionError"), Child(fails) as child:
        child.hear()
    with pytest.raises(ChildError, match="ZeroDivisionError"), Child(fails) as child:
        child.wait()


@pytest.mark.parametrize("server", SERVERS)
def test_a_live_server_answers_stops_and_starts_again_on_its_port(
    server: Server,
) -> None:
    with LiveServer(HELLO, server=server) as live:
        assert urlopen(live.url).read() == b"hello"
        live.stop()
        assert "127.0.0.1" in live.log()
    with LiveServer(HELLO, server=server, port=live.port) as again:
        assert urlopen(again.url).read() == b"hello"
        assert again.url == live.url


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_cannot_start_fails_the_test_with_its_log(server: Server) -> None:
    with (
        pytest.raises(AssertionError, match="no_such_module"),
        LiveServer("no_such_module:app", server=server),
    ):
        pass


@pytest.mark.needs("postgresql")
def test_the_server_that_the_next_tests_take_away_is_there() -> None:
    pass


@pytest.mark.parametrize("environment", [{}, {"CI": "true"}, {"REQUIRE_ALL": "1"}])
def test_a_missing_service_skips_with_one_line_or_fails_where_all_is_required(
    environment: dict[str, str],
) -> None:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "REQUIRE_ALL", "DS_TEST_RUN")
    }
    name = test_the_server_that_the_next_tests_take_away_is_there.__name__
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"{__file__}::{name}"],
        cwd=ROOT,
        env=clean | environment | {"DS_TEST_POSTGRESQL_PORT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    reason = "needs PostgreSQL: no connection to 127.0.0.1:1"
    assert reason in done.stdout
    assert done.returncode == (1 if environment else 0)
    assert ("skipped 1: " + reason in done.stdout) is (not environment)
