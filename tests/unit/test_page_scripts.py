"""The scripts of the chat page, tested by Node.js without a browser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import services

SCRIPTS = Path(__file__).parent / "js"
OLDEST = (20, 19)
"""The first Node.js that tells modules from scripts by their content."""


@pytest.mark.needs("node")
@pytest.mark.parametrize("name", sorted(path.name for path in SCRIPTS.glob("*.test.*")))
def test_the_scripts_pass_their_own_tests(name: str) -> None:
    version = subprocess.run(
        ["node", "--version"], check=True, capture_output=True, text=True
    ).stdout
    if tuple(int(n) for n in version.strip("v\n").split(".")[:2]) < OLDEST:
        services.give_up(f"needs Node.js 20.19: this one is {version.strip()}")
    done = subprocess.run(
        ["node", "--test", "--test-reporter=spec", str(SCRIPTS / name)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stdout + done.stderr
