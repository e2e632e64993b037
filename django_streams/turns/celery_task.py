"""The Celery task that runs one turn; imported where Celery is used only."""

from __future__ import annotations

import asyncio
from typing import Any

from celery import shared_task

from .. import conf
from . import offers
from .tasks import run_turn

NAME = "django_streams.run_turn"


@shared_task(name=NAME, ignore_result=True)  # type: ignore[untyped-decorator]
def run_turn_task(turn_pk: int) -> None:
    """Run a turn, then offer the next one of its conversation."""
    ref = asyncio.run(run_turn(turn_pk))
    if ref is not None:
        offers.offer(ref)


def enqueue(turn_pk: int) -> None:
    """Hand a turn to Celery; raises what Celery raises."""
    options: dict[str, Any] = {}
    if (queue := conf.get().TASK_QUEUE) is not None:
        options["queue"] = queue
    run_turn_task.apply_async(args=[turn_pk], **options)
