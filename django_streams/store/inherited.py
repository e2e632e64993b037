"""What a fork copies of MariaDB's connections, made harmless.

The child ends all threads but one, and with them the copies of their
connections. The driver says goodbye to the server when a connection ends, over
the socket that parent and child share: the server then drops the connection
that the parent's thread still works with.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

_known: dict[int, weakref.ref[BaseDatabaseWrapper]] = {}
_held: list[Any] = []
"""Keeps the copies alive in the child until their sockets have been replaced."""


def _remember(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor == "mysql":
        number = id(connection)
        _known[number] = weakref.ref(connection, lambda _: _known.pop(number, None))


def _hold() -> None:
    me = threading.get_ident()
    for known in list(_known.values()):
        wrapper = known()
        # The forking thread's own goes on in both, and is the project's to close.
        if wrapper is not None and wrapper._thread_ident != me:  # type: ignore[attr-defined]
            _held.append(wrapper.connection)


def _silence() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for driver in _held:
        # One that is closed, or of a driver without the method, says nothing.
        with suppress(Exception):
            os.dup2(null, driver.fileno())
    os.close(null)
    _held.clear()


connection_created.connect(_remember, dispatch_uid="django_streams.inherited")
os.register_at_fork(before=_hold, after_in_parent=_held.clear, after_in_child=_silence)
