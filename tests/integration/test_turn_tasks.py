"""Turns that a task queue carries: django.tasks and Celery, really run."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_streams.turns import agents, backlog, door, offers, queue, status
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnRecord, TurnStatus
from tests.conftest import RealDb

from .chatting import TIMEOUT, AgentClass, Tab, make_agent, text_of, user_message

TASKS = "django.tasks" if find_spec("django.tasks") else "django_tasks"
IMMEDIATE = f"{TASKS}.backends.immediate.ImmediateBackend"
DUMMY = f"{TASKS}.backends.dummy.DummyBackend"


@pytest.fixture(params=["default", "postgresql"])
def alias(
    request: pytest.FixtureRequest, real_db: RealDb, settings: Any
) -> Iterator[str]:
    real_db("default")
    name = real_db(request.param)
    settings.DJANGO_STREAMS = {"DATABASE": name}
    yield name
    idle()


def idle() -> None:
    """Return when nothing is being handed to a task queue any more."""
    if offers._threads is not None:
        offers._threads.shutdown(wait=True)
        offers._threads = None


class Saying:
    """An agent that answers with the question, and what it was asked."""

    def __init__(self, runner: str) -> None:
        self.asked: list[str] = []
        self.threads: set[str] = set()

        async def on_chat_message(agent: Any, turn: Any) -> str:
            self.asked.append(turn.request_id)
            self.threads.add(threading.current_thread().name)
            return f"you said {turn.text}"

        self.agent = make_agent(on_chat_message, runner=runner)
        agents.register(self.agent.agent_name, self.agent)
        self.ref = ConversationRef(self.agent.agent_name, "room", "a:v1")


def submit(ref: ConversationRef, request_id: str = "q1") -> None:
    message = user_message(f"this {request_id}", f"u-{request_id}")
    given = Submission(request_id=request_id, messages=[message], origin_ids=["u"])
    queue.submit(ref, given)


def ended(ref: ConversationRef, request_id: str = "q1") -> TurnRecord:
    deadline = time.monotonic() + TIMEOUT
    while True:
        turn = status.find_turn(ref, request_id)
        if turn is not None and turn.status.over:
            return turn
        assert time.monotonic() < deadline, turn
        time.sleep(0.01)


# django.tasks


@pytest.fixture
def immediate(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": IMMEDIATE}}


@pytest.fixture
def dummy(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The backends of this thread; each thread has its own, so all stays here."""
    monkeypatch.setattr(offers, "offer_soon", offers.offer)
    settings.TASKS = {
        "default": {"BACKEND": DUMMY, "QUEUES": []},
        "other": {"BACKEND": DUMMY, "QUEUES": []},
    }
    handler: Any = sys.modules.get(TASKS) or __import__(TASKS, fromlist=["x"])
    yield handler.task_backends
    for name in ("default", "other"):
        handler.task_backends[name].clear()


def test_a_backend_that_runs_tasks_at_once_runs_the_turn(
    alias: str, immediate: None
) -> None:
    saying = Saying("django.tasks")
    submit(saying.ref)
    assert ended(saying.ref).status is TurnStatus.COMPLETED
    for number in range(2, 6):
        submit(saying.ref, f"q{number}")
    ended(saying.ref, "q5")
    assert saying.asked == ["q1", "q2", "q3", "q4", "q5"]


def test_a_turn_is_enqueued_once_where_the_settings_say(
    alias: str, dummy: Any, settings: Any
) -> None:
    settings.DJANGO_STREAMS |= {"TASK_BACKEND": "other", "TASK_QUEUE": "turns"}
    saying = Saying("django.tasks")
    submit(saying.ref)
    submit(saying.ref, "q2")
    for _ in range(3):
        offers.offer(saying.ref)
    idle()
    (result,) = dummy["other"].results
    assert dummy["default"].results == []
    assert result.task.queue_name == "turns"
    assert result.task.module_path == "django_streams.turns.django_task.run_turn_task"
    # The task, as a worker of the backend would run it.
    result.task.call(*result.args, **result.kwargs)
    assert ended(saying.ref).status is TurnStatus.COMPLETED
    idle()
    # The next turn of the conversation was offered by the end of the first.
    assert len(dummy["other"].results) == 2
    assert saying.asked == ["q1"]


def test_a_task_that_comes_twice_or_late_does_nothing(alias: str, dummy: Any) -> None:
    saying = Saying("django.tasks")
    submit(saying.ref)
    idle()
    (result,) = dummy["default"].results
    result.task.call(*result.args)
    result.task.call(*result.args)
    result.task.call(10**9)
    assert saying.asked == ["q1"]


def test_a_task_that_got_lost_is_offered_again(
    alias: str, dummy: Any, settings: Any
) -> None:
    settings.DJANGO_STREAMS |= {"TASK_PATIENCE": 0.0}
    saying = Saying("django.tasks")
    submit(saying.ref)
    idle()
    look = backlog.look([saying.agent.agent_name], [], limit=10)
    assert [found.ref for found in look.waiting] == [saying.ref]
    offers.offer(saying.ref)
    assert len(dummy["default"].results) == 2


def test_a_broker_that_fails_does_not_fail_the_submit(
    alias: str,
    dummy: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from django_streams.turns import django_task

    def fail(turn_pk: int) -> None:
        raise OSError("no broker")

    saying = Saying("django.tasks")
    monkeypatch.setattr(django_task, "enqueue", fail)
    submit(saying.ref)
    idle()
    assert "could not be enqueued" in caplog.text
    turn = status.find_turn(saying.ref, "q1")
    assert turn is not None and turn.status is TurnStatus.QUEUED


async def test_a_socket_shows_what_a_task_writes(
    chat: str, immediate: None, settings: Any
) -> None:
    saying = Saying("django.tasks")
    async with Tab(saying.agent) as tab:
        await tab.ask("hello")
        assert text_of(await tab.done()) == "you said hello"
    assert all("django-streams-offer" in name for name in saying.threads)


def test_an_agent_that_the_process_of_a_task_lacks_is_named(
    alias: str, dummy: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saying = Saying("django.tasks")
    submit(saying.ref)
    idle()
    (result,) = dummy["default"].results
    monkeypatch.delitem(agents._agents, saying.agent.agent_name)
    settings.DJANGO_STREAMS |= {"AGENTS": []}
    monkeypatch.setattr(agents, "_discovered", False)
    with pytest.raises(ImproperlyConfigured, match="no agent is called"):
        result.task.call(*result.args)


# Celery


@pytest.fixture
def celery_app(alias: str) -> Iterator[Celery]:
    app = Celery("tests", broker="memory://", set_as_current=True)
    app.conf.task_ignore_result = True
    app.set_default()
    from django_streams import tasks

    assert "run_turn_task" in tasks.__all__
    # A worker sets up logging for its process, which here is everybody's.
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield app
    root.setLevel(level)
    root.handlers[:] = handlers
    logging.captureWarnings(False)
    app.close()


def test_a_celery_worker_runs_turn_after_turn(celery_app: Celery, alias: str) -> None:
    saying = Saying("celery")
    for number in range(3):
        submit(saying.ref, f"q{number}")
    assert saying.asked == []
    with start_worker(celery_app, perform_ping_check=False, pool="solo"):
        assert ended(saying.ref, "q2").status is TurnStatus.COMPLETED
    assert saying.asked == ["q0", "q1", "q2"]
    connections.close_all()


def test_celery_is_told_the_queue(
    celery_app: Celery, alias: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_streams.turns import celery_task

    settings.DJANGO_STREAMS |= {"TASK_QUEUE": "turns"}
    sent: list[Any] = []

    def apply_async(args: Any, **options: Any) -> None:
        sent.append((args, options))

    monkeypatch.setattr(celery_task.run_turn_task, "apply_async", apply_async)
    saying = Saying("celery")
    submit(saying.ref)
    idle()
    turn = status.find_turn(saying.ref, "q1")
    assert turn is not None
    assert sent == [([turn.pk], {"queue": "turns"})]


@pytest.mark.parametrize(
    ("runner", "package"), [("celery", "celery"), ("django.tasks", "django-tasks")]
)
def test_a_package_that_is_missing_is_named_by_the_submit(
    alias: str, runner: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "find_spec", lambda name: None)
    saying = Saying(runner)
    with pytest.raises(ImproperlyConfigured, match=rf"django-streams\[{package}\]"):
        submit(saying.ref)
    assert not queue.turns().exists()
    assert door.alias() == alias


def make(runner: str) -> AgentClass:
    return make_agent(lambda self, turn: None, runner=runner)


def test_a_runner_that_there_is_not_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(ValueError, match="runner of TestAgent is 'rq'"):
        make("rq")
