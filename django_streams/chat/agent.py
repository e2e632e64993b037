"""What a user of the app subclasses, without the socket: options and hooks."""

from __future__ import annotations

from typing import Any, ClassVar

from ..turns.records import ConversationRef, UIMessage
from ..turns.run import TurnResult
from ..turns.turn import Turn
from .naming import kebab

_MAX_NAME = 128
"""Characters of an agent's name in the database."""


class Agent:
    """The class attributes are the settings; the methods are hooks.

    Hooks may be ``def`` or ``async def``; a plain one runs in a thread and may
    use the ORM. Those of a turn run on an instance made for that turn.
    """

    agent_name: ClassVar[str] = ""
    """The name in the address; by default the class's name in kebab case."""
    title: ClassVar[str] = ""
    """What the page calls the agent; by default made of its name."""
    resume: ClassVar[bool] = True
    """Whether a client that comes back gets the reply that is being written."""
    allow_anonymous: ClassVar[bool] = False
    """Whether a visitor without a login may talk to the agent. What they say
    belongs to their session."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Not inherited: two classes under one name would share conversations.
        if "agent_name" not in cls.__dict__:
            cls.agent_name = kebab(cls.__name__)
        if not 0 < len(cls.agent_name) <= _MAX_NAME or "/" in cls.agent_name:
            raise ValueError(
                f"agent_name {cls.agent_name!r} of {cls.__qualname__} must be 1 to "
                f"{_MAX_NAME} characters without a slash"
            )
        if "title" not in cls.__dict__:
            cls.title = cls.agent_name.replace("-", " ").capitalize()

    def on_chat_message(self, turn: Turn) -> Any:
        """Answer *turn*: an async generator, or a function that returns a
        string, an (async) iterable of strings and chunks, or None."""
        raise NotImplementedError(
            f"{type(self).__name__} needs `async def on_chat_message(self, turn)`"
        )

    def on_chat_response(self, result: TurnResult) -> Any:
        """Called once after each turn that began a reply, however it ended."""

    def sanitize_message(self, message: UIMessage) -> UIMessage:
        """The message to store instead of *message*, a finished reply."""
        return message

    def conversation_owner(self, user: Any, name: str) -> str | None:
        """The owner key of the conversation that *user* calls *name*.

        None, the default, is the user's own, so ``room1`` of two users are two
        conversations. ``""`` is one room for all whom :meth:`authorize` admits.
        """
        return None

    def authorize(self, user: Any, conversation: ConversationRef) -> bool | None:
        """Whether *user* may enter; None, the default, asks the access policy
        (which grants the owner's own) and admits to a room that nobody owns."""
        return None
