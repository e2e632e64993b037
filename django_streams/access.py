"""Who may read, write and control a stream or conversation: the one seam.

Streams and conversations carry an ``owner_key``: ``u:<user pk>``, or
``a:<random id kept in the session>`` for a visitor who is not logged in (the
session's own key changes at login). The policy named by
``DJANGO_STREAMS["ACCESS_POLICY"]`` answers for a subject and such a key; what
it does not grant is denied, and every edge answers a denial like an unknown id.

``sse_response`` and ``Streams`` ask nobody: they are building blocks whose
caller has decided.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, Self, TypeAlias, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import InterfaceError, OperationalError, connections
from django.http import HttpRequest
from django.utils.module_loading import import_string

from . import conf, ids
from .store.pool import get_pool

P = ParamSpec("P")
R = TypeVar("R")

SESSION_NAME = "django_streams_owner"
"""Where a session keeps the random id of its visitor."""

Action: TypeAlias = Literal["read", "write", "control"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Who asks: a user, a session, both or neither. Reading it may query."""

    user: Any = None
    session: Any = None

    @classmethod
    def of(cls, source: Source) -> Self:
        """The subject of a request, an ASGI scope or a subject itself."""
        if isinstance(source, cls):
            return source
        if isinstance(source, Mapping):
            return cls(source.get("user"), source.get("session"))
        return cls(getattr(source, "user", None), getattr(source, "session", None))

    def owner_keys(self) -> frozenset[str]:
        """The owner keys that this subject holds.

        A user also holds the key of the visitor that the session was before
        the login, until what it owns has moved to the user. A logout ends the
        session and with it that key.
        """
        held = (user_key(self.user), anonymous_key(self.session))
        return frozenset(key for key in held if key)

    def fresh(self) -> Subject:
        """The same subject as the database knows it now, not as it was cached.

        A deactivated or deleted user, a logout elsewhere and a changed password
        are seen. A user who came without a session (a token, a proxy's header)
        is looked up again; what brought the user is not asked again.
        """
        session = self.session
        if session is not None and session.session_key:
            session = session.__class__(session.session_key)
        return Subject(_fresh_user(self.user, self.session, session), session)


Source: TypeAlias = HttpRequest | Mapping[str, Any] | Subject


def _fresh_user(user: Any, before: Any, session: Any) -> Any:
    if user is None or not user.is_authenticated:
        return None
    from django.contrib.auth import SESSION_KEY, get_user

    if before is not None and before.get(SESSION_KEY) == str(user.pk):
        request = HttpRequest()
        request.session = session
        return get_user(request)
    meta = getattr(user, "_meta", None)
    if meta is None:
        return user
    manager = meta.model._base_manager.using(user._state.db)
    found = manager.filter(pk=user.pk).first()
    return found if found is not None and found.is_active else None


def user_key(user: Any) -> str | None:
    """``u:<pk>`` of an authenticated user, else None."""
    if user is None or not user.is_authenticated:
        return None
    return f"u:{user.pk}"


def anonymous_key(session: Any, *, create: bool = False) -> str | None:
    """``a:<id>`` of the visitor whose session this is, None if it has no id.

    With *create* a session without one gets one. The session middleware saves
    it with the response; elsewhere (a WebSocket) call ``session.save()``, where
    a session that had no cookie cannot be given one.
    """
    if session is None:
        return None
    visitor = session.get(SESSION_NAME)
    if not isinstance(visitor, str) or not visitor:
        if not create:
            return None
        visitor = session[SESSION_NAME] = ids.new_id()
    return f"a:{visitor}"


def owner_key(source: Source, *, create: bool = False) -> str | None:
    """The key under which *source* opens streams: the user's, or the visitor's.

    None for a visitor without an id, unless *create* makes one. Blocks; on an
    event loop await :func:`aowner_key`.
    """
    subject = Subject.of(source)
    return user_key(subject.user) or anonymous_key(subject.session, create=create)


async def aowner_key(source: Source, *, create: bool = False) -> str | None:
    """Async twin of :func:`owner_key`. Cancelled: an id may have been made."""
    return await off_loop(owner_key, source, create=create)


class AccessPolicy:
    """Denies everything. Subclass, and name the class in ``ACCESS_POLICY``.

    One instance serves all threads of the process, so keep no state. Methods
    are synchronous and run off the event loop: they may query. *owner_key* is
    ``""`` for what belongs to nobody and for what does not exist; the two must
    cost the same, or time would tell them apart.
    """

    def can_read(self, subject: Subject, owner_key: str) -> bool:
        """Replay and follow, see messages and state."""
        return False

    def can_write(self, subject: Subject, owner_key: str) -> bool:
        """Append, submit a turn, answer a tool call, send to a host."""
        return False

    def can_control(self, subject: Subject, owner_key: str) -> bool:
        """Cancel, clear, rename, delete."""
        return False


class OwnerPolicy(AccessPolicy):
    """The default: everything for who holds the owner's key, else nothing."""

    def owns(self, subject: Subject, owner_key: str) -> bool:
        # The keys first: reading the session leaves a trace in the response
        # (Vary) and takes time, also for what does not exist.
        keys = Subject.of(subject).owner_keys()
        return owner_key != "" and owner_key in keys

    def can_read(self, subject: Subject, owner_key: str) -> bool:
        return self.owns(subject, owner_key)

    def can_write(self, subject: Subject, owner_key: str) -> bool:
        return self.owns(subject, owner_key)

    def can_control(self, subject: Subject, owner_key: str) -> bool:
        return self.owns(subject, owner_key)


def get_policy() -> AccessPolicy:
    """The policy in force; ``ImproperlyConfigured`` when it cannot be made."""
    return _load(conf.get().ACCESS_POLICY)


@functools.lru_cache(maxsize=8)
def _load(path: str) -> AccessPolicy:
    setting = f'{conf.NAME}["ACCESS_POLICY"]'
    wanted = "name a subclass of django_streams.access.AccessPolicy by its dotted path"
    if not isinstance(path, str):
        raise ImproperlyConfigured(f"{setting} is {path!r}; {wanted}")
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{setting} is {path!r}, which cannot be imported ({error}); {wanted}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, AccessPolicy)):
        raise ImproperlyConfigured(
            f"{setting} is {path!r}, which is no such class; {wanted}"
        )
    return found()


def allowed(action: Action, source: Source, owner_key: str | None) -> bool:
    """Whether the policy grants *action*; None and ``""`` are nobody's.

    Blocks; on an event loop await :func:`aallowed`.
    """
    subject = Subject.of(source)
    policy = get_policy()
    ask = {
        "read": policy.can_read,
        "write": policy.can_write,
        "control": policy.can_control,
    }[action]
    try:
        return bool(ask(subject, owner_key or ""))
    except PermissionDenied:
        return False


async def aallowed(action: Action, source: Source, owner_key: str | None) -> bool:
    """Async twin of :func:`allowed`. Cancelled: the answer is dropped."""
    return await off_loop(allowed, action, source, owner_key)


async def aallowed_still(action: Action, source: Source, owner_key: str | None) -> bool:
    """As :func:`aallowed`, for who was let in a while ago: reads all afresh."""
    return await off_loop(
        lambda: allowed(action, Subject.of(source).fresh(), owner_key)
    )


async def off_loop(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run *work*, which may query, on a thread of the pool.

    Not on the request's own thread: its connection would stay open as long as
    the response, one for every viewer. Cancelled: *work* still completes.
    """
    call = functools.partial(work, *args, **kwargs)
    if conf.get().SINGLE_CONNECTION:
        return await sync_to_async(call, thread_sensitive=True)()
    return await asyncio.wrap_future(get_pool().submit(lambda: _with_kept(call)))


def _with_kept(call: Callable[[], R]) -> R:
    # A kept connection may have died since its last use (a restart, a timeout
    # of the server); only then is a second try worth it. Asking is a read.
    try:
        return call()
    except (OperationalError, InterfaceError):
        for connection in connections.all(initialized_only=True):
            connection.close()
        return call()
