"""A project of somebody else, in a folder and processes of its own.

It sees this package installed with its entry points, whatever the environment
knows of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.sizes import ROOT

OWN = ("DJANGO_SETTINGS_MODULE", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS")
"""Variables of this run that are nothing to the project."""


class Project:
    """Files below *folder*, and Python run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
        points = pyproject["project"]["entry-points"]["pytest11"]
        lines = [f"{name} = {module}" for name, module in points.items()]
        self.write(
            {
                "kit-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: kit\n",
                "kit-0.dist-info/entry_points.txt": "\n".join(["[pytest11]", *lines]),
            }
        )

    def write(self, files: Mapping[str, str]) -> None:
        """Write *files*; a name that begins with ``+`` adds to what is there."""
        for name, text in files.items():
            file = self.folder / name.removeprefix("+")
            file.parent.mkdir(parents=True, exist_ok=True)
            before = file.read_text() if name.startswith("+") else ""
            file.write_text(before + text)

    def ask(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run Python with *arguments*, however it ends."""
        inherited = {k: v for k, v in os.environ.items() if k not in OWN}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=inherited | {"PYTHONPATH": f"{self.folder}:{ROOT}"} | env,
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, *arguments: str, **env: str) -> str:
        """As :meth:`ask`; it must succeed. What it printed."""
        done = self.ask(*arguments, **env)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr
