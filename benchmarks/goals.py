"""The goals: what is measured, in which unit, and what counts as met. Pure.

An id is the goal's, with a part after a dot where one goal has several figures;
``ONLY=G3`` means all of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .figures import Run, ratio, spread


@dataclass(frozen=True, slots=True)
class Goal:
    id: str
    what: str
    unit: str
    text: str
    """The goal as it is shown."""
    limit: float
    by: Literal["ratio", "figure", "every run"]
    """What *limit* is held against: the median ratio to the floor, the median
    figure, or the worst run."""
    at_least: bool = False
    """Whether more is better; else *limit* is the most."""

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]

    def met(self, runs: Sequence[Run]) -> bool:
        """Whether *runs* reach the goal; a ratio without a floor does not."""
        figures = spread([run.figure for run in runs])
        value: float | None
        match self.by:
            case "ratio":
                value = ratio(runs)
            case "figure":
                value = figures.median
            case "every run":
                value = figures.least if self.at_least else figures.most
        if value is None:
            return False
        return value >= self.limit if self.at_least else value <= self.limit


def _faster(id: str, what: str, unit: str, limit: float) -> Goal:
    text = f"≥ {limit:g} × floor"
    return Goal(id, what, unit, text, limit, "ratio", at_least=True)


def _cheaper(id: str, what: str, unit: str, limit: float) -> Goal:
    return Goal(id, what, unit, f"≤ {limit:g} × floor", limit, "ratio")


def _at_most(id: str, what: str, unit: str, limit: float) -> Goal:
    return Goal(id, what, unit, f"≤ {limit:g} {unit}", limit, "figure")


def _never_more(id: str, what: str, unit: str, limit: float) -> Goal:
    return Goal(id, what, unit, f"always ≤ {limit:g} {unit}", limit, "every run")


GOALS: tuple[Goal, ...] = (
    _faster("G1", "one async writer, PostgreSQL", "appends/s", 0.5),
    _faster("G2", "one async writer, SQLite", "appends/s", 0.15),
    _faster("G3.postgresql", "100 async writers, PostgreSQL", "appends/s", 5),
    _faster("G3.sqlite", "100 async writers, SQLite", "appends/s", 1),
    _at_most("G4.postgresql", "append at 50,000 over at 1,000, PostgreSQL", "×", 1.2),
    _at_most("G4.sqlite", "append at 50,000 over at 1,000, SQLite", "×", 1.2),
    _at_most("G5.ten", "write-ahead log, ten chunks a block", "B/B", 2),
    _at_most("G5.one", "write-ahead log, one chunk a block", "B/B", 7),
    _at_most("G5.ten-merged", "the same, ten, with rollup", "B/B", 3.2),
    _at_most("G5.one-merged", "the same, one, with rollup", "B/B", 8.5),
    _cheaper("G6", "event to 500 SSE readers, p50", "ms", 2.5),
    _faster("G7.rate", "replay of 50 MB over SSE, PostgreSQL", "MB/s", 0.25),
    _at_most("G7.first", "its first event", "ms", 20),
    _cheaper("G8.idle", "memory of an idle SSE reader", "KiB", 1.25),
    _at_most("G8.unread", "a reader that reads nothing of 20 MiB", "MiB", 1),
    Goal(
        "G9.queries",
        "queries beside 400 idle viewers",
        "1/s",
        "only the shared poll, 1/s",
        # The poll comes a second after the last; a window may hold one more.
        1.1,
        "every run",
    ),
    _never_more("G9.connections", "database connections with them", "open", 7),
    _at_most("G10.p50", "append to a reader in another process, p50", "ms", 15),
    _at_most("G10.p99", "the same, p99", "ms", 60),
    _never_more("G10.down", "the same without Redis, latest chunk", "s", 1.5),
    _cheaper("G11.one", "chat: append to an observer's frame, p50", "ms", 2),
    _cheaper("G11.many", "the same, 200 sockets", "ms", 2),
    _at_most("G12", "late joiner of a chat: probe to the replay's end", "ms", 50),
    _at_most("G13", "200 cut readers resume, last up to date", "s", 0.8),
    _never_more("G16", "stop of a turn in another process", "s", 1),
    _at_most("G17", "longest append beside a 20 MiB replay", "ms", 30),
)

BY_ID = {goal.id: goal for goal in GOALS}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(goal.group for goal in GOALS))


def chosen(only: str) -> list[str]:
    """The groups that *only* (``"G1,G6"``, empty for all) names, in order.

    Raises ``ValueError`` for a name that is none.
    """
    names = [name.strip().upper() for name in only.split(",") if name.strip()]
    if unknown := [name for name in names if name not in GROUPS]:
        raise ValueError(
            f"no goal is named {', '.join(unknown)}; there are {', '.join(GROUPS)}"
        )
    return [group for group in GROUPS if not names or group in names]
