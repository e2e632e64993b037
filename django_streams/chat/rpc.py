"""Methods of an agent that its clients may call: ``agent.call("name", [...])``."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .. import codec
from ..exceptions import PublicError
from ..failures import public_reason
from ..turns import door, hooks, source, state
from ..turns.conversations import NO_LIMIT
from ..turns.records import ConversationRef
from . import protocol

if TYPE_CHECKING:
    from .agent import Agent

logger = logging.getLogger("django_streams.chat")

AT_ONCE: Final = 32
"""Calls of one connection that may run at a time."""

_MARK: Final = "_django_streams_callable"

F = TypeVar("F", bound=Callable[..., Any])


def callable(method: F) -> F:
    """Let clients call this method of an agent.

    It may be ``def`` (runs in a thread) or ``async def``, and gets what the
    client sends, in order; a parameter named ``call`` gets the :class:`Call`
    instead. It returns what JSON can hold. A generator, plain or async, streams:
    each item goes out as it is yielded.

    A :class:`PublicError` that it raises is told to the client, anything else as
    an internal error. When the connection closes, a running call is cancelled.
    """
    setattr(method, _MARK, True)
    return method


@dataclass(frozen=True, slots=True)
class Call:
    """Who calls, and where."""

    conversation: ConversationRef
    user: Any

    async def get_state(self) -> Any:
        """The conversation's state; None without one."""
        text = await door.run(state.load, self.conversation)
        return None if text is None else codec.decode(text)

    async def set_state(self, value: Any) -> None:
        """Replace the state and show it to all clients.

        Raises :class:`StreamSerializationError` for what JSON cannot hold.
        Cancelled: it may be stored all the same.
        """
        await door.run(state.store, self.conversation, value)


class Calls:
    """The running calls of one connection."""

    def __init__(
        self, make: Callable[[], Agent], send: Callable[[str], Awaitable[None]]
    ) -> None:
        self._make = make
        self._send = send
        self._running: set[asyncio.Task[None]] = set()

    async def start(self, frame: protocol.Rpc, call: Call) -> None:
        """Run a call beside everything else; returns at once."""
        if len(self._running) >= AT_ONCE:
            await self._fail(frame.call_id, f"More than {AT_ONCE} calls at a time")
            return
        task = asyncio.create_task(self._answer(frame, call))
        self._running.add(task)
        task.add_done_callback(self._done)

    async def stop(self) -> None:
        """Cancel what runs; returns when nothing of it is left."""
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The socket is gone, and its receiving side ends the connection.
            logger.debug("a call ended: %r", error)

    async def _answer(self, frame: protocol.Rpc, call: Call) -> None:
        try:
            result = await self._call(frame, call)
            text = codec.encode(result, limit=NO_LIMIT, what="result")
        except _Unsent as error:
            raise error.cause from None
        except Exception as error:
            await self._fail(frame.call_id, public_reason(error, frame.method))
        else:
            await self._send(protocol.rpc_result(frame.call_id, text))

    async def _call(self, frame: protocol.Rpc, call: Call) -> Any:
        agent = self._make()
        name = frame.method
        method = None if name.startswith("_") else getattr(agent, name, None)
        if not inspect.ismethod(method) and not inspect.isfunction(method):
            raise PublicError(f"Method {name} does not exist")
        if not getattr(method, _MARK, False):
            raise PublicError(f"Method {name} is not callable")
        given = _arguments(method, frame, call)
        if inspect.isasyncgenfunction(method):
            await self._stream(frame.call_id, method(*given.args, **given.kwargs))
            return None
        if inspect.isgeneratorfunction(method):
            items = source.items(method(*given.args, **given.kwargs))
            await self._stream(frame.call_id, items)
            return None
        return await hooks.call(partial(method, *given.args, **given.kwargs))

    async def _stream(self, call_id: str, items: AsyncGenerator[Any, None]) -> None:
        async with aclosing(items):
            async for item in items:
                text = codec.encode(item, limit=NO_LIMIT, what="result")
                try:
                    await self._send(protocol.rpc_result(call_id, text, done=False))
                except Exception as error:
                    raise _Unsent(error) from error

    async def _fail(self, call_id: str, text: str) -> None:
        await self._send(protocol.rpc_error(call_id, text))


class _Unsent(Exception):
    """The socket takes no more frames: nobody to tell of an error."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


def _arguments(
    method: Callable[..., Any], frame: protocol.Rpc, call: Call
) -> inspect.BoundArguments:
    signature = inspect.signature(method)
    own = {"call": call} if "call" in signature.parameters else {}
    try:
        return signature.bind(*frame.args, **own)
    except TypeError as error:
        raise PublicError(f"Method {frame.method}: {error}") from None
