"""Fault points: counted, named, and made to fail."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connections, transaction

from django_streams.testing.faults import FaultPoint, Faults, lose
from tests.sizes import ROOT


@pytest.fixture(params=["default", "postgresql"])
def alias(request: pytest.FixtureRequest, real_db: Callable[[str], str]) -> str:
    return real_db(request.param)


PAGE = ROOT / "docs/reference/testing-faults.md"


def test_the_page_does_what_it_says(sqlite_db: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)
    space: dict[str, Any] = {}
    for block in code:
        exec(block, space)  # noqa: S102
    assert space["names"][0] == "before BEGIN"
    assert space["names"][-1] == "after COMMIT"
    assert space["at"] > 4


def names(faults: Faults) -> list[str]:
    return [str(point) for point in faults.points]


def create(alias: str, name: str) -> None:
    User.objects.using(alias).create(username=name)


def users(alias: str) -> list[str]:
    return sorted(User.objects.using(alias).values_list("username", flat=True))


def in_thread(work: Callable[..., object], *args: Any) -> None:
    def run() -> None:
        work(*args)
        connections.close_all()

    thread = threading.Thread(target=run, name="another")
    thread.start()
    thread.join()


def test_every_statement_has_a_point_before_and_one_after(alias: str) -> None:
    with Faults(alias) as faults:
        create(alias, "a")
    assert names(faults) == ["before INSERT auth_user", "after INSERT auth_user"]
    assert [point.number for point in faults.points] == [1, 2]
    assert "INSERT INTO" in faults.points[0].sql
    assert faults.hit is None


def test_a_commit_is_a_point_of_its_own(alias: str) -> None:
    with Faults(alias) as faults, transaction.atomic(using=alias):
        create(alias, "a")
        with transaction.atomic(using=alias):
            User.objects.using(alias).filter(username="a").delete()
    assert names(faults)[-2:] == ["before COMMIT", "after COMMIT"]
    assert names(faults).count("after COMMIT") == 1
    assert {"before SAVEPOINT", "after RELEASE", "before DELETE auth_user"} <= set(
        names(faults)
    )


def test_nothing_is_counted_outside_of_the_block_or_elsewhere(
    real_db: Callable[[str], str],
) -> None:
    for alias in ("default", "postgresql"):
        real_db(alias)
    users("default")
    with Faults("default") as faults:
        users("postgresql")
    users("default")
    assert faults.points == []


def test_connections_of_other_threads_are_seen_old_and_new(alias: str) -> None:
    opened, go_on = threading.Event(), threading.Event()

    def work() -> None:
        users(alias)
        opened.set()
        go_on.wait(10)
        create(alias, "old")

    old = threading.Thread(target=in_thread, args=(work,))
    old.start()
    opened.wait(10)
    with Faults(alias, only=lambda point: point.moment == "before") as faults:
        go_on.set()
        old.join()
        in_thread(create, alias, "new")
    assert names(faults) == ["before INSERT auth_user"] * 2
    assert {point.thread for point in faults.points} == {"another"}


@pytest.mark.parametrize(
    ("at", "stored"),
    [(1, []), (2, ["a"]), ("before INSERT auth_user", [])],
)
def test_a_lost_statement_was_carried_out_or_not(
    alias: str, at: int | str, stored: list[str]
) -> None:
    with Faults(alias, at=at) as faults:
        with pytest.raises(OperationalError, match="closed"):
            create(alias, "a")
        connections[alias].close()
        assert users(alias) == stored
    assert faults.hit == faults.points[0 if at != 2 else 1]


@pytest.mark.parametrize(("moment", "stored"), [("before", []), ("after", ["a"])])
def test_a_lost_commit_took_effect_or_not(
    alias: str, moment: str, stored: list[str]
) -> None:
    with (
        Faults(alias, at=f"{moment} COMMIT", fault=lose) as faults,
        pytest.raises(OperationalError),
        transaction.atomic(using=alias),
    ):
        create(alias, "a")
    assert str(faults.hit) == f"{moment} COMMIT"
    connections[alias].close()
    assert users(alias) == stored


def test_a_fault_happens_as_often_as_it_is_told(alias: str) -> None:
    happened: list[FaultPoint] = []

    def note(point: FaultPoint, connection: object) -> None:
        happened.append(point)

    with Faults(alias, at=2, fault=note, times=3) as faults:
        for _ in range(3):
            users(alias)
    assert [point.number for point in happened] == [2, 3, 4]
    assert len(faults.points) == 6


def test_one_block_may_stand_inside_another(alias: str) -> None:
    with Faults(alias) as outer:
        with Faults(alias) as inner, transaction.atomic(using=alias):
            create(alias, "a")
        with transaction.atomic(using=alias):
            create(alias, "b")
    assert names(inner).count("after COMMIT") == 1
    assert names(outer).count("after COMMIT") == 2
    with transaction.atomic(using=alias):
        create(alias, "c")
    assert len(outer.points) == 2 * len(inner.points)
