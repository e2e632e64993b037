"""Turns that somebody else's task queue carries to the process that runs them.

The row stays the truth. A task only says "look at this conversation": one that
comes twice, late or never costs nothing but time. A turn is offered to the
task queue by one conditional update, which holds for ``TASK_PATIENCE``; a turn
that has not begun by then is offered again by whoever sweeps.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

from .. import conf
from ..models import Turn
from ..store import get_store
from ..store.retry import persist
from . import agents, clock, door
from .records import ConversationRef, TurnStatus

R = TypeVar("R")

logger = logging.getLogger("django_streams.turns")

_THREADS = 8
"""Calls to brokers at a time; a backend that runs the task at once is one."""

_PACKAGES = {
    agents.Kind.DJANGO_TASKS: (("django.tasks", "django_tasks"), "django-tasks"),
    agents.Kind.CELERY: (("celery",), "celery"),
}


def require(kind: agents.Kind) -> None:
    """Raise ``ImproperlyConfigured`` when no package carries this kind's turns."""
    modules, package = _PACKAGES[kind]
    if not any(_importable(module) for module in modules):
        raise ImproperlyConfigured(
            f"the runner {kind.value!r} needs the package {package}: "
            f'pip install "django-streams[{package}]"'
        )


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def offer_soon(ref: ConversationRef) -> None:
    """As :func:`offer`, in a thread; returns at once, from any thread or loop.

    An orderly end of the process waits for it.
    """
    with _lock:
        if ref.key in _pending:
            return
        _pending.add(ref.key)
        _get_threads().submit(_offer_pending, ref)


def offer(ref: ConversationRef) -> None:
    """Enqueue a task for the conversation's oldest queued turn, if one could run
    and none is on its way. What fails is logged, and offered again by a sweep."""
    try:
        pk = _in_pool(lambda: _mark(ref))
        if pk is None:
            return
        try:
            _send(agents.kind(ref.agent), pk)
        except Exception:
            # Not at the next sweep already: a broker that is away stays so.
            _in_pool(lambda: _offer_again(pk, conf.get().TURN_LEASE))
            raise
    except Exception:
        logger.exception("a turn of %s could not be enqueued", ref.agent)


def _offer_pending(ref: ConversationRef) -> None:
    with _lock:
        # From here on a new call has something of its own to find.
        _pending.discard(ref.key)
    offer(ref)


def _send(kind: agents.Kind, turn_pk: int) -> None:
    require(kind)
    if kind is agents.Kind.CELERY:
        from .celery_task import enqueue
    else:
        from .django_task import enqueue
    enqueue(turn_pk)


def _mark(ref: ConversationRef) -> int | None:
    """The turn to enqueue, if it is for us to do; judged by the row count.

    One that lost its runner, or else the oldest queued one.
    """
    alias = door.alias()
    now = clock.now(alias)
    turns = Turn.objects.using(alias).filter(conversation__key=ref.key)
    lost = Q(status=TurnStatus.RUNNING.value, lease_expires_at__lt=now)
    due = Q(not_before=None) | Q(not_before__lte=now)
    queued = Q(status=TurnStatus.QUEUED.value, conversation__running_turn=None)
    pk = (
        turns.filter(lost | (queued & due))
        .order_by("position")
        .values_list("pk", flat=True)
        .first()
    )
    return int(pk) if pk is not None and _offer(pk) else None


def _offer(pk: int) -> int:
    alias = door.alias()
    free = Q(offered_until=None) | Q(offered_until__lt=clock.now(alias))
    mine = Turn.objects.using(alias).filter(free, pk=pk, finished_at=None)
    return mine.update(offered_until=clock.after(alias, conf.get().TASK_PATIENCE))


def begun(pk: int) -> None:
    """The task of a turn is here: from now on the turn's lease is what counts."""
    Turn.objects.using(door.alias()).filter(pk=pk).update(offered_until=None)


def _offer_again(pk: int, seconds: float) -> None:
    alias = door.alias()
    mine = Turn.objects.using(alias).filter(pk=pk, finished_at=None)
    mine.update(offered_until=clock.after(alias, seconds))


def _in_pool(work: Callable[[], R]) -> R:
    store = get_store(door.alias())
    return store.submit(lambda: persist(store, work)).result()


_lock = threading.Lock()
_pending: set[str] = set()
_threads: ThreadPoolExecutor | None = None


def _get_threads() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(_THREADS, "django-streams-offer")
    return _threads


def _forget() -> None:
    # The threads of the parent do not exist in the child, its lock may be held.
    global _lock, _pending, _threads
    _lock = threading.Lock()
    _pending = set()
    _threads = None


os.register_at_fork(after_in_child=_forget)
