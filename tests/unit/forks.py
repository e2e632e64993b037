"""Waiting for a forked child that may hang."""

from __future__ import annotations

import os
import signal
import threading

WITHIN = 15.0


def exit_code(pid: int) -> int:
    """The exit code of the child *pid*; killed, and negative, if it hangs."""
    codes: list[int] = []

    def wait() -> None:
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiter.join(WITHIN)
    if not codes:
        os.kill(pid, signal.SIGKILL)
        waiter.join(WITHIN)
    return codes[0]
