"""The chat tutorial, done as it is written: every command and every file."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.chatting import RESPONSE, Frame, chunks, text_of
from tests.sizes import ROOT
from tests.unit.chat_completions import DONE, calls, event
from tests.unit.providing import Server
from tests.wire.raw import RawTab, visit

PAGE = (ROOT / "docs/tutorial/chat.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
FILE = re.compile(r"# (mysite/\w+\.py)(?: \(([^)\n]+)\))?\n(.*)", re.DOTALL)
COMMANDS = "".join(text for kind, text in BLOCKS if kind == "sh").splitlines()

FILES = [m for kind, text in BLOCKS if kind == "python" and (m := FILE.match(text))]
STEPS = [found for found in FILES if found[1] == "mysite/agents.py"]
"""What the agent is, one after the other: by itself, with a model, with tools."""

CHAT = {"agent": "support-agent", "room": "default"}


@dataclass
class Project:
    """A fresh folder, as it stands before the agent is written."""

    folder: Path

    def run(self, command: str) -> None:
        program, *arguments = shlex.split(command)
        python = [sys.executable] + ([] if program == "python" else ["-m", "django"])
        assert program in ("python", "django-admin")
        subprocess.run(
            [*python, *arguments], cwd=self.folder, env=self.env(), check=True
        )

    def write(self, found: re.Match[str]) -> None:
        file = self.folder / found[1]
        adds = found[2] == "at the end"
        assert adds or found[2] in (None, "instead of what was there")
        file.write_text((file.read_text() if adds else "") + found[3])

    def env(self, **more: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DJANGO_")}
        # The package comes from here; the page has pip install it.
        return inherited | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | more


@dataclass
class Runserver:
    """Where ``runserver`` listens."""

    url: str

    @property
    def ws_url(self) -> str:
        return self.url.replace("http:", "ws:")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("tutorial"))
    begin, migrate = (c for c in COMMANDS if re.search("startproject|migrate", c))
    made.run(begin)
    for found in [*(f for f in FILES if f not in STEPS), STEPS[0]]:
        made.write(found)
    made.run("python manage.py check --fail-level WARNING")
    made.run(migrate)
    return made


@contextmanager
def served(project: Project, **env: str) -> Iterator[Runserver]:
    """The project under the page's last command, on a port that is free."""
    assert "python manage.py runserver" in COMMANDS
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, "manage.py", "runserver", where, "--noreload"],
            cwd=project.folder,
            env=project.env(**env),
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 20
            while not answers(where):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise AssertionError(log.read().decode())
                time.sleep(0.05)
            yield Runserver(f"http://{where}")
        finally:
            process.kill()


def answers(where: str) -> bool:
    connection = http.client.HTTPConnection(where, timeout=20)
    try:
        connection.request("GET", "/chat/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


async def answer(server: Runserver, text: str) -> list[Frame]:
    """What a new visitor is answered."""
    async with RawTab(server, visit(server, **CHAT), **CHAT) as tab:
        await tab.ask(text)
        return await tab.done()


def test_every_block_of_the_page_is_done_here() -> None:
    assert len(FILES) == sum(kind == "python" for kind, _ in BLOCKS)
    assert [found[1] for found in FILES] == [
        "mysite/settings.py",
        "mysite/agents.py",
        "mysite/asgi.py",
        "mysite/urls.py",
        "mysite/agents.py",
        "mysite/agents.py",
    ]
    assert COMMANDS == [
        "python -m venv .venv",
        ". .venv/bin/activate",
        'pip install "/path/to/the/checkout[daphne]"',
        "django-admin startproject mysite .",
        "python manage.py migrate",
        "python manage.py runserver",
        'pip install "/path/to/the/checkout[openai]"',
        'export OPENAI_API_KEY="your key"',
        'export OPENAI_BASE_URL="https://api.openai.com/v1"',
    ]


async def test_the_tutorial_ends_with_a_chat_that_survives_a_reload(
    project: Project,
) -> None:
    project.write(STEPS[0])
    with served(project) as server:
        with urllib.request.urlopen(server.url + "/chat/") as page:
            assert "/agents/support-agent/default" in page.read().decode()
        cookie = visit(server, **CHAT)
        async with RawTab(server, cookie, **CHAT) as tab:
            await tab.ask("hello")
            await tab.until(RESPONSE, seq=4)
            tab.cut()
        async with RawTab(server, cookie, **CHAT) as tab:
            await tab.resume()
            text = text_of(await tab.done())
    assert text.strip() == "You said: hello. I will think about it."


async def test_its_model_is_asked_and_answers(project: Project) -> None:
    project.write(STEPS[1])
    model = Server([event(content="Good "), event(content="day."), DONE])
    async with model as url:
        with served(project, OPENAI_BASE_URL=url, OPENAI_API_KEY="k") as server:
            assert text_of(await answer(server, "hello")) == "Good day."
    assert [m["content"] for m in model.requests[0]["messages"]] == [
        "You are helpful.",
        "hello",
    ]


async def test_its_function_is_called_and_the_visitor_sees_it(project: Project) -> None:
    project.write(STEPS[2])
    model = Server(
        [*calls((0, "order_state", '{"number": 7}')), DONE],
        [event(content="It is coming."), DONE],
    )
    async with model as url:
        with served(project, OPENAI_BASE_URL=url, OPENAI_API_KEY="k") as server:
            frames = await answer(server, "Where is order 7?")
    assert text_of(frames) == "It is coming."
    (output,) = (c for c in chunks(frames) if c["type"] == "tool-output-available")
    assert output["output"] == "on its way"
    assert model.requests[1]["messages"][-1]["content"] == "on its way"
