"""The wheel, installed alone beside a project that knows nothing of us."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import django
import pytest

from tests.sizes import ROOT, tracked

SETTINGS = """
INSTALLED_APPS += ["django_streams"]
DATABASES["default"]["OPTIONS"] = {
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
"""

USE = """
import asyncio, os
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
import django
django.setup()
from contextlib import aclosing
from django_streams import Streams, StreamState

streams = Streams()
with streams.open("order/1", tag="orders") as writer:
    assert writer.append({"text": "Hello"}) == 0
    writer.extend([" ", "world"])
assert [c.chunk for c in streams.read("order/1")] == [{"text": "Hello"}, " ", "world"]
assert streams.status("order/1").state is StreamState.COMPLETED

async def follow():
    writer = await streams.aopen("order/2")
    await writer.aappend(1)
    async with aclosing(streams.aread("order/2")) as chunks:
        async for chunk in chunks:
            if chunk.seq == 0:
                await writer.aappend(2)
                await writer.aclose()
    return chunk
assert asyncio.run(follow()).chunk == 2
"""


IMPORT = """
import importlib, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
import django
django.setup()
for name in sys.argv[1:]:
    importlib.import_module(name.removesuffix(".__init__"))
"""


PLUGIN = "django_streams.testing.plugin"

FOR_OTHERS = {
    PLUGIN,
    "django_streams.turns.celery_task",
    "django_streams.turns.django_task",
}
"""Loaded by or for the packages that they are for, and by nothing else."""


@dataclass(frozen=True)
class Site:
    """A project of ``startproject``, and the environment with the wheel."""

    wheel: Path
    python: Path
    project: Path

    def run(self, *arguments: str) -> str:
        return _run([self.python, "-W", "error", *arguments], self.project)


def _run(command: Sequence[str | Path], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        # Nothing of this environment: no settings module, no path to the source.
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    python = folder / "venv" / "bin" / "python"
    # The pip of this environment installs into the new one, which has none:
    # making one with pip takes longer than all the rest.
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True
    )
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-compile", str(wheel), f"django=={django.__version__}"],
        check=True,
        capture_output=True,
    )
    _run([python, "-m", "django", "startproject", "shop", "."], folder)
    with (folder / "shop" / "settings.py").open("a") as settings:
        settings.write(SETTINGS)
    made = Site(wheel, python, folder)
    made.run("manage.py", "migrate", "--verbosity", "0")
    return made


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {n for n in names if ".dist-info/" not in n}
    assert package == {
        str(path.relative_to(ROOT)) for path in tracked("django_streams/*")
    }
    assert "django_streams/py.typed" in package
    assert "django_streams/migrations/0001_initial.py" in package
    assert any(n.startswith("django_streams/static/") for n in package)
    assert any(n.startswith("django_streams/templates/") for n in package)
    assert any(n.endswith("/licenses/LICENSE") for n in names)


def test_the_package_comes_from_the_wheel_and_brings_no_extra(site: Site) -> None:
    where = site.run("-c", "import django_streams as s; print(s.__file__)")
    assert Path(where.strip()).is_relative_to(site.python.parent.parent)
    listed = site.run(
        "-c",
        "from importlib.metadata import distributions as d;"
        "print(*sorted({x.name.lower() for x in d()}))",
    )
    assert listed.split() == [
        "asgiref",
        "channels",
        "django",
        "django-streams",
        "sqlparse",
    ]


def test_a_fresh_project_passes_its_checks(site: Site) -> None:
    site.run("manage.py", "check", "--database", "default", "--fail-level", "WARNING")
    site.run("manage.py", "makemigrations", "--check", "--dry-run")


def test_a_fresh_project_writes_and_reads_a_stream(site: Site) -> None:
    site.run("-c", USE)


def test_a_fresh_project_runs_the_commands(site: Site) -> None:
    commands = {
        path.stem
        for path in tracked("django_streams/management/commands/*.py")
        if path.stem != "__init__"
    }
    assert "gc_streams" in commands
    for command in sorted(commands):
        site.run("manage.py", command, "--help")


def test_every_module_can_be_imported_without_the_extras(site: Site) -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in tracked("django_streams/*.py")
    ]
    site.run("-c", IMPORT, *sorted(set(modules) - FOR_OTHERS))


def test_pytest_finds_the_plugin(site: Site) -> None:
    found = site.run(
        "-c",
        "from importlib.metadata import entry_points as e;"
        "print(*((p.name, p.value) for p in e(group='pytest11')))",
    )
    assert found.strip() == str(("django_streams", PLUGIN))
