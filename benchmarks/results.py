"""What a benchmark found, as values and as ``results.json``. Pure but for files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from .figures import Run, ratio, spread
from .goals import BY_ID, GOALS, Goal

QUIET = 0.1
"""Up to this share of all cores, others do not disturb a measurement."""

STEADY = 0.5
"""A floor that sinks below this share of its best in between says that the
machine, or its disk, was not the same all the time."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of one goal's figure."""

    id: str
    runs: Sequence[Run]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: points of (x, y)."""

    plot: str
    """``length``, ``readers`` or ``writers``."""
    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that measuring one goal gave."""

    measured: Sequence[Measured]
    series: Sequence[Series] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(
            [
                Measured(m["id"], [Run(**run) for run in m["runs"]], m["notes"])
                for m in value["measured"]
            ],
            [
                Series(s["plot"], s["label"], [(x, y) for x, y in s["points"]])
                for s in value["series"]
            ],
        )


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else the machine was doing."""

    load: float
    """Load average of one minute when the measurement ended, itself included."""
    busy: float
    """Share of all cores that others used right before it and after, 0 to 1."""


def row(measured: Measured, around: Circumstances) -> dict[str, Any]:
    """One entry of ``goals`` in the file."""
    goal = BY_ID[measured.id]
    figures = spread([run.figure for run in measured.runs])
    floors = [run.floor for run in measured.runs if run.floor is not None]
    share = ratio(measured.runs)
    return _row(goal, around) | {
        "figure": _short(figures.median),
        "min": _short(figures.least),
        "max": _short(figures.most),
        "floor": _short(spread(floors).median) if floors else None,
        "ratio": None if share is None else _short(share),
        "met": goal.met(measured.runs),
        "runs": [
            {
                "figure": _short(run.figure),
                "floor": None if run.floor is None else _short(run.floor),
            }
            for run in measured.runs
        ],
        "notes": list(measured.notes),
    }


def failed(goal: Goal, around: Circumstances, why: str) -> dict[str, Any]:
    """The entry of a goal that could not be measured: it is not met."""
    nothing = dict.fromkeys(("figure", "min", "max", "floor", "ratio"))
    return _row(goal, around) | nothing | {"met": False, "runs": [], "notes": [why]}


def _row(goal: Goal, around: Circumstances) -> dict[str, Any]:
    return {
        "id": goal.id,
        "what": goal.what,
        "unit": goal.unit,
        "goal": goal.text,
        "load": round(around.load, 2),
        "busy": round(around.busy, 2),
    }


def _short(value: float) -> float:
    """Four digits: no measurement here repeats to more."""
    return float(f"{value:.4g}")


@dataclass(slots=True)
class Results:
    """The file: a machine, its goals and the lines of the plots."""

    machine: dict[str, Any]
    goals: list[dict[str, Any]] = field(default_factory=list)
    series: list[dict[str, Any]] = field(default_factory=list)

    def put(self, rows: Iterable[dict[str, Any]], series: Iterable[Series]) -> None:
        """Add what one goal gave, in place of what it gave before."""
        lines = [asdict(line) for line in series]
        for line in lines:
            line["points"] = [[_short(x), _short(y)] for x, y in line["points"]]
        self._add(list(rows), lines)

    def merged(self, later: Results) -> Results:
        """These results, with those of *later* in place of the same goals'."""
        both = Results(later.machine, self.goals, self.series)
        both._add(later.goals, later.series)
        return both

    def _add(self, rows: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
        order = {goal.id: place for place, goal in enumerate(GOALS)}
        entries = {entry["id"]: entry for entry in [*self.goals, *rows]}
        self.goals = sorted(
            # A goal that is no more leaves the file.
            (entry for name, entry in entries.items() if name in order),
            key=lambda entry: order[entry["id"]],
        )
        named = {(one["plot"], one["label"]): one for one in [*self.series, *lines]}
        self.series = [named[name] for name in sorted(named)]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def quiet(entry: Mapping[str, Any]) -> bool:
    """Whether the machine did little else when *entry* was measured."""
    return bool(entry["busy"] <= QUIET)


def steady(entry: Mapping[str, Any]) -> bool:
    """Whether the floor of *entry* was about the same in all runs, if it is one of
    throughput: short times differ by more on any machine."""
    if not entry["unit"].endswith("/s"):
        return True
    floors = [run["floor"] for run in entry["runs"] if run["floor"] is not None]
    return not floors or min(floors) >= STEADY * max(floors)
