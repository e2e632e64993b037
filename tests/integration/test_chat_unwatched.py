"""A reply that nobody watches goes on, or is stopped, as its agent says."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from django_streams.chat import CancelAfter
from django_streams.models import Presence
from django_streams.turns import clock, door, presence, queue
from django_streams.turns.records import ConversationRef, TurnRecord, TurnStatus

from .chatting import (
    RESPONSE,
    Script,
    Tab,
    message_text,
    stored,
    turn_of,
)
from .test_turn_queue import claim, submit

TTL = 0.9
GRACE = 0.6


@pytest.fixture
def short(chat_alias: str, settings: Settings) -> str:
    """Times that a test can wait for."""
    options = settings.DJANGO_STREAMS | {"TURN_LEASE": 1.0, "PRESENCE_TTL": TTL}
    settings.DJANGO_STREAMS = options
    return chat_alias


async def until_over(agent: Any) -> TurnRecord:
    async with asyncio.timeout(10):
        while not (turn := await turn_of(agent)).status.over:
            await asyncio.sleep(0.02)
    record: TurnRecord = turn
    return record


async def rows() -> list[tuple[str, bool]]:
    """The connections that have a row, and whether they are there."""

    def read() -> list[tuple[str, bool]]:
        found = Presence.objects.using(door.alias()).values_list(
            "connection", "process"
        )
        return [(connection, bool(process)) for connection, process in found]

    return await door.run(read)


async def begun(tab: Tab, script: Script) -> None:
    await tab.ask("x")
    script.say("partial")
    await tab.until(RESPONSE, seq=3)


@pytest.mark.usefixtures("short", "chat")
class TestAnAgentThatAsks:
    async def test_what_all_have_left_is_stopped_after_the_grace_time(self) -> None:
        script = Script()
        agent = script.agent(when_unwatched=CancelAfter(GRACE))
        async with Tab(agent) as tab:
            await begun(tab, script)
            # Longer than everything: it is being watched.
            await asyncio.sleep(TTL + GRACE)
            assert not (await turn_of(agent)).status.over
        left = time.monotonic()
        assert (await until_over(agent)).status is TurnStatus.ABORTED
        took = time.monotonic() - left
        assert took >= GRACE - 0.1, took
        await script.ended.wait()
        texts = [message_text(m) for m in await stored(agent)]
        assert texts == ["x", "partial"]

    async def test_one_viewer_of_two_is_enough(self) -> None:
        script = Script()
        agent = script.agent(when_unwatched=CancelAfter(GRACE))
        async with Tab(agent) as other:
            async with Tab(agent) as tab:
                await begun(tab, script)
            await asyncio.sleep(TTL + GRACE)
            script.end()
            await other.done()
        assert (await turn_of(agent)).status is TurnStatus.COMPLETED

    async def test_who_returns_in_time_finds_the_reply_going_on(self) -> None:
        script = Script()
        agent = script.agent(when_unwatched=CancelAfter(2.0))
        async with Tab(agent) as other, Tab(agent) as tab:
            await begun(tab, script)
            await other.ready()
        await asyncio.sleep(0.5)
        async with Tab(agent) as tab:
            await tab.until("cf_agent_stream_resuming")
            await asyncio.sleep(2.2)
            script.end()
            await tab.ack()
            await tab.done()
        assert (await turn_of(agent)).status is TurnStatus.COMPLETED

    async def test_a_turn_that_code_waits_for_is_watched(self) -> None:
        script = Script()
        agent = script.agent(when_unwatched=CancelAfter(0.1))
        handle = agent.conversation("room", owner="a:v1")
        saving = asyncio.ensure_future(handle.asave_messages("x"))
        await script.begun.wait()
        await asyncio.sleep(1.0)
        script.end()
        assert (await saving).status == "completed"

    async def test_a_turn_that_nobody_ever_watched_has_its_time_too(self) -> None:
        script = Script()
        agent = script.agent(when_unwatched=CancelAfter(GRACE))
        handle = agent.conversation("room", owner="a:v1")
        await handle.asubmit("x", request_id="q1")
        await script.begun.wait()
        assert (await until_over(agent)).status is TurnStatus.ABORTED

    async def test_a_visit_makes_no_row_before_there_is_a_conversation(self) -> None:
        script = Script()
        agent = script.agent(when_unwatched=CancelAfter(GRACE))
        async with Tab(agent) as tab, Tab(agent) as other:
            await tab.ready()
            await other.ready()
            assert await rows() == []
            await begun(tab, script)
            async with asyncio.timeout(5):
                while [here for _, here in await rows()] != [True, True]:
                    await asyncio.sleep(0.02)
            script.end()
            await tab.done()
        # One row remains: since when nobody watches.
        assert [here for _, here in await rows()] == [False]


@pytest.mark.usefixtures("chat")
class TestAnAgentThatDoesNot:
    async def test_its_reply_goes_on_and_it_costs_nothing(
        self, chat_alias: str
    ) -> None:
        from django_streams.turns import viewers

        script = Script()
        agent = script.agent()
        async with Tab(agent) as tab:
            await begun(tab, script)
            assert await rows() == []
            loop = asyncio.get_running_loop()
            assert loop not in viewers._all
        script.say(" reply")
        script.end()
        turn = await until_over(agent)
        assert turn.status is TurnStatus.COMPLETED
        assert message_text((await stored(agent))[1]) == "partial reply"


REF = ConversationRef("agent", "room", "u:1")


@pytest.mark.usefixtures("chat_alias")
class TestTheDatabase:
    """What is asked of the database, without a process that runs anything."""

    def unwatched(self, turn: TurnRecord, grace: float, ttl: float = 60.0) -> bool:
        return presence.stop_unwatched(REF, turn, grace, ttl)

    def running(self) -> TurnRecord:
        submit("q1")
        turn = claim()
        assert turn is not None
        return turn

    def age(self, seconds: float) -> None:
        """Let *seconds* pass for the turn and for all who were seen."""
        alias = door.alias()
        from datetime import timedelta

        for row in Presence.objects.using(alias):
            row.seen_at -= timedelta(seconds=seconds)
            row.save(using=alias)
        for turn in queue.turns():
            assert turn.started_at is not None
            turn.started_at -= timedelta(seconds=seconds)
            turn.save(using=alias)

    def asked(self) -> bool:
        return queue.turns().exclude(cancel_requested=None).exists()

    def test_the_grace_time_counts_from_the_start_of_the_turn(self) -> None:
        turn = self.running()
        assert not self.unwatched(turn, 10)
        self.age(11)
        assert self.unwatched(turn, 10) and self.asked()

    def test_who_is_there_is_enough_however_long_ago_it_came(self) -> None:
        turn = self.running()
        assert presence.enter(REF, "c1", "p1", 60)
        self.age(50)
        assert not self.unwatched(turn, 10)

    def test_who_is_of_a_process_that_died_counts_until_it_expires(self) -> None:
        turn = self.running()
        presence.enter(REF, "c1", "p1", 60)
        self.age(61)
        assert presence.beat(["c1"], "p1") == {"c1"}
        assert not self.unwatched(turn, 10)
        self.age(61)
        assert self.unwatched(turn, 10)

    def test_a_grace_time_longer_than_the_expiry_counts_from_the_last_sign(
        self,
    ) -> None:
        turn = self.running()
        presence.enter(REF, "c1", "p1", 60)
        self.age(61)
        assert not self.unwatched(turn, 100)
        self.age(40)
        assert self.unwatched(turn, 100)

    def test_the_last_one_to_leave_counts(self) -> None:
        turn = self.running()
        presence.enter(REF, "c1", "p1", 60)
        presence.enter(REF, "c2", "p2", 60)
        presence.leave(REF, "c1")
        self.age(11)
        assert not self.unwatched(turn, 10)
        presence.leave(REF, "c2")
        assert not self.unwatched(turn, 10)
        self.age(11)
        assert self.unwatched(turn, 10)
        assert Presence.objects.using(door.alias()).count() == 1

    def test_who_comes_sweeps_up_who_left_or_died(self) -> None:
        self.running()
        presence.enter(REF, "c1", "p1", 60)
        presence.leave(REF, "c1")
        presence.enter(REF, "c2", "p2", 60)
        self.age(61)
        presence.enter(REF, "c3", "p3", 60)
        presence.enter(REF, "c3", "p3", 60)
        found = Presence.objects.using(door.alias()).values_list(
            "connection", flat=True
        )
        assert list(found) == ["c3"]
        assert presence.beat(["c2", "c3"], "p3") == {"c3"}

    def test_a_turn_that_is_over_or_another_s_is_not_asked(self) -> None:
        turn = self.running()
        self.age(11)
        queue.turns().filter(pk=turn.pk).update(epoch=turn.epoch + 1)
        assert not self.unwatched(turn, 10)
        assert not self.asked()

    def test_nobody_watches_what_is_not_there(self) -> None:
        assert not presence.enter(REF, "c1", "p1", 60)
        presence.leave(REF, "c1")
        assert not Presence.objects.using(door.alias()).exists()
        assert presence.beat([], "p1") == set()

    def test_a_beat_costs_two_queries_for_all(self, chat_alias: str) -> None:
        self.running()
        names = [f"c{at}" for at in range(50)]
        for name in names:
            presence.enter(REF, name, "p1", 60)
        with CaptureQueriesContext(connections[chat_alias]) as queries:
            assert presence.beat(names, "p1") == set(names)
        assert len(queries) == 2


def test_the_clock_is_the_database_s(chat_alias: str) -> None:
    submit("q1")
    claim()
    presence.enter(REF, "c1", "p1", 60)
    alias = door.alias()
    row = Presence.objects.using(alias).annotate(now=clock.now(alias)).get()
    assert abs((row.now - row.seen_at).total_seconds()) < 5
