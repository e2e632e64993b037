"""Each system check, provoked by the mistake it is for."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery import _state as celery_state
from django.core.checks import CheckMessage, run_checks
from django.db import connections
from django.test import override_settings
from pytest_django import Settings

from django_streams.access import AccessPolicy, OwnerPolicy, Subject

WAL = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"


class OpenPolicy(OwnerPolicy):
    """Reads are for everybody."""

    def can_read(self, subject: Subject, owner_key: str) -> bool:
        return True


class BrokenPolicy(AccessPolicy):
    """Takes for granted that there is a user."""

    def can_read(self, subject: Subject, owner_key: str) -> bool:
        return bool(subject.user.is_staff)


class Elsewhere:
    """A router that keeps messages in another place."""

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "archive" if model.__name__ == "Message" else None


def found(*, deploy: bool = False) -> dict[str, CheckMessage]:
    messages = run_checks(
        tags=["django_streams"],
        include_deployment_checks=deploy,
        databases=["default"],
    )
    return {
        str(message.id).removeprefix("django_streams."): message
        for message in messages
        if str(message.id).startswith("django_streams.")
    }


@pytest.fixture
def sqlite_options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A copy of the database's settings, which no connection uses."""
    config = connections.settings["default"]
    changed: dict[str, Any] = {**config, "OPTIONS": dict(config["OPTIONS"])}
    monkeypatch.setitem(connections.settings, "default", changed)
    return changed


def test_the_settings_of_this_suite_are_in_order() -> None:
    assert found() == {}


def test_an_unknown_key_is_an_error_with_a_suggestion(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = {"POL_MAX": 1.0}
    assert found()["E001"].hint == "Did you mean 'POLL_MAX'?"
    settings.DJANGO_STREAMS = {"zzzzzz": 1}
    assert "Known keys: ACCESS_POLICY," in str(found()["E001"].hint)
    settings.DJANGO_STREAMS = {"poll_max": 1.0}
    assert found()["E001"].hint == "Did you mean 'POLL_MAX'?"


def test_anything_but_a_dict_is_an_error_and_stops_the_other_checks(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = ["POLL_MAX"]
    assert set(found(deploy=True)) == {"E002"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("POLL_MAX", "1"),
        ("POLL_MAX", -1.0),
        ("READ_POOL", 1.5),
        ("READ_POOL", True),
        ("SINGLE_CONNECTION", 1),
        ("DATABASE", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(
    settings: Settings, key: str, value: object
) -> None:
    settings.DJANGO_STREAMS = {key: value}
    assert set(found()) == {"E003"}
    assert repr(value) in found()["E003"].msg


@pytest.mark.parametrize(
    ("key", "value"), [("POLL_MAX", 1), ("SSE_PACE", None), ("CHANNEL_LAYER", None)]
)
def test_a_value_of_a_fitting_kind_is_no_error(
    settings: Settings, key: str, value: object
) -> None:
    settings.DJANGO_STREAMS = {key: value}
    assert found() == {}


def test_an_alias_that_is_no_database_is_an_error(settings: Settings) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": "nowhere"}
    assert "default" in str(found()["E004"].hint)


@pytest.mark.parametrize("path", ["no.such.Policy", "django.http.HttpRequest"])
def test_a_policy_that_cannot_be_used_is_an_error(
    settings: Settings, path: str
) -> None:
    settings.DJANGO_STREAMS = {"ACCESS_POLICY": path}
    assert path in found()["E005"].msg


def test_a_policy_that_admits_everybody_is_reported_for_deployment(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = {"ACCESS_POLICY": f"{__name__}.OpenPolicy"}
    assert "anybody read what" in found(deploy=True)["W005"].msg
    assert "W005" not in found()
    settings.DJANGO_STREAMS = {"ACCESS_POLICY": f"{__name__}.BrokenPolicy"}
    assert "W005" not in found(deploy=True)


def test_sqlite_with_deferred_transactions_is_reported(
    sqlite_options: dict[str, Any],
) -> None:
    del sqlite_options["OPTIONS"]["transaction_mode"]
    assert set(found()) == {"W001"}


@pytest.mark.parametrize("command", ["PRAGMA journal_mode=DELETE", "", None])
def test_sqlite_without_write_ahead_logging_is_reported(
    sqlite_options: dict[str, Any], command: str | None
) -> None:
    sqlite_options["OPTIONS"]["init_command"] = command
    assert set(found()) == {"W002"}
    sqlite_options["OPTIONS"]["init_command"] = "pragma journal_mode = wal"
    assert found() == {}


def test_sqlite_in_memory_is_reported(sqlite_options: dict[str, Any]) -> None:
    sqlite_options["NAME"] = "file:memorydb_default?mode=memory&cache=shared"
    assert set(found()) == {"W003"}


@pytest.mark.parametrize(
    ("layer", "layers", "part"),
    [
        (None, {}, "is None"),
        ("default", {}, "no 'default'"),
        (
            "default",
            {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
            "in-memory",
        ),
    ],
)
def test_processes_without_a_layer_between_them_are_reported_for_deployment(
    settings: Settings, layer: str | None, layers: dict[str, Any], part: str
) -> None:
    settings.DJANGO_STREAMS = {"CHANNEL_LAYER": layer}
    settings.CHANNEL_LAYERS = layers
    assert part in found(deploy=True)["W004"].msg
    assert "W004" not in found()


def test_a_layer_between_processes_is_not_reported(settings: Settings) -> None:
    settings.CHANNEL_LAYERS = {
        "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}
    }
    assert "W004" not in found(deploy=True)


@pytest.mark.needs("postgresql")
def test_wakes_through_postgresql_are_a_layer_between_processes(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = {"CHANNEL_LAYER": None, "WAKE_DATABASE": "postgresql"}
    assert set(found(deploy=True)) <= {"W007"}


@pytest.mark.parametrize(
    ("alias", "part"), [("nowhere", "DATABASES lacks"), ("default", "is sqlite")]
)
def test_a_database_that_cannot_carry_wakes_is_an_error(
    settings: Settings, alias: str, part: str
) -> None:
    settings.DJANGO_STREAMS = {"WAKE_DATABASE": alias}
    assert part in found()["E006"].msg


@pytest.mark.needs("postgresql")
def test_wakes_through_a_pooler_are_reported_for_deployment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_STREAMS = {"WAKE_DATABASE": "postgresql"}
    config = {
        **connections.settings["postgresql"],
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
    monkeypatch.setitem(connections.settings, "postgresql", config)
    assert "'postgresql'" in found(deploy=True)["W008"].msg
    assert "W008" not in found()


def test_a_router_that_sends_a_table_elsewhere_is_reported() -> None:
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.Elsewhere"]):
        message = found()["W006"]
    assert "django_streams.Message to" in message.msg


def test_daphne_is_reported_for_deployment_with_the_pace_in_force(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = {"SSE_PACE": 1000}
    assert "1000 bytes a second" in found(deploy=True)["W007"].msg
    settings.DJANGO_STREAMS = {"SSE_PACE": None}
    assert "without bound" in found(deploy=True)["W007"].msg
    settings.INSTALLED_APPS = [a for a in settings.INSTALLED_APPS if a != "daphne"]
    assert "W007" not in found(deploy=True)


def test_turns_for_celery_in_a_project_without_its_app_are_reported(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = {"RUNNER": "celery"}
    before = celery_state.get_current_app()
    try:
        # What Celery makes up where no app was made.
        celery_state.default_app = None
        celery_state._set_current_app(None)
        assert "from .celery import app" in str(found()["W010"].hint)
        Celery("project", set_as_current=True)
        assert found() == {}
    finally:
        celery_state._set_current_app(before)
