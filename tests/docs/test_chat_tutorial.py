"""The chat tutorial, done as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.integration.chatting import RESPONSE, text_of
from tests.liveserver import LiveServer
from tests.sizes import ROOT
from tests.wire.raw import RawTab, visit

PAGE = (ROOT / "docs/tutorial/chat.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (mysite/\S+)[^\n]*\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The project as it stands after the last step."""
    env = {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "mysite.settings"}

    def run(*command: str) -> None:
        subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=os.environ | env, check=True
        )

    subprocess.run(
        [sys.executable, "-m", "django", "startproject", "mysite", "."],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
        check=True,
    )
    for name, text in FILES.items():
        file = tmp_path / name
        before = file.read_text() if name == "mysite/settings.py" else ""
        file.write_text(before + text)
    run("manage.py", "check")
    run("manage.py", "migrate", "--verbosity", "0")
    return env


async def test_the_tutorial_ends_with_a_chat_that_survives_a_reload(
    env: dict[str, str],
) -> None:
    assert sorted(FILES) == [
        "mysite/agents.py",
        "mysite/asgi.py",
        "mysite/settings.py",
        "mysite/urls.py",
    ]
    with LiveServer("mysite.asgi:application", server="daphne", env=env) as server:
        with urllib.request.urlopen(server.url + "/chat/") as page:
            assert "/agents/support-agent/default" in page.read().decode()
        names = {"agent": "support-agent", "room": "default"}
        cookie = visit(server, **names)
        async with RawTab(server, cookie, **names) as tab:
            await tab.ask("hello")
            await tab.until(RESPONSE, seq=4)
            tab.cut()
        async with RawTab(server, cookie, **names) as tab:
            await tab.resume()
            text = text_of(await tab.done())
    assert text.strip() == "You said: hello. I will think about it."
