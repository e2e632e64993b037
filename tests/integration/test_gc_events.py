"""gc_streams forgets what observers were told long ago, and misleads none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from pytest_django.fixtures import Settings

from django_streams.gc import collect
from django_streams.models import ConversationEvent
from django_streams.turns import door, queue
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef

from .chatting import MESSAGES, Script, Tab, user_message
from .test_turn_watch import Ear

pytestmark = [
    pytest.mark.usefixtures("chat"),
    pytest.mark.parametrize(
        "chat_alias", ["default", "postgresql", "mariadb"], indirect=True
    ),
]

DAY = 86_400


def submit(request_id: str, ref: ConversationRef) -> None:
    message = user_message("x", f"u-{request_id}")
    queue.submit(
        ref,
        Submission(request_id=request_id, messages=[message], origin_ids=["u1"]),
    )


def elapse(seconds: float) -> None:
    rows = ConversationEvent.objects.using(door.alias())
    rows.update(created_at=F("created_at") - timedelta(seconds=seconds))


def gc(**options: Any) -> int:
    return collect(using=door.alias(), **options).events


def kept(ref: ConversationRef) -> list[int]:
    rows = ConversationEvent.objects.using(door.alias())
    return list(
        rows.filter(conversation__key=ref.key)
        .order_by("seq")
        .values_list("seq", flat=True)
    )


async def test_old_events_go_and_each_newest_stays(settings: Settings) -> None:
    one, two = (ConversationRef("agent", name, "u:1") for name in ("one", "two"))
    for number in range(5):
        await door.run(submit, f"q{number}", one)
    await door.run(submit, "q", two)
    await door.run(elapse, DAY - 5)
    assert await door.run(gc) == 0
    await door.run(elapse, 10)
    await door.run(submit, "young", two)
    assert await door.run(gc, dry_run=True) == 0
    assert await door.run(gc) == 5
    assert await door.run(kept, one) == [5]
    assert await door.run(kept, two) == [2]
    assert await door.run(gc) == 0
    await door.run(submit, "q5", one)
    assert await door.run(kept, one) == [5, 6]
    settings.DJANGO_STREAMS = settings.DJANGO_STREAMS | {"EVENT_AGE": 60.0}
    await door.run(elapse, 61)
    assert await door.run(gc, batch_size=1) == 1
    assert await door.run(kept, one) == [6]


async def test_plenty_of_them_go_in_many_short_transactions() -> None:
    ref = ConversationRef("agent", "room", "u:1")
    await door.run(submit, "q", ref)
    await door.run(many, ref, 1200)
    await door.run(elapse, DAY + 1)
    assert await door.run(gc, batch_size=10_000) == 1200
    assert await door.run(kept, ref) == [1201]


def many(ref: ConversationRef, count: int) -> None:
    rows = ConversationEvent.objects.using(door.alias())
    first = rows.select_related("conversation").get(conversation__key=ref.key)
    rows.bulk_create(
        ConversationEvent(
            conversation=first.conversation,
            seq=first.seq + 1 + number,
            kind=first.kind,
            created_at=first.created_at,
        )
        for number in range(count)
    )
    first.conversation.event_cursor = first.seq + count
    first.conversation.save(using=door.alias())


async def test_a_follower_of_another_process_sees_that_it_missed_something() -> None:
    ref = ConversationRef("agent", "room", "u:1")
    for number in range(5):
        await door.run(submit, f"q{number}", ref)
    await door.run(elapse, DAY + 1)
    assert await door.run(gc) == 4
    async with Ear(ref) as ear:
        ear.position = 2
        assert await ear.next() == [5], "and not 3, which would have followed"


async def test_a_new_tab_gets_the_transcript_and_goes_on_with_what_comes() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as asking:
        await asking.ask("one", "q1")
        script.say("first")
        script.end()
        await asking.done("q1")
        await door.run(elapse, DAY + 1)
        assert await door.run(gc) > 0
        async with Tab(agent) as late:
            frame = await late.until(MESSAGES)
            assert [m["role"] for m in frame["messages"]] == ["user", "assistant"]
            await asking.ask("two", "q2", user_message("two", "u-q2"))
            script.say("second")
            script.end()
            await asking.done("q2")
            while len(frame["messages"]) < 4:
                frame = await late.until(MESSAGES)
