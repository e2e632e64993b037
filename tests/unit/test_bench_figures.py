"""The benchmark's statistics."""

from __future__ import annotations

import pytest

from benchmarks.figures import Run, quantile, ratio, spread


def test_of_several_runs_the_median_and_the_extremes_are_told() -> None:
    found = spread([9.0, 1.0, 4.0])
    assert (found.median, found.least, found.most) == (4.0, 1.0, 9.0)


def test_no_runs_are_no_result() -> None:
    with pytest.raises(ValueError, match="no runs"):
        spread([])


def test_a_run_is_held_against_its_own_floor() -> None:
    # One run in three had half the machine: its floor says so.
    runs = [Run(50, 100), Run(25, 50), Run(60, 100)]
    assert ratio(runs) == 0.5


def test_without_floors_there_is_no_ratio() -> None:
    assert ratio([Run(5), Run(7)]) is None
    assert ratio([]) is None


def test_a_ratio_needs_the_floor_of_every_run() -> None:
    assert ratio([Run(50, 100), Run(60)]) is None
    assert ratio([Run(50, 100), Run(60, 0)]) is None


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)]
)
def test_a_quantile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert quantile(list(range(100, 0, -1)), share) == value


def test_the_median_of_few_is_one_of_them() -> None:
    assert quantile([1.0, 3.0], 0.5) == 1.0
    assert quantile([7.0], 0.99) == 7.0


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)
