"""What the doors of a conversation's handle do, each once and synchronously."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import access, codec, conf, ids
from ..turns import clearing, ends, hooks, orders, queue, status, transcript
from ..turns import state as state_of
from ..turns.orders import Order
from ..turns.policy import SAVE
from ..turns.records import ConversationRef, UIMessage
from . import attributes, protocol
from .given import MakeMessages, Messages, listed
from .state import TurnState

if TYPE_CHECKING:
    from .agent import Agent

logger = logging.getLogger("django_streams.chat")


class Work:
    """On one conversation, for its owner. May query, so never on an event loop."""

    def __init__(self, agent: type[Agent], name: str, owner: Any) -> None:
        self.agent = agent
        self._name = name
        self._owner = owner
        self.ref: ConversationRef | None = None
        """None until it was needed: see :meth:`resolved`."""

    def __repr__(self) -> str:
        return f"<conversation {self._name!r} of {self.agent.agent_name}>"

    def messages(self) -> list[UIMessage]:
        return [codec.decode(text) for text in transcript.texts(self.resolved())]

    def persist(self, given: list[UIMessage]) -> None:
        kept, limit = self._sanitised(given), self.agent.max_persisted_messages
        queue.sync_messages(self.resolved(), kept, "", limit, overwrite=True)

    def _sanitised(self, given: list[UIMessage]) -> list[UIMessage]:
        kept: list[UIMessage] = hooks.call_sync(hooks.sanitised, self.agent(), given)
        return kept

    def submit(
        self,
        given: list[UIMessage],
        request_id: str,
        body: dict[str, Any] | None,
        client_tools: list[Any] | None,
    ) -> TurnState:
        submission = queue.Submission(
            request_id=request_id,
            messages=self._sanitised(given),
            origin_ids=protocol.origin_ids(given),
            body=body,
            client_tools=client_tools,
            user_key=self._user_key(),
            concurrency=self.agent.message_concurrency,
            keep_messages=self.agent.max_persisted_messages,
            prune=False,
        )
        return TurnState.of(queue.submit(self.resolved(), submission).turn)

    def place(self, order: Order) -> TurnState:
        if order.messages is not None:
            order = replace(order, messages=self._sanitised([*order.messages]))
        return TurnState.of(orders.place(self.resolved(), order))

    def come(self, order: Order) -> bool | None:
        """True when its time has come, False when it never will, None to wait."""
        come = orders.come(self.resolved(), order.request_id, order.held or 0.0)
        return False if come is None else (come or None)

    def bring(self, order: Order, messages: Messages) -> None:
        given = self._sanitised(listed(messages))
        origins = protocol.origin_ids(given)
        orders.bring(self.resolved(), order.request_id, given, origins)

    def give_up(self, order: Order) -> None:
        orders.give_up(self.resolved(), order.request_id)

    def turn(self, request_id: str) -> TurnState | None:
        turn = status.find_turn(self.resolved(), request_id)
        return None if turn is None else TurnState.of(turn)

    def ended(self, request_id: str) -> TurnState | None:
        state = self.turn(request_id)
        return state if state is None or state.over else None

    def stop(self, request_id: str | None) -> TurnState | None:
        ref = self.resolved()
        if request_id is None:
            found = ends.stop(ref)
            return None if found is None else TurnState.of(found)
        ends.cancel(ref, request_id)
        return self.turn(request_id)

    def clear(self) -> None:
        ref = self.resolved()
        clearing.clear(ref)
        try:
            hooks.call_sync(self.agent().on_clear, ref)
        except Exception:
            logger.exception("on_clear of %s failed", ref.agent)

    def get_state(self) -> Any:
        stored = state_of.load(self.resolved())
        if stored is None:
            initial = hooks.call_sync(self.agent().get_initial_state)
            stored = state_of.encode(initial)
        return codec.decode(stored)

    def set_state(self, value: Any) -> None:
        # What cannot be kept is refused before the hook sees it, as a frame is.
        state_of.encode(value)
        user = None if isinstance(self._owner, str) else self._owner
        hooks.call_sync(self.agent().validate_state, value, user)
        state_of.store(self.resolved(), value)

    def rest(self) -> status.Rest | None:
        return status.at_rest(self.resolved())

    def saving(
        self,
        messages: Messages | MakeMessages,
        request_id: str | None,
        body: dict[str, Any] | None,
    ) -> Order:
        if callable(messages):
            return self.order(SAVE, request_id, body, held=conf.get().TURN_LEASE)
        return self.order(SAVE, request_id, body, listed(messages))

    def order(
        self,
        trigger: str,
        request_id: str | None,
        body: dict[str, Any] | None,
        messages: list[UIMessage] | None = None,
        held: float | None = None,
    ) -> Order:
        return Order(
            request_id=checked(request_id),
            trigger=trigger,
            messages=messages,
            origin_ids=protocol.origin_ids(messages or ()),
            body=body,
            user_key=self._user_key(),
            held=held,
        )

    def _user_key(self) -> str:
        if isinstance(self._owner, str):
            return self._owner
        return access.user_key(self._owner) or ""

    def resolved(self) -> ConversationRef:
        """Which conversation; the hook may query, so never in the constructor."""
        if self.ref is None:
            owner = self._owner
            if not isinstance(owner, str):
                hook = self.agent().conversation_owner
                found = hooks.call_sync(hook, self._owner, self._name)
                owner = attributes.check_owner(self.agent, found)
                owner = self._user_key() or None if owner is None else owner
            if owner is None:
                raise ValueError(
                    f"the conversation {self._name!r} of {self._owner!r} is nobody's: "
                    "pass owner=user, or the owner key of a visitor "
                    "(django_streams.access.owner_key), or let conversation_owner() "
                    "name one"
                )
            self.ref = ConversationRef(self.agent.agent_name, self._name, owner)
        return self.ref


def checked(request_id: str | None) -> str:
    """A request id that can be; a new one for None."""
    if request_id is None:
        return ids.new_id()
    ids.check_id(request_id, "request id")
    return request_id
