"""The benchmark's result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.figures import Run
from benchmarks.goals import BY_ID
from benchmarks.results import (
    Circumstances,
    Measured,
    Outcome,
    Results,
    Series,
    failed,
    quiet,
    row,
    steady,
)

ALONE = Circumstances(load=0.5, busy=0.01)


def _row(name: str, *figures: float) -> dict[str, Any]:
    return row(Measured(name, [Run(figure, 10) for figure in figures]), ALONE)


def test_an_entry_tells_everything_about_its_runs() -> None:
    runs = [Run(30, 10), Run(20, 10), Run(24, 10)]
    assert row(Measured("G6", runs, ["a note"]), ALONE) == {
        "id": "G6",
        "what": "event to 500 SSE readers, p50",
        "unit": "ms",
        "goal": "≤ 2.5 × floor",
        "figure": 24,
        "min": 20,
        "max": 30,
        "floor": 10,
        "ratio": 2.4,
        "met": True,
        "runs": [
            {"figure": 30, "floor": 10},
            {"figure": 20, "floor": 10},
            {"figure": 24, "floor": 10},
        ],
        "notes": ["a note"],
        "load": 0.5,
        "busy": 0.01,
    }


def test_whether_a_goal_is_met_is_judged_before_figures_are_rounded() -> None:
    assert not row(Measured("G7.first", [Run(20.0001)]), ALONE)["met"]


def test_a_goal_that_could_not_be_measured_is_not_met() -> None:
    entry = failed(BY_ID["G6"], ALONE, "the server died")
    assert set(entry) == set(_row("G6", 1))
    assert (entry["met"], entry["figure"], entry["notes"]) == (
        False,
        None,
        ["the server died"],
    )


def test_an_entry_says_whether_others_used_the_machine() -> None:
    measured = Measured("G6", [Run(1, 1)])
    assert quiet(row(measured, Circumstances(load=5, busy=0.1)))
    assert not quiet(row(measured, Circumstances(load=0, busy=0.11)))


@pytest.mark.parametrize(
    ("name", "floors", "is_steady"),
    [
        ("G1", [1000, 500, 900], True),
        ("G1", [1000, 499, 900], False),
        ("G4.sqlite", [None, None], True),
        ("G17", [1000, 10], True),
    ],
)
def test_an_entry_says_whether_its_floor_held_still(
    name: str, floors: list[float | None], is_steady: bool
) -> None:
    runs = [Run(figure=1, floor=floor) for floor in floors]
    entry = row(Measured(name, runs), Circumstances(load=0, busy=0))
    assert steady(entry) is is_steady


def test_goals_stand_in_their_order_whatever_was_measured_first() -> None:
    results = Results({})
    for name in ("G13", "G1", "G6"):
        results.put([_row(name, 1)], [])
    assert [entry["id"] for entry in results.goals] == ["G1", "G6", "G13"]


def test_some_goals_measured_again_replace_their_entries_and_no_others() -> None:
    old = Results({"cores": 2})
    old.put([_row("G1", 1), _row("G6", 1)], [Series("readers", "floor", [(1, 1)])])
    new = Results({"cores": 2})
    new.put([_row("G6", 2)], [Series("readers", "sse_response", [(1, 2)])])
    both = old.merged(new)
    assert [(e["id"], e["figure"]) for e in both.goals] == [("G1", 1), ("G6", 2)]
    assert [line["label"] for line in both.series] == ["floor", "sse_response"]
    assert [entry["figure"] for entry in old.goals] == [1, 1]


def test_a_goal_that_is_no_more_leaves_the_file() -> None:
    old = Results({}, [{"id": "G0"}, _row("G1", 1)])
    assert [entry["id"] for entry in old.merged(Results({})).goals] == ["G1"]


def test_the_file_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    results = Results({"cores": 2})
    results.put([_row("G1", 1234.5678)], [Series("writers", "SQLite", [(1, 2.5)])])
    path = tmp_path / "new" / "results.json"
    results.save(path)
    assert Results.load(path) == results


def test_an_outcome_passes_from_process_to_process() -> None:
    outcome = Outcome(
        [Measured("G1", [Run(1.5, 2.5), Run(3.0)], ["a note"])],
        [Series("length", "SQLite", [(1, 2.5), (2, 3.5)])],
    )
    assert Outcome.from_json(json.loads(json.dumps(outcome.as_json()))) == outcome
