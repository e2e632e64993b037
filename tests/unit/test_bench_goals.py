"""What counts as met, and which goals a name chooses."""

from __future__ import annotations

import pytest

from benchmarks.figures import Run
from benchmarks.goals import BY_ID, GOALS, GROUPS, chosen
from benchmarks.runner import MODULES


def test_every_goal_has_an_id_of_its_own_and_somebody_who_measures_it() -> None:
    assert len(BY_ID) == len(GOALS)
    assert set(MODULES) == set(GROUPS)


def test_a_rate_is_held_against_its_share_of_the_floor() -> None:
    goal = BY_ID["G1"]
    assert goal.met([Run(500, 1000)])
    assert not goal.met([Run(499, 1000)])


def test_a_time_is_held_against_its_multiple_of_the_floor() -> None:
    goal = BY_ID["G6"]
    assert goal.met([Run(25, 10)])
    assert not goal.met([Run(25.1, 10)])


def test_a_share_of_no_floor_is_not_met() -> None:
    assert not BY_ID["G1"].met([Run(1_000_000)])


def test_a_limit_is_held_against_the_median() -> None:
    goal = BY_ID["G7.first"]
    assert goal.met([Run(19), Run(20), Run(500)])
    assert not goal.met([Run(19), Run(21), Run(21)])


def test_always_is_held_against_the_worst_run() -> None:
    goal = BY_ID["G10.down"]
    assert goal.met([Run(0.1), Run(1.5)])
    assert not goal.met([Run(0.1), Run(0.1), Run(1.51)])


def test_nothing_named_is_everything() -> None:
    assert chosen("") == list(GROUPS)


def test_goals_are_chosen_by_name_and_measured_in_their_order() -> None:
    assert chosen("g6, G1") == ["G1", "G6"]


def test_a_name_is_not_the_beginning_of_another() -> None:
    assert chosen("G1") == ["G1"]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"G99.*G1, G2"):
        chosen("G1,G99")
