"""Unit and contract tests on every supported pair of Python and Django.

Run by ``make test`` after the main suite. Each pair has an environment of its
own, kept between runs. A pair whose interpreter is not on this machine is
skipped with one line; with ``CI=true`` or ``REQUIRE_ALL=1`` that is a failure.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITES = ("tests/unit", "tests/contract")


@dataclass(frozen=True)
class Pair:
    python: str
    django: str

    @property
    def name(self) -> str:
        return f"Python {self.python} with Django {self.django}"

    @property
    def venv(self) -> Path:
        return ROOT / f".venv-{self.python}"


PAIRS = (Pair("3.11", "5.2"), Pair("3.12", "6.0"), Pair("3.13", "6.1"))


def main() -> int:
    required = (
        os.environ.get("REQUIRE_ALL", "") not in ("", "0")
        or os.environ.get("CI", "").lower() == "true"
    )
    # The main suite has just run these tests on the pair of this script.
    found = {pair: find(pair.python) for pair in PAIRS if pair != running()}
    failed = []
    for pair in [pair for pair, interpreter in found.items() if interpreter is None]:
        print(f"skipped {pair.name}: no python{pair.python} found", flush=True)
        if required:
            failed.append(pair.name)
        del found[pair]
    # All at once, and each one's words in one piece.
    with ThreadPoolExecutor(max_workers=len(PAIRS)) as pool:
        for pair, ended in zip(
            found, pool.map(check, found, found.values()), strict=True
        ):
            print(f"{pair.name}:\n{ended.stdout}", flush=True)
            if ended.returncode:
                failed.append(pair.name)
    for name in failed:
        print(f"failed: {name}", flush=True)
    return 1 if failed else 0


def check(pair: Pair, interpreter: Path | None) -> subprocess.CompletedProcess[str]:
    """Run the suites on *pair*; what they said is in the answer."""
    assert interpreter is not None
    prepare(pair, interpreter)
    return subprocess.run(
        [str(pair.venv / "bin/python"), "-m", "pytest", "-q", *SUITES],
        cwd=ROOT,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def running() -> Pair:
    """The pair this script was started on."""
    import django

    return Pair(
        f"{sys.version_info.major}.{sys.version_info.minor}",
        f"{django.VERSION[0]}.{django.VERSION[1]}",
    )


def find(version: str) -> Path | None:
    """A working interpreter of *version*: on PATH, or one that pyenv keeps.

    pyenv puts a ``python3.12`` on PATH that only tells how to choose it, so a
    name is not enough: it has to run.
    """
    candidates: list[Path] = []
    if on_path := shutil.which(f"python{version}"):
        candidates.append(Path(on_path))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(
        (pyenv / "versions").glob(f"{version}.*/bin/python"),
        key=lambda path: [int(n) for n in re.findall(r"\d+", path.parts[-3])],
        reverse=True,
    )
    question = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        answer = subprocess.run(
            [candidate, "-c", question], capture_output=True, text=True, check=False
        )
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


def mysql() -> bool:
    """Whether MariaDB's driver can be compiled, which takes its client library."""
    names = ("mysqlclient", "mariadb", "libmariadb", "perconaserverclient")
    return shutil.which("pkg-config") is not None and any(
        subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0
        for name in names
    )


def prepare(pair: Pair, interpreter: Path) -> None:
    """Make the pair's environment, unless it fits pyproject.toml already."""
    extras = ".[test,mysql]" if mysql() else ".[test]"
    wanted = hashlib.blake2b(
        (ROOT / "pyproject.toml").read_bytes() + f"{pair.django} {extras}".encode(),
        digest_size=16,
    ).hexdigest()
    stamp = pair.venv / ".ready"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    subprocess.run([interpreter, "-m", "venv", pair.venv], check=True)
    install = ["-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run(
        [
            pair.venv / "bin/python",
            *install,
            "--upgrade",
            "--editable",
            extras,
            f"django=={pair.django}.*",
        ],
        cwd=ROOT,
        check=True,
    )
    stamp.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main())
