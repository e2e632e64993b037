"""What a session says to a layer, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from channels.layers import InMemoryChannelLayer
from pytest_django import Settings

from django_streams.ids import stream_key
from django_streams.wake import LocalWaker
from django_streams.wake import session as module
from django_streams.wake.marks import Marks
from django_streams.wake.session import LayerError, LayerSession, group_name
from django_streams.wake.thread import LoopThread

WITHIN = 10.0
KEY = stream_key("a stream")


class WatchedLayer(InMemoryChannelLayer):
    """The layer in memory, which keeps what it was asked and can misbehave."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.added: list[str] = []
        self.discarded: list[str] = []
        self.at_once = self.most_at_once = 0
        self.on_send: Callable[[str], Any] | None = None

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.sent.append((group, message))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            if self.on_send is not None:
                await self.on_send(group)
            await super().group_send(group, message)
        finally:
            self.at_once -= 1

    async def group_add(self, group: str, channel: str) -> None:
        self.added.append(group)
        await super().group_add(group, channel)

    async def group_discard(self, group: str, channel: str) -> None:
        self.discarded.append(group)
        await super().group_discard(group, channel)

    def wakes(self) -> list[str]:
        """The groups that were sent to, without the probes."""
        return [g for g, message in self.sent if message["key"] != message["by"]]


class Rig:
    """A session in the test's own loop, with the marks that drive it."""

    def __init__(self, layer: WatchedLayer) -> None:
        self.layer = layer
        self.marks = Marks()
        self.local = LocalWaker()
        self.thread = LoopThread("The layer", self._never)
        self.session = LayerSession(layer, self.marks, self.local, self.thread)
        self.task: asyncio.Task[None] | None = None

    @staticmethod
    def _never(thread: LoopThread) -> module.LayerSession:
        raise AssertionError("the test runs the session")

    def wake(self, key: str) -> None:
        self.marks.send(key)
        self.session.look()

    def follow(self, key: str) -> None:
        self.marks.follow(key)
        self.session.look()

    def unfollow(self, key: str) -> None:
        self.marks.unfollow(key)
        self.session.look()

    def close(self) -> None:
        self.thread.close()
        self.session.look()

    async def ends(self) -> None:
        assert self.task is not None
        async with asyncio.timeout(WITHIN):
            await self.task

    async def fails(self) -> BaseException:
        """The first error the session ended with."""
        assert self.task is not None
        async with asyncio.timeout(WITHIN):
            await asyncio.wait([self.task])
        error = self.task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert error is not None, "the session did not fail"
        return error


@asynccontextmanager
async def running(layer: WatchedLayer | None = None) -> AsyncIterator[Rig]:
    rig = Rig(layer or WatchedLayer())
    rig.task = asyncio.create_task(rig.session.run())
    try:
        yield rig
    finally:
        rig.task.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await rig.task


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.DJANGO_STREAMS = {"WAKE_TIMEOUT": WITHIN}
    monkeypatch.setattr(module, "SEND_GAP", 0.001)
    monkeypatch.setattr(module, "PROBE_EVERY", 0.02)


@pytest.fixture
def impatient(settings: Settings) -> None:
    """For tests in which something does not answer."""
    settings.DJANGO_STREAMS = {"WAKE_TIMEOUT": 0.5}


# --- what is sent -------------------------------------------------------------


async def test_a_message_is_small_and_says_no_more_than_key_and_sender() -> None:
    async with running() as rig:
        rig.wake(KEY)
        await until(rig.layer.wakes)
    group, message = rig.layer.sent[0]
    assert group == f"ds.{KEY}"
    assert set(message) == {"type", "key", "by"}
    assert message["key"] == KEY
    assert len(json.dumps(message)) < 200


def test_every_channel_layer_takes_the_name_of_a_group() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9._-]{1,99}", group_name(KEY))
    assert InMemoryChannelLayer().require_valid_group_name(group_name(KEY))


async def test_a_process_that_follows_nothing_has_no_channel_and_no_probe() -> None:
    async with running() as rig:
        rig.wake(KEY)
        await until(rig.layer.wakes)
    assert rig.layer.added == []
    assert len(rig.layer.sent) == 1


async def test_calls_on_their_way_together_are_limited() -> None:
    keys = [stream_key(str(number)) for number in range(50)]
    async with running() as rig:
        for key in keys:
            rig.marks.send(key)
        rig.session.look()
        await until(lambda: len(rig.layer.wakes()) == 50)
    assert sorted(rig.layer.wakes()) == sorted(map(group_name, keys))
    assert rig.layer.most_at_once == module.AT_ONCE


async def test_the_first_wake_leaves_at_once_and_the_next_ones_are_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SEND_GAP", 1000.0)
    async with running() as rig:
        rig.wake(KEY)
        await until(rig.layer.wakes)
        for _ in range(50):
            rig.wake(KEY)
            await asyncio.sleep(0)
        assert len(rig.layer.wakes()) == 1
    assert rig.marks.take_pending() == [KEY]


@pytest.mark.usefixtures("impatient")
async def test_a_send_that_hangs_ends_the_session_and_is_pending_again() -> None:
    async def hang(group: str) -> None:
        await asyncio.Event().wait()

    async with running() as rig:
        rig.layer.on_send = hang
        rig.wake(KEY)
        assert isinstance(await rig.fails(), TimeoutError)
    assert rig.marks.take_pending() == [KEY]


async def test_cancelling_a_session_is_not_swallowed() -> None:
    async with running() as rig:
        rig.follow(KEY)
        await until(lambda: group_name(KEY) in rig.layer.added)
        assert rig.task is not None
        rig.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rig.task


# --- who is heard -------------------------------------------------------------


async def test_a_follower_is_woken_once_the_layer_listens() -> None:
    woken: list[list[str]] = []
    async with running() as rig:
        rig.local.listen(KEY, lambda: woken.append(list(rig.layer.added)))
        rig.follow(KEY)
        await until(lambda: woken)
    assert group_name(KEY) in woken[0]
    assert len(woken) == 1


async def test_what_others_send_is_heard_and_what_came_from_here_is_not() -> None:
    calls: list[int] = []
    async with running() as rig:
        rig.local.listen(KEY, lambda: calls.append(1))
        rig.follow(KEY)
        await until(lambda: calls)
        rig.wake(KEY)
        await until(rig.layer.wakes)
        await rig.layer.group_send(
            group_name(KEY), {"type": "ds.wake", "key": KEY, "by": "another"}
        )
        await until(lambda: len(calls) == 2)
    assert len(calls) == 2


@pytest.mark.parametrize("junk", [{}, {"key": 7}, {"key": ["a"]}, {"type": "other"}])
async def test_a_message_of_another_kind_is_passed_over(junk: dict[str, Any]) -> None:
    calls: list[int] = []
    async with running() as rig:
        rig.local.listen(KEY, lambda: calls.append(1))
        rig.follow(KEY)
        await until(lambda: calls)
        await rig.layer.group_send(group_name(KEY), {"type": "x", **junk, "by": "?"})
        await rig.layer.group_send(group_name(KEY), {"key": KEY, "by": "another"})
        await until(lambda: len(calls) == 2)


async def test_a_group_is_left_with_the_last_follower() -> None:
    async with running() as rig:
        rig.follow(KEY)
        rig.follow(KEY)
        await until(lambda: group_name(KEY) in rig.layer.added)
        rig.unfollow(KEY)
        rig.follow(stream_key("another"))
        await until(lambda: group_name(stream_key("another")) in rig.layer.added)
        assert rig.layer.discarded == []
        rig.unfollow(KEY)
        await until(lambda: rig.layer.discarded == [group_name(KEY)])
    assert group_name(KEY) not in rig.layer.groups


async def test_closing_sends_what_is_pending_and_leaves_every_group() -> None:
    async with running() as rig:
        rig.follow(KEY)
        await until(lambda: group_name(KEY) in rig.layer.added)
        rig.marks.send(stream_key("last"))
        rig.close()
        await rig.ends()
    assert group_name(stream_key("last")) in rig.layer.wakes()
    assert rig.layer.groups == {}


@pytest.mark.usefixtures("impatient")
async def test_groups_that_cannot_be_left_do_not_hold_the_end_up() -> None:
    class Stuck(WatchedLayer):
        async def group_discard(self, group: str, channel: str) -> None:
            await asyncio.Event().wait()

    async with running(Stuck()) as rig:
        rig.follow(KEY)
        await until(lambda: group_name(KEY) in rig.layer.added)
        rig.close()
        await rig.ends()


# --- whether the layer lives --------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_a_layer_that_gives_nothing_back_ends_the_session() -> None:
    class Deaf(WatchedLayer):
        async def receive(self, channel: str) -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

    async with running(Deaf()) as rig:
        rig.follow(KEY)
        error = await rig.fails()
    assert isinstance(error, LayerError)
    assert "did not come back" in str(error)


async def test_a_layer_that_fails_in_receive_ends_the_session() -> None:
    class Broken(WatchedLayer):
        async def receive(self, channel: str) -> dict[str, Any]:
            raise ConnectionError("reset by peer")

    async with running(Broken()) as rig:
        rig.follow(KEY)
        assert isinstance(await rig.fails(), ConnectionError)


@pytest.mark.usefixtures("impatient")
async def test_groups_that_were_forgotten_are_joined_again() -> None:
    calls: list[int] = []
    async with running() as rig:
        rig.local.listen(KEY, lambda: calls.append(1))
        rig.follow(KEY)
        await until(lambda: calls)
        await until(lambda: rig.layer.sent)
        channel = next(iter(rig.layer.groups[group_name(KEY)]))
        # As after FLUSHALL: nobody is in any group, the channel itself works.
        rig.layer.groups.clear()
        rig.layer.added.clear()

        async def chatter() -> None:
            while True:
                await rig.layer.send(channel, {"type": "x", "key": "k", "by": "o"})
                await asyncio.sleep(0.01)

        talking = asyncio.create_task(chatter())
        await until(lambda: group_name(KEY) in rig.layer.added)
        talking.cancel()
        assert rig.task is not None and not rig.task.done()
        assert len(calls) == 2, "woken, for what was sent meanwhile"


async def test_memberships_are_renewed_before_the_layer_forgets_them() -> None:
    async with running(WatchedLayer(group_expiry=0.06)) as rig:
        rig.follow(KEY)
        await until(lambda: rig.layer.added.count(group_name(KEY)) >= 3)
        assert rig.task is not None and not rig.task.done()


async def test_it_works_again_only_when_a_message_came_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "django_streams.wake")
    async with running() as rig:
        rig.thread._fail(ConnectionError("gone"))
        silent = asyncio.Event()

        async def hold(group: str) -> None:
            await silent.wait()

        rig.layer.on_send = hold
        rig.follow(KEY)
        await until(lambda: rig.layer.sent)
        assert "works again" not in caplog.text
        silent.set()
        await until(lambda: "works again" in caplog.text)


async def test_for_one_that_only_sends_a_send_is_proof_enough(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "django_streams.wake")
    async with running() as rig:
        rig.thread._fail(ConnectionError("gone"))
        rig.wake(KEY)
        await until(lambda: "works again" in caplog.text)
