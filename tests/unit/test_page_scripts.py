"""The scripts of the chat page, tested by Node.js without a browser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import services

SCRIPTS = Path(__file__).parent / "js"
OLDEST = (20, 19)
"""The first Node.js that tells modules from scripts by their content."""


def _probe() -> str | None:
    if reason := services.node.missing():
        return reason
    found = subprocess.run(
        ["node", "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()
    version = tuple(int(number) for number in found.removeprefix("v").split(".")[:2])
    return None if version >= OLDEST else f"this one is {found}"


node = services.Service("Node.js 20.19", _probe)


@pytest.mark.parametrize("name", sorted(path.name for path in SCRIPTS.glob("*.test.*")))
def test_the_scripts_pass_their_own_tests(name: str) -> None:
    node.require()
    done = subprocess.run(
        ["node", "--test", "--test-reporter=spec", str(SCRIPTS / name)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stdout + done.stderr
