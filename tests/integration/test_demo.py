"""The demo project starts as it is, on both servers and through runserver."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import urlopen

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from demo_project.csp import POLICY
from tests.liveserver import SERVERS, LiveServer, Server
from tests.sizes import ROOT


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The demo's settings and a migrated database of its own."""
    file = tmp_path_factory.mktemp("demo") / "db.sqlite3"
    made = {
        "DJANGO_SETTINGS_MODULE": "demo_project.settings",
        "DEMO_SQLITE_FILE": str(file),
    }
    manage(made, "migrate", "--verbosity", "0")
    return made


def manage(environment: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_demo_passes_its_checks(environment: dict[str, str]) -> None:
    manage(environment, "check", "--database", "default", "--fail-level", "WARNING")
    manage(environment, "makemigrations", "--check", "--dry-run")


@pytest.mark.parametrize("server", SERVERS)
def test_the_chat_is_at_the_root_under_a_strict_policy_with_all_its_files(
    environment: dict[str, str], server: Server
) -> None:
    with LiveServer(server=server, env=environment) as live:
        with urlopen(live.url + "/") as response:
            page = response.read().decode()
            assert response.headers["Content-Security-Policy"] == POLICY
        assert "<title>django_streams demo</title>" in page
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
        assert any(file.endswith("/demo.css") for file in files)
        for file in files:
            with urlopen(urljoin(live.url, file)) as response:
                assert response.status == 200


@pytest.mark.parametrize("server", SERVERS)
def test_a_socket_is_for_pages_of_the_demo_only(
    environment: dict[str, str], server: Server
) -> None:
    with LiveServer(server=server, env=environment) as live:
        with urlopen(live.url) as page:
            cookie = page.headers["Set-Cookie"].partition(";")[0]
        address = live.ws_url + "/agents/demo-agent/default"
        with connect(
            address, origin=Origin(live.url), additional_headers={"Cookie": cookie}
        ) as connection:
            connection.ping().wait(5)
        with (
            pytest.raises(InvalidStatus),
            connect(
                address,
                origin=Origin("http://elsewhere.example"),
                additional_headers={"Cookie": cookie},
            ),
        ):
            pass


def test_an_unknown_page_is_not_found(environment: dict[str, str]) -> None:
    with (
        LiveServer(env=environment) as live,
        pytest.raises(HTTPError, match="404"),
        urlopen(live.url + "/streams/unknown/events"),
    ):
        pass


def test_runserver_speaks_asgi(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "runserver", "--noreload", str(port)],
            cwd=ROOT,
            env=os.environ | environment | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=output,
        )
    assert process.stdout is not None
    try:
        seen = b""
        while b"Quit the server" not in seen:
            line = process.stdout.readline()
            assert line, log.read_text()
            seen += line
        assert b"ASGI/Daphne" in seen
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
