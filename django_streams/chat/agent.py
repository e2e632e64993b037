"""What a user of the app subclasses, without the socket: options and hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..turns.agents import OnInterrupted, TurnResult
from ..turns.policy import Concurrency, Unwatched
from ..turns.records import ConversationRef, UIMessage
from ..turns.turn import Turn
from . import attributes
from .naming import kebab

if TYPE_CHECKING:
    from .handle import ConversationHandle


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
    on_interrupted: ClassVar[OnInterrupted] = "continue"
    """What becomes of a turn whose process died or lost its lease.
    ``"continue"``: the handler runs again with ``turn.partial`` and goes on
    where the log ends. ``"restart"``: what it said is dropped, and it runs as
    if for the first time. ``"fail"``: the turn ends as an error, what it said
    is kept."""
    max_recovery_attempts: ClassVar[int] = 3
    """How often a turn is continued or restarted before it fails."""
    stall_timeout: ClassVar[float | None] = None
    """Seconds in which a handler must yield or call ``turn.heartbeat()``; else
    the turn ends as an error and what it said is kept. None: no limit."""
    message_concurrency: ClassVar[Concurrency] = "queue"
    """What a message does that comes while another turn runs or waits: wait in
    line; replace what waits (``"latest"``), keeping all messages; the same with
    their messages made one (``"merge"``); be refused (``"drop"``); or
    ``Debounce(seconds)``, which replaces what waits and gives pause."""
    max_persisted_messages: ClassVar[int | None] = None
    """The oldest messages beyond so many are deleted; None keeps all."""
    when_unwatched: ClassVar[Unwatched] = "continue"
    """Whether a reply goes on when everybody has left, or is stopped after a
    time: ``CancelAfter(seconds)``."""

    tools: ClassVar[Sequence[Callable[..., Any]]] = ()
    """Functions that a model may call, plain or made by ``@tool``. What it calls
    is run as part of the turn; see ``docs/reference/tools.md``."""
    max_tool_steps: ClassVar[int] = 10
    """How often a model is asked in one turn, by adapters that ask it again with
    the results of the tools it called."""

    runner: ClassVar[str | None] = None
    """Who runs the turns: ``"inprocess"`` (the server that took the request),
    ``"worker"`` (``manage.py run_turns``), ``"django.tasks"`` or ``"celery"``;
    None: as the setting ``RUNNER`` says."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Not inherited: two classes under one name would share conversations.
        if "agent_name" not in cls.__dict__:
            cls.agent_name = kebab(cls.__name__)
        if "title" not in cls.__dict__:
            cls.title = str(cls.agent_name).replace("-", " ").capitalize()
        attributes.check(cls)

    def on_chat_message(self, turn: Turn) -> Any:
        """Answer *turn*: an async generator, or a function that returns a
        string, an (async) iterable of strings and chunks, or None."""
        raise NotImplementedError(
            f"{type(self).__name__} needs `async def on_chat_message(self, turn)`"
        )

    def on_chat_response(self, result: TurnResult) -> Any:
        """Called once for each turn that began a reply, however it ended.

        By the process that ran the turn or, if that one died, by another: the
        database decides who takes the call. Who took it and dies in the middle
        of the hook is not replaced. What the hook raises is logged, and changes
        nothing about the turn.
        """

    def on_recover(self, turn: Turn) -> Any:
        """Called when an interrupted turn is continued or restarted, before
        ``on_chat_message`` gets the same *turn*. What it raises is logged."""

    def sanitize_message(self, message: UIMessage) -> UIMessage:
        """The message to store instead of *message*: a finished reply, or one that
        a client sent. It may be called again for a message that is stored.

        Where it raises, nothing is stored and the client is told so.
        """
        return message

    def get_initial_state(self) -> Any:
        """The state that clients see until one was stored; None: they see none."""
        return None

    def validate_state(self, state: Any, user: Any) -> Any:
        """Called before the *state* that a client sends is stored: raise to
        refuse it. The client is told that it was rejected."""

    def on_clear(self, conversation: ConversationRef) -> Any:
        """Called after *conversation* was cleared. What it raises is logged."""

    @classmethod
    def conversation(cls, name: str, *, owner: Any = None) -> ConversationHandle:
        """The conversation *name* for code; does no I/O.

        *owner*: a user, or an owner key (that of a visitor, ``""`` for a room
        that nobody owns). Raises ``ValueError`` for a name that cannot be.
        """
        from .handle import ConversationHandle  # it needs the apps to be loaded

        return ConversationHandle(cls, name, owner)

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
