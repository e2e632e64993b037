"""System checks: settings that cannot work, and settings that cost.

Ids are stable and listed in ``docs/reference/checks.md``. Checks of how the
processes of a deployment find each other run with ``check --deploy`` only: one
development server is complete without a shared layer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router

from . import conf

LABEL = "django_streams"
IN_MEMORY_LAYER = "channels.layers.InMemoryChannelLayer"
STRANGER = "u:-1"
"""The owner key of a user that does not exist."""

Configs = Sequence[AppConfig] | None


@register(LABEL)
def check_settings(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """E001 to E008: the ``DJANGO_STREAMS`` dict itself."""
    found = getattr(settings, conf.NAME, None)
    if found is not None and not isinstance(found, dict):
        return [
            Error(
                f"{conf.NAME} is a {type(found).__name__}, not a dict.",
                hint=f'Write {conf.NAME} = {{"POLL_MAX": 1.0}}, say.',
                id=f"{LABEL}.E002",
            )
        ]
    raw = conf.raw()
    messages = [*_unknown_keys(raw), *_wrong_values(raw)]
    if not messages:
        messages += [*_unknown_database(), *_bad_policy(), *_bad_wake_database()]
        messages += _bad_runner()
    return messages


def _unknown_keys(raw: dict[str, Any]) -> Iterator[CheckMessage]:
    for key in sorted(set(raw) - conf.KNOWN, key=str):
        near = difflib.get_close_matches(str(key).upper(), sorted(conf.KNOWN), n=1)
        yield Error(
            f"{conf.NAME} has the unknown key {key!r}.",
            hint=(
                f"Did you mean {near[0]!r}?"
                if near
                else f"Known keys: {', '.join(sorted(conf.KNOWN))}."
            ),
            id=f"{LABEL}.E001",
        )


def _wrong_values(raw: dict[str, Any]) -> Iterator[CheckMessage]:
    hints = get_type_hints(conf.Settings)
    for key in sorted(set(raw) & conf.KNOWN):
        value, kinds = raw[key], _kinds(hints[key])
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = type(value) in kinds or (float in kinds and number)
        if fits and not (number and value < 0):
            continue
        names = " or ".join(
            "None" if kind is type(None) else kind.__name__ for kind in kinds
        )
        yield Error(
            f"{conf.NAME}[{key!r}] is {value!r}.",
            hint=f"It must be {names}, and not negative if it is a number.",
            id=f"{LABEL}.E003",
        )


def _kinds(hint: Any) -> tuple[type, ...]:
    """The types that a value may have: of a list, what is in it is not asked."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple(get_origin(option) or option for option in options)


def _unknown_database() -> Iterator[CheckMessage]:
    alias = conf.get().DATABASE
    if alias not in connections.settings:
        yield Error(
            f"{conf.NAME}['DATABASE'] names {alias!r}, which DATABASES lacks.",
            hint=f"Aliases: {', '.join(sorted(connections.settings))}.",
            id=f"{LABEL}.E004",
        )


def _bad_policy() -> Iterator[CheckMessage]:
    from .access import get_policy  # starting the apps must not load the stores

    try:
        get_policy()
    except ImproperlyConfigured as error:
        yield Error(
            f"{error}.",
            hint="The default, 'django_streams.access.OwnerPolicy', admits owners.",
            id=f"{LABEL}.E005",
        )


def _bad_wake_database() -> Iterator[CheckMessage]:
    alias = conf.get().WAKE_DATABASE
    if alias is None:
        return
    from .wake.postgres import check_alias  # as in _bad_policy

    try:
        check_alias(alias)
    except ImproperlyConfigured as error:
        yield Error(
            f"{error}.",
            hint="Name an alias that leads straight to a PostgreSQL, or None.",
            id=f"{LABEL}.E006",
        )


def _bad_runner() -> Iterator[CheckMessage]:
    name = conf.get().RUNNER
    from .turns import agents, offers  # as in _bad_policy

    if name not in agents.KINDS:
        near = difflib.get_close_matches(name, agents.KINDS, n=1)
        yield Error(
            f"{conf.NAME}['RUNNER'] is {name!r}, which there is not.",
            hint=(
                f"Did you mean {near[0]!r}?"
                if near
                else f"It is one of {', '.join(agents.KINDS)}."
            ),
            id=f"{LABEL}.E007",
        )
    elif (kind := agents.Kind(name)).by_task:
        try:
            offers.require(kind)
        except ImproperlyConfigured as error:
            yield Error(
                f"{error}.",
                hint='"worker" needs no package: manage.py run_turns runs the turns.',
                id=f"{LABEL}.E008",
            )


@register(LABEL)
def check_celery(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """W010: turns that go to Celery, in a process that has loaded no app of it."""
    given = getattr(settings, conf.NAME, None)
    if not isinstance(given, dict) or given.get("RUNNER") != "celery":
        return []
    try:
        from celery import current_app
    except ImportError:
        # E008 says so.
        return []
    # The name of the app that Celery makes up where there is none.
    if current_app.main != "default":
        return []
    return [
        Warning(
            f"{conf.NAME}['RUNNER'] is 'celery', and the project loads no Celery app: "
            "this process would send turns to a broker on its own machine.",
            hint=(
                "Import it in the project's __init__.py: from .celery import app as "
                "celery_app."
            ),
            id=f"{LABEL}.W010",
        )
    ]


@register(Tags.database)
def check_backlog(
    app_configs: Configs, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W009: turns that wait though nothing is before them."""
    alias = _alias()
    if alias is None or alias not in (databases or ()):
        return []
    from .turns import backlog  # as in _bad_policy

    try:
        waiting = backlog.measure()
    except DatabaseError:
        # Not migrated yet, or not there: others say so.
        return []
    lease = conf.get().TURN_LEASE
    if waiting.oldest is None or waiting.oldest <= lease:
        return []
    return [
        Warning(
            f"A turn has waited for {waiting.oldest:.0f} s with nothing before it, "
            f"longer than a lease ({lease:g} s); {waiting.queued} turns wait in all.",
            hint=(
                "Nobody runs it, or those who do are too few: start manage.py "
                "run_turns, or the worker that RUNNER names. A server runs turns "
                "only once it has served a chat."
            ),
            id=f"{LABEL}.W009",
        )
    ]


def _alias() -> str | None:
    """The alias of our tables, or None where E002 or E004 speaks already."""
    if not isinstance(getattr(settings, conf.NAME, None) or {}, dict):
        return None
    alias = conf.get().DATABASE
    return alias if alias in connections.settings else None


@register(LABEL)
def check_sqlite(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """W001 to W003: SQLite as several threads and processes need it."""
    alias = _alias()
    if alias is None:
        return []
    config = connections.settings[alias]
    if not str(config.get("ENGINE", "")).endswith("sqlite3"):
        return []
    options = config.get("OPTIONS", {})
    messages: list[CheckMessage] = []
    if str(options.get("transaction_mode", "")).upper() not in (
        "IMMEDIATE",
        "EXCLUSIVE",
    ):
        messages.append(
            Warning(
                f"The SQLite database {alias!r} begins transactions as DEFERRED.",
                hint=(
                    "One that has read cannot become a writer while another "
                    "writes: 'database is locked', whatever the timeout. Set "
                    'OPTIONS = {"transaction_mode": "IMMEDIATE"}.'
                ),
                id=f"{LABEL}.W001",
            )
        )
    if not re.search(r"journal_mode\s*=\s*wal", str(options.get("init_command")), re.I):
        messages.append(
            Warning(
                f"The SQLite database {alias!r} is not set to write-ahead logging.",
                hint=(
                    "Readers and the writer block each other. Set OPTIONS = "
                    '{"init_command": "PRAGMA journal_mode=WAL; '
                    'PRAGMA synchronous=NORMAL;"}.'
                ),
                id=f"{LABEL}.W002",
            )
        )
    name = str(config.get("NAME", ""))
    if ":memory:" in name or "mode=memory" in name:
        messages.append(
            Warning(
                f"The SQLite database {alias!r} is in memory.",
                hint=(
                    "Its threads lock each other out and other processes see "
                    "another database. Give NAME a file."
                ),
                id=f"{LABEL}.W003",
            )
        )
    return messages


@register(Tags.database, LABEL)
def check_router(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """W006: the tables refer to each other and share transactions."""
    alias = _alias()
    if alias is None:
        return []
    apart = sorted(
        model._meta.label
        for model in apps.get_app_config(LABEL).get_models()
        if not router.allow_migrate_model(alias, model)
        or router.db_for_write(model) != alias
    )
    if not apart:
        return []
    return [
        Warning(
            f"A database router sends {', '.join(apart)} to another database "
            f"than {alias!r}, which {conf.NAME}['DATABASE'] names.",
            hint=(
                "A reply, its stream and its turn commit in one transaction: "
                f"route the whole app {LABEL!r} to {alias!r}."
            ),
            id=f"{LABEL}.W006",
        )
    ]


@register(LABEL, deploy=True)
def check_policy(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """W005: a policy that admits somebody who is nobody to what a user owns."""
    if _alias() is None:
        return []
    from .access import Action, Subject, allowed  # as in _bad_policy

    actions: tuple[Action, ...] = ("read", "write", "control")
    try:
        granted = [a for a in actions if allowed(a, Subject(), STRANGER)]
    except Exception:
        # One that cannot be made is E005's; one that cannot answer for a
        # visitor without a session does not admit that visitor.
        return []
    if not granted:
        return []
    return [
        Warning(
            f"{conf.NAME}['ACCESS_POLICY'] = {conf.get().ACCESS_POLICY!r} lets "
            f"anybody {', '.join(granted)} what belongs to a user.",
            hint="Compare the owner key, as django_streams.access.OwnerPolicy does.",
            id=f"{LABEL}.W005",
        )
    ]


@register(LABEL, deploy=True)
def check_layer(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """W004: without a layer between processes readers there poll."""
    if _alias() is None or conf.get().WAKE_DATABASE is not None:
        return []
    name = conf.get().CHANNEL_LAYER
    layers: dict[str, Any] = getattr(settings, "CHANNEL_LAYERS", None) or {}
    if name is None:
        what = f"{conf.NAME}['CHANNEL_LAYER'] is None"
    elif name not in layers:
        what = f"CHANNEL_LAYERS has no {name!r}"
    elif layers[name].get("BACKEND") == IN_MEMORY_LAYER:
        what = f"The channel layer {name!r} is the in-memory one"
    else:
        return []
    return [
        Warning(
            f"{what}: no hint reaches another process.",
            hint=(
                "Readers there see a chunk when they poll, up to "
                f"{conf.get().POLL_MAX:g} s late. Install "
                "django-streams[redis] and name a Redis layer, or name a "
                "PostgreSQL in WAKE_DATABASE."
            ),
            id=f"{LABEL}.W004",
        )
    ]


@register(LABEL, deploy=True)
def check_pooler(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """W008: the sign that an alias goes through a pooler of transactions."""
    alias = conf.get().WAKE_DATABASE if _alias() is not None else None
    config = {} if alias is None else connections.settings.get(alias, {})
    if not config.get("DISABLE_SERVER_SIDE_CURSORS"):
        return []
    return [
        Warning(
            f"{conf.NAME}['WAKE_DATABASE'] names {alias!r}, which disables "
            "server-side cursors, as behind a pooler of transactions.",
            hint=(
                "LISTEN hears nothing through one. Add an alias with the address "
                "of PostgreSQL itself, and name that."
            ),
            id=f"{LABEL}.W008",
        )
    ]


@register(LABEL, deploy=True)
def check_daphne(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    """W007: Daphne takes whatever it is given and keeps it in memory."""
    if _alias() is None or not apps.is_installed("daphne"):
        return []
    pace = conf.get().SSE_PACE
    if pace is None:
        what = "Daphne buffers without bound for a client that does not read."
        hint = (
            f"{conf.NAME}['SSE_PACE'] is None, so one client can take the whole "
            "stream's size of memory. Set a pace, or serve with uvicorn."
        )
    else:
        what = f"Under Daphne a replay is paced at {pace} bytes a second."
        hint = (
            "Daphne has no back-pressure and would hold the whole replay for a "
            "client that does not read. uvicorn pushes back and needs no pace; "
            "silence this check if you have chosen."
        )
    return [Warning(what, hint=hint, id=f"{LABEL}.W007")]
