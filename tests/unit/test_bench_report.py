"""The benchmark's table and page, and that the page says what was measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import report
from benchmarks.__main__ import PAGE, RESULTS
from benchmarks.figures import Run
from benchmarks.goals import BY_ID
from benchmarks.results import Circumstances, Measured, Results, failed, row

ALONE = Circumstances(load=0.5, busy=0.0)
BESIDE_OTHERS = Circumstances(load=5.0, busy=0.9)
MACHINE: dict[str, Any] = {
    "processor": "Abacus 1",
    "cores": 2,
    "memory": "4 GiB",
    "system": "Linux 6",
    "python": "3.11",
    "packages": {"django": "5.2"},
    "postgresql": "version 15",
    "sqlite": "3.40",
}


def _entry(name: str, around: Circumstances = ALONE, **run: float) -> dict[str, Any]:
    return row(Measured(name, [Run(**run)], ["a note"]), around)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.05678, "0.0568"),
        (1.5, "1.5"),
        (99.94, "99.9"),
        (2573.4, "2,573"),
    ],
)
def test_a_number_has_three_digits_or_more(value: float | None, text: str) -> None:
    assert report.number(value) == text


def test_the_table_has_a_line_a_goal_with_its_load_and_its_notes() -> None:
    text = report.table([_entry("G1", figure=2573.4, floor=3676)])
    head, line, note = text.splitlines()
    assert line.split("  ")[0] == "G1"
    for cell in ("2,573 appends/s", "3,676", "0.7", "≥ 0.5 × floor", "yes", "0.5"):
        assert cell in line
    assert head.index("figure") + len("figure") == line.index("/s") + len("/s")
    assert note.strip() == "a note"


def test_a_line_tells_a_goal_in_short() -> None:
    assert report.line(_entry("G1", figure=400, floor=1000)).split(maxsplit=1) == [
        "G1",
        "one async writer, PostgreSQL: 400 appends/s, 0.4 × floor  (missed)",
    ]
    assert report.line(_entry("G7.first", figure=5)).endswith("event: 5 ms")


def test_the_verdict_names_what_was_missed_and_what_was_disturbed() -> None:
    text = report.verdict(
        [
            _entry("G1", figure=1, floor=1),
            _entry("G2", BESIDE_OTHERS, figure=1, floor=100),
        ]
    )
    assert "1 of 2 met" in text
    assert "missed: G2" in text
    assert "at: G2; measure" in text


def test_the_verdict_and_the_page_name_figures_whose_floor_moved() -> None:
    runs = [Run(figure=600, floor=1000), Run(figure=300, floor=400)]
    entry = row(Measured("G1", runs), ALONE)
    assert "moved by half at: G1; the same" in report.verdict([entry])
    assert "distrust them too: G1." in report.markdown(Results(MACHINE, [entry]))


def test_on_a_quiet_machine_the_verdict_says_so() -> None:
    assert "nobody else" in report.verdict([_entry("G1", figure=1, floor=1)])


def test_the_page_has_the_machine_the_table_and_the_notes() -> None:
    results = Results(
        MACHINE,
        [
            _entry("G1", figure=600, floor=1000),
            failed(BY_ID["G6"], BESIDE_OTHERS, "the server died"),
        ],
    )
    text = report.markdown(results)
    assert "2 cores of Abacus 1" in text
    assert (
        "| G1 | one async writer, PostgreSQL | 600 appends/s | 600–600 "
        "| 1,000 | 0.6 | ≥ 0.5 × floor | yes |"
    ) in text
    assert "| G6 |" in text
    assert "- G6: the server died." in text
    assert "distrust them: G6." in text


def test_only_what_is_between_the_markers_changes() -> None:
    part = f"{report.BEGIN}\nnew\n{report.END}"
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.put(page, part) == f"before\n{part}\nafter\n"


@pytest.mark.parametrize("page", ["", report.BEGIN, report.END])
def test_a_page_without_markers_is_left_alone(page: str) -> None:
    with pytest.raises(ValueError, match="has no"):
        report.put(page, "new")


def test_the_page_on_performance_shows_what_the_result_file_holds() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert report.put(page, report.markdown(Results.load(RESULTS))) == page


def test_the_result_file_has_every_goal_with_at_least_five_runs() -> None:
    goals = json.loads(RESULTS.read_text(encoding="utf-8"))["goals"]
    assert [entry["id"] for entry in goals] == list(BY_ID)
    few = [e["id"] for e in goals if len(e["runs"]) < 5 and e["figure"] is not None]
    assert few == []
