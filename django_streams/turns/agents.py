"""The agents whose turns this process can run, what they ask for, and who is to
run them.

A process learns them by what it loads: a server by the routes of its
application, a worker or a task by :func:`discover`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .. import conf
from .policy import Unwatched
from .records import UIMessage

OnInterrupted: TypeAlias = Literal["continue", "restart", "fail"]

ON_INTERRUPTED: tuple[str, ...] = get_args(OnInterrupted)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What ``on_chat_response`` is told."""

    request_id: str
    status: str
    """``"completed"``, ``"error"`` (also when it was interrupted for good) or
    ``"aborted"``."""
    message: UIMessage | None
    continuation: bool
    error: str | None = None


class Agent(Protocol):
    """What a run needs of the user's class."""

    on_interrupted: ClassVar[OnInterrupted]
    max_recovery_attempts: ClassVar[int]
    stall_timeout: ClassVar[float | None]
    max_persisted_messages: ClassVar[int | None]
    when_unwatched: ClassVar[Unwatched]
    tools: ClassVar[Sequence[Callable[..., Any]]]
    max_tool_steps: ClassVar[int]

    def on_chat_message(self, turn: Any) -> Any: ...

    def on_chat_response(self, result: TurnResult) -> Any: ...

    def on_recover(self, turn: Any) -> Any: ...

    def sanitize_message(self, message: UIMessage) -> UIMessage: ...


Make: TypeAlias = Callable[[], Agent]


class Kind(StrEnum):
    """Who runs the turns of an agent."""

    INPROCESS = "inprocess"
    """The server that took the request, as a task of its event loop."""
    WORKER = "worker"
    """``manage.py run_turns``, on any machine."""
    DJANGO_TASKS = "django.tasks"
    CELERY = "celery"

    @property
    def by_task(self) -> bool:
        """Whether somebody else's queue carries the turn to its process."""
        return self in (Kind.DJANGO_TASKS, Kind.CELERY)


KINDS: tuple[str, ...] = tuple(kind.value for kind in Kind)

_agents: dict[str, Make] = {}
_discovered = False
_discovering = Lock()


def register(name: str, make: Make) -> None:
    """Let this process run the turns of the agent *name*.

    *make* gives an instance for one turn; its attribute ``runner``, if it has
    one, says who runs them. Raises ``ValueError`` when another agent has the
    name: one of them would get the other's conversations.
    """
    known = _agents.setdefault(name, make)
    if known is not make:
        raise ValueError(
            f"two agents are called {name!r}: {known!r} and {make!r}; "
            "set agent_name on one of them"
        )


def replace(name: str, make: Make | None) -> Make | None:
    """Register *make*, or nothing, in place of the agent *name*; what was there.

    For tests, which make agents of a name that the project has as well.
    """
    before = _agents.pop(name, None)
    if make is not None:
        _agents[name] = make
    return before


def find(name: str) -> Make | None:
    """What makes an instance of the agent; None if this process has none."""
    return _agents.get(name)


def kind(name: str) -> Kind:
    """Who is to run the turns of an agent, also of one that is not known here."""
    own = getattr(_agents.get(name), "runner", None)
    return Kind(conf.get().RUNNER if own is None else own)


def names(*kinds: Kind) -> list[str]:
    """The agents of this process, or those that one of *kinds* is to run."""
    return sorted(n for n in list(_agents) if not kinds or kind(n) in kinds)


def discover() -> Sequence[str]:
    """Load the project's agents into this process, once; their names.

    Those that ``AGENTS`` names, or else those that the project routes: its
    ``ASGI_APPLICATION`` and ``ROOT_URLCONF`` are imported, which is what a
    server does. Raises ``ImproperlyConfigured`` for what cannot be imported.
    """
    global _discovered
    with _discovering:
        if not _discovered:
            listed = conf.get().AGENTS
            if listed is None:
                _load_routes()
            else:
                for path in listed:
                    _load(path)
            _discovered = True
    return names()


def _load_routes() -> None:
    application = getattr(settings, "ASGI_APPLICATION", None)
    urlconf = getattr(settings, "ROOT_URLCONF", None)
    try:
        if application:
            import_string(application)
        if urlconf:
            import_string(f"{urlconf}.urlpatterns")
    except ImportError as error:
        raise ImproperlyConfigured(
            f"the project's routes cannot be imported ({error}); mend "
            f"ASGI_APPLICATION = {application!r} or ROOT_URLCONF = {urlconf!r}, or "
            f"name the agent classes in {conf.NAME}['AGENTS']"
        ) from error


def _load(path: str) -> None:
    try:
        agent = import_string(path)
        name = agent.agent_name
    except (ImportError, AttributeError) as error:
        raise ImproperlyConfigured(
            f"{conf.NAME}['AGENTS'] names {path!r}, which is no agent class ({error})"
        ) from error
    register(name, agent)
