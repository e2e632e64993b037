"""The module in which Celery's ``autodiscover_tasks`` looks for tasks."""

from __future__ import annotations

from importlib.util import find_spec

__all__: list[str] = []

# Others look for modules of this name too, in projects without Celery.
if find_spec("celery") is not None:
    from .turns.celery_task import run_turn_task

    __all__ += ["run_turn_task"]
