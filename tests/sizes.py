"""The wall on file sizes: nobody reviews what does not fit in the head."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WALL = 500
KINDS = ("*.py", "*.js", "*.css", "*.html")


def tracked(*patterns: str) -> list[Path]:
    """Files under version control, and those that are about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return sorted(path for name in listed if name and (path := ROOT / name).is_file())


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
