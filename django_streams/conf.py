"""The one settings dict, ``DJANGO_STREAMS``, as one typed object.

Read with :func:`get`; the object is rebuilt when the setting changes (tests),
and never bound at import. Unknown keys are reported by a system check.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed

NAME = "DJANGO_STREAMS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Defaults of every key. Times are seconds, sizes are bytes."""

    DATABASE: str = "default"
    """Alias of the chat's tables and the default of the shipped views."""
    CHANNEL_LAYER: str | None = "default"
    """Layer that carries wakes between processes; None: only the poll does."""
    WAKE_DATABASE: str | None = None
    """Alias of a PostgreSQL, reached directly, whose NOTIFY carries wakes."""
    SINGLE_CONNECTION: bool = False
    """Everything through the thread-sensitive connection, so TestCase works."""
    READ_POOL: int = 4
    """Threads, each with a kept connection, behind the async doors."""
    POOL_IDLE: float = 60.0
    """A pool thread that had nothing to do for this long ends."""
    POLL_MIN: float = 0.05
    POLL_MAX: float = 1.0
    """A follower polls after POLL_MIN, doubling up to POLL_MAX while idle."""
    WAKE_TIMEOUT: float = 1.0
    """A send to the channel layer that takes longer is given up."""
    RETRY_SECONDS: float = 20.0
    """How long a write outside a transaction is retried after a failure."""
    PUSH_CHUNKS: int = 10
    """push() holds at most this many chunks that are not being written."""
    COMMIT_ENTRIES: int = 256
    COMMIT_BYTES: int = 1_048_576
    """A group commit takes at most this many appends, or this much text."""
    PAGE_BYTES: int = 262_144
    """A page of a replay holds about this much text (or one larger chunk)."""
    PAGE_CACHE: int = 524_288
    """Text of pages read lately that a process keeps for other readers."""
    BLOCK_BYTES: int = 262_144
    """Rollup merges small blocks into blocks of at most this size."""
    CANCEL_GRACE: float = 60.0
    """A cancelled producer that has not settled by then is settled by gc."""
    ROLLUP_AFTER: float = 600.0
    """gc merges the blocks of a stream that nothing was written to for this
    long; younger ones are their writer's, who may still look for them."""
    EVENT_AGE: float = 86_400.0
    """gc deletes what observers of a conversation were told before that."""
    SSE_HEARTBEAT: float = 15.0
    SSE_SEND_TIMEOUT: float = 60.0
    """A client that takes no byte for this long loses its response."""
    SSE_PACE: int | None = 8_388_608
    """Bytes a second of a replay under a server without back-pressure."""
    SSE_MAX_AGE: float | None = 3600.0
    """The shipped event view ends a response in order after this long; the
    client resumes. A client that vanished without a word is let go by then."""
    ACCESS_POLICY: str = "django_streams.access.OwnerPolicy"
    ACCESS_RECHECK: float = 30.0
    """How often a long connection asks the access policy again."""
    TURN_LEASE: float = 5.0
    """Lease of a running turn: how long a reply stands still after its process
    died."""
    RUNNER: str = "inprocess"
    """Who runs turns: "inprocess", "worker", "django.tasks" or "celery"."""
    AGENTS: list[str] | tuple[str, ...] | None = None
    """Paths of the agent classes for workers; None: those that are routed."""
    SWEEP_INTERVAL: float = 1.0
    """How often a process looks for turns that nobody runs any more."""
    GC_INTERVAL: float | None = 3600.0
    """How often a worker collects old streams; None: something else does."""
    TASK_BACKEND: str = "default"
    """Alias in TASKS that carries turns, where RUNNER is "django.tasks"."""
    TASK_QUEUE: str | None = None
    """Queue of the tasks that carry turns; None: the default one."""
    TASK_PATIENCE: float = 60.0
    """A turn whose task has not begun by then is enqueued once more."""
    CHAT_FRAME_CHARS: int = 16_777_216
    """A larger frame of a client is not looked at; uvicorn's limit is the same."""
    CHAT_FRAME_DEPTH: int = 512
    """A frame that nests deeper is refused; nothing deeper can be stored."""
    CHAT_FRAME_RATE: float | None = 100.0
    """Frames a second of one connection; what comes from ten seconds offline may
    come at once. A faster client loses its connection for good."""
    CHAT_CORS_ORIGINS: tuple[str, ...] | list[str] = ()
    """Pages of other origins that may read messages; ``"*"``: all, without cookies."""
    PRESENCE_TTL: float = 15.0
    """Who watches a conversation counts as gone when its process has said nothing
    for this long; it says so three times as often (``when_unwatched``)."""
    EXPOSE_ERRORS: bool | None = None
    """Show the text of unexpected errors to clients; None: as DEBUG."""

    @property
    def expose_errors(self) -> bool:
        if self.EXPOSE_ERRORS is None:
            return bool(django_settings.DEBUG)
        return self.EXPOSE_ERRORS


KNOWN = frozenset(f.name for f in fields(Settings))

_current: Settings | None = None
_defaults: dict[str, Any] = {}
"""Instead of those above, inside of :func:`defaults`."""


def get() -> Settings:
    """The settings in force; unknown keys are ignored here (a check tells)."""
    global _current
    if _current is None:
        given = _defaults | {k: v for k, v in raw().items() if k in KNOWN}
        _current = Settings(**given)
    return _current


def raw() -> dict[str, Any]:
    """The dict as the project wrote it."""
    return dict(getattr(django_settings, NAME, None) or {})


@contextmanager
def defaults(**values: Any) -> Iterator[None]:
    """Other defaults inside of the block, as tests want them.

    A default and no override: it outlives ``override_settings`` inside, and what
    the project says counts more.
    """
    global _defaults
    before, _defaults = _defaults, _defaults | values
    _changed()
    try:
        yield
    finally:
        _defaults = before
        _changed()


def _changed() -> None:
    # As if the setting itself had: whoever has made something of it makes it anew.
    value = getattr(django_settings, NAME, None)
    setting_changed.send(sender=Settings, setting=NAME, value=value, enter=True)


def _reset(*, setting: str, **_: object) -> None:
    global _current
    if setting in (NAME, "DEBUG"):
        _current = None


setting_changed.connect(_reset, dispatch_uid="django_streams.conf")
