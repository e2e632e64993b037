"""The thread that keeps a session running."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from django_streams.wake import thread as module
from django_streams.wake.thread import LoopThread

WITHIN = 10.0

request_of = contextvars.ContextVar("request_of", default="nobody")


class Script:
    """Makes sessions that do what the test says, one after another."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.made = 0
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.looked = threading.Semaphore(0)
        self.settled = threading.Event()
        self.contexts: list[str] = []
        self.thread = LoopThread("The script", self._make)

    def _make(self, thread: LoopThread) -> ScriptedSession:
        self.made += 1
        return ScriptedSession(self, self.steps.pop(0) if self.steps else None)


class ScriptedSession:
    """Runs one step and then, if that did not raise, until it is closed."""

    def __init__(self, script: Script, step: Callable[[], None] | None) -> None:
        self._script, self._step = script, step
        self._closing = asyncio.Event()

    def look(self) -> None:
        self._script.contexts.append(request_of.get())
        self._script.looked.release()
        if self._script.thread.closing:
            self._closing.set()

    async def run(self) -> None:
        self._script.loops.append(asyncio.get_running_loop())
        if self._step is not None:
            self._step()
        self._script.settled.set()
        if self._script.thread.closing:
            return
        await self._closing.wait()


class Hurried(threading.Event):
    """Does not wait, and keeps how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return self.is_set()


def fail() -> None:
    raise ConnectionError("nobody there")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.setattr(module, "RETRY_FIRST", 0.001)
    monkeypatch.setattr(module, "RETRY_MOST", 0.002)
    made = Script()
    yield made
    made.thread.close()


def started(script: Script) -> Script:
    script.thread.start()
    assert script.settled.wait(WITHIN)
    return script


def test_starting_twice_runs_one_session(script: Script) -> None:
    script.thread.start()
    script.thread.start()
    started(script)
    script.thread.close()
    assert script.made == 1


def test_a_thread_that_was_closed_does_not_start(script: Script) -> None:
    script.thread.close()
    script.thread.start()
    script.thread.poke()
    assert script.made == 0


def test_closing_ends_the_session_its_loop_and_the_thread(script: Script) -> None:
    started(script).thread.close()
    assert script.loops[0].is_closed()
    assert "django-streams-wake" not in {t.name for t in threading.enumerate()}


def test_every_failure_is_followed_by_a_session_with_a_loop_of_its_own(
    script: Script,
) -> None:
    script.steps = [fail, fail, fail]
    started(script)
    assert script.made == 4
    assert len(set(script.loops)) == 4
    assert [loop.is_closed() for loop in script.loops] == [True] * 3 + [False]


def test_an_outage_is_logged_when_it_begins_and_when_it_is_over(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_streams.wake")
    script.steps = [fail, fail, fail, lambda: script.thread.works()]
    started(script)
    levels = [(r.levelname, r.name) for r in caplog.records]
    assert levels == [
        ("WARNING", "django_streams.wake.thread"),
        ("INFO", "django_streams.wake.thread"),
    ]
    assert "The script does not work (ConnectionError: nobody there)" in caplog.text
    assert "The script works again after" in caplog.text


def test_a_second_outage_is_logged_again(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_streams.wake")

    def works_and_fails() -> None:
        script.thread.works()
        fail()

    script.steps = [fail, works_and_fails, lambda: script.thread.works()]
    started(script)
    levels = [r.levelname for r in caplog.records]
    assert levels == ["WARNING", "INFO", "WARNING", "INFO"]


def test_the_log_names_the_error_inside_a_group(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_in_tasks() -> None:
        inner = ExceptionGroup("inner", [ConnectionError("nobody there")])
        raise ExceptionGroup("outer", [inner])

    script.steps = [fail_in_tasks]
    started(script)
    assert "ConnectionError: nobody there" in caplog.text


def test_between_failures_the_pause_doubles_up_to_a_second() -> None:
    script = Script()
    script.thread._closing = closing = Hurried()
    script.steps = [fail] * 6
    started(script)
    script.thread.close()
    assert closing.pauses[:6] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_after_a_session_that_lasted_the_pause_is_short_again(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_and_fail() -> None:
        monkeypatch.setattr(module, "STEADY", 0.0)
        fail()

    monkeypatch.setattr(module, "RETRY_MOST", 1.0)
    script.thread._closing = closing = Hurried()
    script.steps = [fail, fail, fail, last_and_fail]
    started(script)
    script.thread.close()
    assert closing.pauses[:4] == [0.001, 0.002, 0.004, 0.001]


def test_a_session_looks_after_a_poke(script: Script) -> None:
    started(script)
    for _ in range(3):
        script.thread.poke()
        assert script.looked.acquire(timeout=WITHIN)


def test_a_poke_takes_nothing_of_the_callers_context_along(script: Script) -> None:
    request_of.set("somebody")
    started(script).thread.poke()
    assert script.looked.acquire(timeout=WITHIN)
    assert script.contexts == ["nobody"]


def test_a_poke_between_two_sessions_is_harmless(script: Script) -> None:
    gap = threading.Event()

    def poke_when_gone() -> None:
        # The loop of the first session is closed, the second is not running yet.
        script.thread.poke()
        gap.set()

    script.steps = [fail]
    first_make = script.thread._make

    def make(thread: LoopThread) -> module.Session:
        if script.made == 1:
            poke_when_gone()
        return first_make(thread)

    script.thread._make = make
    started(script)
    assert gap.is_set()
    script.thread.poke()
    assert script.looked.acquire(timeout=WITHIN)


def test_a_poke_at_the_moment_a_loop_is_closed_is_harmless(script: Script) -> None:
    started(script)
    target = script.thread._target
    script.thread.close()
    script.thread._target = target
    script.thread.poke()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_ends_leaves_its_parents_thread_alone(
    script: Script,
) -> None:
    started(script)
    pid = os.fork()
    if pid == 0:
        script.thread.close()
        os._exit(1 if script.thread.closing else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    script.thread.poke()
    assert script.looked.acquire(timeout=WITHIN)


def test_closing_from_inside_does_not_wait_for_itself(script: Script) -> None:
    script.steps = [script.thread.close]
    started(script)
    script.thread.close()
    assert script.loops[0].is_closed()


def test_a_thread_that_cannot_be_started_is_logged_and_tried_again(
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        script.thread.start()
        script.thread.start()
        script.thread.poke()
    assert caplog.text.count("can't start new thread") == 1
    started(script)
    assert script.made == 1
