"""Measures one goal in a process of its own.

Each goal starts from a fresh process: what one left in memory, in caches and in
threads is nothing to the next.
"""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
from importlib import import_module
from types import FrameType

from django.db import connections

from tests import process
from tests.process import Child, ChildError

from .results import Outcome
from .sizes import Sizes

MODULES = {
    "G1": "one_writer",
    "G2": "one_writer",
    "G3": "many_writers",
    "G4": "length",
    "G5": "wal",
    "G6": "fanout",
    "G7": "replay",
    "G8": "memory",
    "G9": "idle",
    "G10": "processes",
    "G11": "chat",
    "G12": "chat",
    "G13": "storm",
    "G16": "stopping",
    "G17": "beside",
}
"""Each has ``measure(group, sizes)``, which returns an :class:`Outcome`."""

DEADLINE = 300
"""Seconds for one goal; one that hangs must not stop the others."""

_STOPPING = 30
_PR_SET_PDEATHSIG = 1


class NotMeasured(Exception):
    """Why, in a line, and what the child wrote about it."""

    def __init__(self, why: str, details: str) -> None:
        super().__init__(why)
        self.details = details


def run(group: str, sizes: Sizes) -> Outcome:
    """Measure *group* in a child; raises :class:`NotMeasured` if that fails."""
    with Child(in_child, group=group, quick=sizes.quick, parent=os.getpid()) as child:
        try:
            answer = child.hear(DEADLINE + _STOPPING)
        except ChildError as error:
            raise NotMeasured("its process ended", str(error)) from None
        except BaseException:
            # Not kill -9 yet: it has servers of its own to stop.
            try:
                os.kill(child.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
            else:
                child.wait(_STOPPING)
            raise
        if why := answer["failed"]:
            raise NotMeasured(why, child.stderr())
        return Outcome.from_json(answer["outcome"])


def in_child(group: str, quick: bool, parent: int) -> None:
    """In the child: measure and say the outcome. Ends with its parent."""
    # Ctrl-C reaches the whole group; the parent passes it on, once.
    signal.signal(signal.SIGINT, _nothing)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _expire)
    signal.alarm(DEADLINE)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit("the benchmark is gone")
    module = import_module(f"benchmarks.{MODULES[group]}")
    outcome, why = Outcome([]), ""
    try:
        outcome = module.measure(group, Sizes(quick))
    except Exception as error:
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        # Raised inside a transaction, the alarm arrives as another error.
        if not signal.alarm(0):
            why = f"not finished within {DEADLINE} s"
        connections.close_all()
    process.say({"failed": why, "outcome": outcome.as_json()})


def _nothing(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which the servers started here would inherit."""


def _end(number: int, frame: FrameType | None) -> None:
    # A second one must not interrupt the stopping of servers.
    signal.signal(signal.SIGTERM, _nothing)
    raise SystemExit(128 + number)


def _expire(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not measured within {DEADLINE} s")
