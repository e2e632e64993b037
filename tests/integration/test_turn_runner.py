"""Who runs the queued turns of a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.turns import agents
from django_streams.turns.records import ConversationRef
from django_streams.turns.runner import Runner

from .chatting import make_agent, quiet

pytestmark = pytest.mark.usefixtures("chat")


def agent_ref() -> ConversationRef:
    async def on_chat_message(self: Any, turn: Any) -> None:
        return None

    agent = make_agent(on_chat_message)
    agents.register(agent.agent_name, agent)
    return ConversationRef(agent.agent_name, "room", "a:v1")


async def test_a_kick_just_before_the_end_of_a_drain_is_not_lost() -> None:
    looks: list[str] = []

    class Late(Runner):
        async def _drain(self, ref: ConversationRef) -> None:
            await super()._drain(ref)
            looks.append(ref.key)
            if len(looks) == 1:
                self.kick(ref)

    ref = agent_ref()
    Late().kick(ref)
    await quiet()
    assert len(looks) == 2


async def test_an_agent_that_this_process_does_not_have_is_left_to_others() -> None:
    here = Runner()
    ref = ConversationRef("unknown-agent", "room", "a:v1")
    here.kick(ref)
    assert not here.runs(ref)


def test_two_agents_of_one_name_are_refused() -> None:
    ref = agent_ref()

    async def other(self: Any, turn: Any) -> None:
        return None

    with pytest.raises(ValueError, match="two agents are called"):
        agents.register(ref.agent, make_agent(other, agent_name=ref.agent))
