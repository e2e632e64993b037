"""The task of ``django.tasks`` that runs one turn; imported at use only."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .. import conf
from . import offers
from .tasks import run_turn

# Django 5.2 has them from the package of that name.
_tasks: Any = import_module(
    "django.tasks" if find_spec("django.tasks") else "django_tasks"
)


@_tasks.task  # type: ignore[untyped-decorator]
def run_turn_task(turn_pk: int) -> None:
    """Run a turn, then offer the next one of its conversation."""
    ref = asyncio.run(run_turn(turn_pk))
    if ref is not None:
        # In a thread of its own: a backend that runs tasks at once would nest.
        offers.offer_soon(ref)


def enqueue(turn_pk: int) -> None:
    """Hand a turn to the backend; raises what the backend raises."""
    options: dict[str, Any] = {"backend": conf.get().TASK_BACKEND}
    if (queue := conf.get().TASK_QUEUE) is not None:
        options["queue_name"] = queue
    run_turn_task.using(**options).enqueue(turn_pk)
