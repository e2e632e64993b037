"""Who may enter a conversation, asked the same way by sockets and views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied

from .. import access, ids
from ..access import Subject
from ..turns import hooks
from ..turns.records import ConversationRef
from . import attributes

if TYPE_CHECKING:
    from .agent import Agent

NO_LOGIN = 4401
FORBIDDEN = 4403
"""Close codes after which a client stops trying; views answer 401 and 403."""


class Refused(Exception):
    """The visitor may not enter; the same for unknown and forbidden."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Admission:
    ref: ConversationRef
    user: Any
    user_key: str
    may_write: bool
    may_control: bool


async def admit(
    agent: Agent, subject: Subject, name: str, *, create: bool = False
) -> Admission:
    """Let *subject* into the agent's conversation *name*, or raise `Refused`.

    With *create* a visitor without a login gets an id in the session, where the
    agent allows anonymous use; a socket cannot, for it sets no cookie. Makes no
    row: a refusal says nothing about what exists.
    """
    try:
        ids.check_id(name, "conversation name")
    except ValueError:
        raise Refused(FORBIDDEN) from None
    user = subject.user
    logged_in = user is not None and user.is_authenticated
    if not logged_in and not agent.allow_anonymous:
        raise Refused(NO_LOGIN)
    visitor = await access.aowner_key(subject, create=create)
    try:
        found = await hooks.call(agent.conversation_owner, user, name)
        owner = attributes.check_owner(type(agent), found)
        if owner is None:
            owner = visitor
        if owner is None:
            raise Refused(NO_LOGIN)
        ref = ConversationRef(agent.agent_name, name, owner)
        answer = await hooks.call(agent.authorize, user, ref)
    except PermissionDenied:
        raise Refused(FORBIDDEN) from None
    if answer is None and owner:
        return await _by_policy(ref, subject, user, visitor)
    if answer is False:
        raise Refused(FORBIDDEN)
    return Admission(ref, user, visitor or "", may_write=True, may_control=True)


async def _by_policy(
    ref: ConversationRef, subject: Subject, user: Any, visitor: str | None
) -> Admission:
    def ask() -> list[bool]:
        return [
            access.allowed("read", subject, ref.owner),
            access.allowed("write", subject, ref.owner),
            access.allowed("control", subject, ref.owner),
        ]

    read, write, control = await access.off_loop(ask)
    if not read:
        raise Refused(FORBIDDEN)
    return Admission(ref, user, visitor or "", write, control)
