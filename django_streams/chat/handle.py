"""A conversation as code sees it: a view, a task, a command, another process.

``SupportAgent.conversation("room1", owner=user)`` makes a handle and does no
I/O. Every door is there twice, ``foo`` and ``afoo``; what they do is decided in
the database, so it makes no difference which process holds the handle, runs the
turn or serves the people who watch. A handle asks nobody for permission: its
caller has decided.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import AsyncToSync

from .. import ids
from ..pairs import async_door, refuse_running_loop, sync_door
from ..store import get_store
from ..turns import (
    agents,
    door,
    holding,
    hooks,
    status,
    waiting,
)
from ..turns.orders import Order
from ..turns.policy import CONTINUE
from ..turns.records import UIMessage
from ..turns.runner import get_runner
from .given import MakeMessages, Messages, listed
from .state import TurnState
from .work import Work, checked

if TYPE_CHECKING:
    from .agent import Agent

logger = logging.getLogger("django_streams.chat")

R = TypeVar("R")


class ConversationHandle:
    """One conversation of one agent; cheap to make, safe to share.

    The sync doors block and refuse to be called on a running event loop
    (:class:`StreamUsageError`); inside a transaction they are part of it, except
    those that wait for a turn, which raise there. Messages that cannot be kept
    raise ``ValueError`` or :class:`StreamSerializationError`, or ``PublicError``
    where ``sanitize_message`` raised; a database that
    stays away :class:`StreamUnavailableError`.
    """

    def __init__(self, agent: type[Agent], name: str, owner: Any) -> None:
        ids.check_id(name, "conversation name")
        self._work = Work(agent, name, owner)

    def __repr__(self) -> str:
        return repr(self._work)

    # Messages

    @sync_door
    def messages(self) -> list[UIMessage]:
        """The stored messages, oldest first; empty before the first one."""
        return self._call(self._work.messages)

    amessages = async_door(messages, cancelled="nothing; it only reads.")

    @sync_door
    def persist_messages(self, messages: Messages) -> None:
        """Store messages without running a turn, and show them to all.

        Known ids are replaced in their places, new ones go to the end; nothing
        is deleted, except beyond ``max_persisted_messages``.
        """
        given = listed(messages)
        self._call(self._work.persist, given)

    apersist_messages = async_door(
        persist_messages, cancelled="they may be stored all the same.", waits=True
    )

    # State

    @sync_door
    def get_state(self) -> Any:
        """The state that the clients share, as one sees it that comes now: what was
        stored last, or else what ``get_initial_state`` returns."""
        return self._call(self._work.get_state)

    aget_state = async_door(get_state, cancelled="nothing; it only reads.")

    @sync_door
    def set_state(self, state: Any) -> None:
        """Replace the state by any JSON value, and show it to all clients.

        ``validate_state`` is asked as it is for a client, with the owner as the
        user, or None for an owner key; what it raises is raised here. So is
        :class:`StreamSerializationError` for what JSON cannot hold. Then nothing
        is changed.
        """
        self._call(self._work.set_state, state)

    aset_state = async_door(
        set_state, cancelled="it may be stored all the same.", waits=True
    )

    # Turns

    def submit(
        self,
        messages: Messages,
        *,
        request_id: str | None = None,
        body: dict[str, Any] | None = None,
        client_tools: list[Any] | None = None,
    ) -> TurnState:
        """Say something as a client does, and return at once.

        What it does while another turn runs is ``message_concurrency``'s to say;
        the state tells whether it waits or was skipped. A *request_id* that is
        known does nothing again and tells how that turn stands. *body* and
        *client_tools* become ``turn.body`` and ``turn.client_tools``.

        The turn is run by a server process of the agent or by ``run_turns``.
        """
        refuse_running_loop("submit")
        return self._call(
            self._work.submit, listed(messages), checked(request_id), body, client_tools
        )

    async def asubmit(
        self,
        messages: Messages,
        *,
        request_id: str | None = None,
        body: dict[str, Any] | None = None,
        client_tools: list[Any] | None = None,
    ) -> TurnState:
        """Async twin of :meth:`submit`: the running loop may run the turn itself.

        Cancelled: it may be queued all the same; ask again with the same id.
        """
        state = await door.run(
            self._work.submit, listed(messages), checked(request_id), body, client_tools
        )
        self._kick()
        return state

    def save_messages(
        self,
        messages: Messages | MakeMessages,
        *,
        request_id: str | None = None,
        body: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> TurnState:
        """Store messages and run a turn that answers them; waits for its end.

        It waits in line, whatever the mode, and the messages are stored when its
        time has come. A function is called then, with the transcript, and
        returns the messages; what it raises ends the turn as skipped and is
        raised here. ``turn.body`` is *body*, or that of the last client.

        ``"skipped"``: a clear or the function came first, nothing was stored.
        ``TimeoutError`` after *timeout* seconds: what has its messages goes on.
        """
        refuse_running_loop("save_messages")
        placed = self._work.saving(messages, request_id, body)
        state = self._call(self._work.place, placed)
        begun = time.monotonic()
        if callable(messages) and state.status == "queued":
            self._keep(messages, placed, timeout)
        left = _left(timeout, begun)
        return self._wait(partial(self._work.ended, placed.request_id), left)

    async def asave_messages(
        self,
        messages: Messages | MakeMessages,
        *,
        request_id: str | None = None,
        body: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> TurnState:
        """Async twin of :meth:`save_messages`: the running loop may run the turn.

        Cancelled: a turn that has its messages goes on, another is skipped.
        """
        placed = self._work.saving(messages, request_id, body)
        state = await door.run(self._work.place, placed)
        self._kick()
        begun = time.monotonic()
        if callable(messages) and state.status == "queued":
            await self._akeep(messages, placed, timeout)
            self._kick()
        left = _left(timeout, begun)
        return await self._await(partial(self._work.ended, placed.request_id), left)

    def continue_last_turn(
        self,
        body: dict[str, Any] | None = None,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> TurnState:
        """Run a turn that adds to the last message of the assistant; waits for
        its end.

        It waits in line. ``"skipped"`` where there is no such message by then.
        ``TimeoutError`` after *timeout* seconds; the turn goes on.
        """
        refuse_running_loop("continue_last_turn")
        placed = self._work.order(CONTINUE, request_id, body)
        self._call(self._work.place, placed)
        return self._wait(partial(self._work.ended, placed.request_id), timeout)

    async def acontinue_last_turn(
        self,
        body: dict[str, Any] | None = None,
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> TurnState:
        """Async twin of :meth:`continue_last_turn`: the running loop may run it.

        Cancelled: the turn goes on.
        """
        placed = self._work.order(CONTINUE, request_id, body)
        await door.run(self._work.place, placed)
        self._kick()
        return await self._await(partial(self._work.ended, placed.request_id), timeout)

    @sync_door
    def turn(self, request_id: str) -> TurnState | None:
        """How the turn of a request stands; None if there is none."""
        return self._call(self._work.turn, request_id)

    aturn = async_door(turn, cancelled="nothing; it only reads.")

    # Stop, clear, wait

    @sync_door
    def stop(self, request_id: str | None = None) -> TurnState | None:
        """Stop what runs and what waits, or the one turn of *request_id*.

        Returns at once; the handler is cancelled within a second wherever it
        runs, and what it said is kept. What waited has ended when this returns.
        The state is that of the named turn, or of the running one or else the
        newest: stopping what is over changes nothing and tells how it ended.
        None where there is no such turn.
        """
        return self._call(self._work.stop, request_id)

    astop = async_door(stop, cancelled="it may be stopped all the same.", waits=True)

    @sync_door
    def clear(self) -> None:
        """Delete the messages and the logs of replies.

        What runs is stopped, and its reply is not kept; what waits is skipped.
        All who watch are told, and ``on_clear`` is called. Once is as good as
        twice.
        """
        self._call(self._work.clear)

    aclear = async_door(clear, cancelled="it may be cleared; clear again.", waits=True)

    def wait_until_idle(self, timeout: float | None = None) -> TurnState | None:
        """Wait until no turn runs or waits; the newest turn, None without any.

        ``TimeoutError`` after *timeout* seconds.
        """
        refuse_running_loop("wait_until_idle")
        return _newest(self._wait(self._work.rest, timeout))

    async def await_until_idle(self, timeout: float | None = None) -> TurnState | None:
        """Async twin of :meth:`wait_until_idle`. Cancelled: nothing is left."""
        return _newest(await self._await(self._work.rest, timeout))

    # A turn that is held until its function has made the messages

    def _keep(self, make: MakeMessages, order: Order, timeout: float | None) -> None:
        lease = order.held or 0.0
        try:
            come = partial(self._work.come, order)
            if self._wait(come, timeout, every=lease / holding.RENEWALS):
                with holding.held(self._work.resolved(), order.request_id, lease):
                    made = hooks.call_sync(make, self._call(self._work.messages))
                self._call(self._work.bring, order, made)
        except BaseException:
            self._call(self._work.give_up, order)
            raise

    async def _akeep(
        self, make: MakeMessages, order: Order, timeout: float | None
    ) -> None:
        lease = order.held or 0.0
        try:
            come = partial(self._work.come, order)
            if await self._await(come, timeout, every=lease / holding.RENEWALS):
                ref = self._work.resolved()
                async with holding.aheld(ref, order.request_id, lease):
                    current = await door.run(self._work.messages)
                    made = await hooks.call(make, current)
                await door.run(self._work.bring, order, made)
        except BaseException:
            await door.run(self._work.give_up, order)
            raise

    # Doors

    def _run(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> Awaitable[R]:
        return get_store(door.alias()).run(work, *args, **kwargs)

    def _run_waiting(
        self, work: Callable[..., R], *args: Any, **kwargs: Any
    ) -> Awaitable[R]:
        return get_store(door.alias()).run_waiting(work, *args, **kwargs)

    def _call(self, work: Callable[..., R], *args: Any) -> R:
        return door.call(work, *args)

    def _wait(
        self,
        look: Callable[[], R | None],
        timeout: float | None,
        *,
        every: float | None = None,
    ) -> R:
        return waiting.wait(self._work.resolved(), look, timeout, every=every)

    async def _await(
        self,
        look: Callable[[], R | None],
        timeout: float | None,
        *,
        every: float | None = None,
    ) -> R:
        ref = await door.run(self._work.resolved)
        return await waiting.await_(ref, look, timeout, every=every)

    def _kick(self) -> None:
        """Let this loop run the turn, unless the loop ends with the call."""
        ref, agent = self._work.ref, self._work.agent
        if getattr(AsyncToSync.executors, "current", None) is None and ref:
            agents.register(agent.agent_name, agent)
            get_runner().kick(ref)


def _newest(rest: status.Rest) -> TurnState | None:
    return None if rest.newest is None else TurnState.of(rest.newest)


def _left(timeout: float | None, begun: float) -> float | None:
    return None if timeout is None else max(0.0, begun + timeout - time.monotonic())
