"""The wall on file sizes: nobody reviews what does not fit in the head."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WALL = 500
KINDS = ("*.py", "*.js", "*.css", "*.html")


NOT_OURS = {"__pycache__", "artefacts", "build", "dist", "node_modules"}
"""Where there is no git to ask: folders that hold no sources."""


def tracked(*patterns: str) -> list[Path]:
    """Files under version control, and those that are about to be.

    In a *pattern* ``*`` stands for anything, also for slashes; none means all.
    """
    return sorted(
        path
        for name in _names()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        if (path := ROOT / name).is_file()
    )


@functools.cache
def _names() -> list[str]:
    if shutil.which("git") and (ROOT / ".git").exists():
        return subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\0")[:-1]
    found = []
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if NOT_OURS.isdisjoint(parts) and not any(p.startswith(".") for p in parts):
            found.append("/".join(parts))
    return found


def too_long() -> list[str]:
    """``path: lines`` of every file over the wall; migrations are not written."""
    found = []
    for path in tracked(*KINDS):
        if "migrations" in path.parts:
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > WALL:
            found.append(f"{path.relative_to(ROOT)}: {lines} lines, {WALL} is the wall")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(too_long()) or None)
