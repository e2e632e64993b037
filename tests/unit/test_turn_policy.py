"""What a submit does while another turn runs or waits: the whole table."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.turns.policy import (
    CancelAfter,
    Concurrency,
    Debounce,
    Decision,
    decide,
)

IN_LINE = Decision()
OVERTAKES = Decision(overlapping=True, overtake=True)

# mode: what becomes of a submit that overlaps another turn
OVERLAPPING: list[tuple[Concurrency, Decision]] = [
    ("queue", IN_LINE),
    ("latest", OVERTAKES),
    ("merge", Decision(overlapping=True, overtake=True, join=True)),
    ("drop", Decision(accept=False)),
    (Debounce(0.5), Decision(overlapping=True, overtake=True, delay=0.5)),
]
MODES = [mode for mode, _ in OVERLAPPING]
OTHERS = ["regenerate-message", "save-messages", "continue-last-turn"]


@pytest.mark.parametrize(("mode", "decision"), OVERLAPPING)
def test_a_submit_that_overlaps_goes_by_the_mode(
    mode: Concurrency, decision: Decision
) -> None:
    assert decide(mode, "submit-message", overlaps=True) == decision


@pytest.mark.parametrize("mode", MODES)
def test_a_submit_that_overlaps_nothing_runs_and_is_never_overtaken(
    mode: Concurrency,
) -> None:
    assert decide(mode, "submit-message", overlaps=False) == IN_LINE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trigger", OTHERS)
@pytest.mark.parametrize("overlaps", [False, True])
def test_whatever_is_no_submit_waits_in_line(
    mode: Concurrency, trigger: str, overlaps: bool
) -> None:
    assert decide(mode, trigger, overlaps=overlaps) == IN_LINE


def test_the_pause_of_a_debounce_is_that_of_the_official_server() -> None:
    assert Debounce() == Debounce(0.75)


@pytest.mark.parametrize("kind", [Debounce, CancelAfter])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", None, True])
def test_what_is_no_time_is_refused_by_name_and_value(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=kind.__name__) as caught:
        kind(value)
    assert repr(value) in str(caught.value)
