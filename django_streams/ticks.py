"""When polls are due: at common moments, so that many become one. Pure."""

from __future__ import annotations


def next_tick(now: float, pause: float) -> float:
    """The next whole multiple of *pause*, at most *pause* after *now*.

    Whatever is polled every second is due at the same instant, however it came:
    400 idle viewers, each a second after its own last look, were 114 queries a
    second where one is enough.
    """
    tick = (now // pause + 1) * pause
    # 1.0 // 0.05 is 19: the multiple found may be now itself.
    return tick if tick > now else tick + pause
