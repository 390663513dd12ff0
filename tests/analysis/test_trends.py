"""Robust statistics over rows: what they give by hand, and what they never do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from profiler.analysis.step_matrix import medians, outlying, slopes, spreads, warm_up

NAN = np.nan


def _rows(*rows):
    return np.array(rows, dtype=np.float64)


def test_medians_leave_out_what_was_not_measured():
    """Of 1, 3, 9 and of 1, 3; a row of nothing has none."""
    found = medians(_rows([1, 9, 3, NAN], [NAN, 3, NAN, 1], [NAN] * 4))
    assert found[:2].tolist() == [3, 2]
    assert np.isnan(found[2])


def test_spread_is_the_scaled_median_deviation():
    """1, 2, 3, 4, 9: deviations from 3 are 2, 1, 0, 1, 6."""
    assert spreads(_rows([1, 2, 3, 4, 9])).tolist() == [pytest.approx(1.4826)]


def test_outliers_need_five_usual_values_and_five_per_cent():
    """20 stands out from five tens; 10.4 does not, nor anything from four values."""
    rows = _rows([10, 10, 10, 10, 10, 20], [10, 10, 10, 10, 10, 10.4], [10, 10, 10, NAN, NAN, 20])
    assert outlying(rows, rows).tolist() == [
        [False] * 5 + [True],
        [False] * 6,
        [False] * 6,
    ]


def test_warm_up_is_the_first_values_above_the_later_half():
    """30 and 20 before eight tens and more; a late 30 is none, and one behind a usual value."""
    rows = _rows(
        [30, 20, *[10] * 10],
        [*[10] * 11, 30],
        [10, 30, *[10] * 10],
        [NAN, 30, *[10] * 10],
    )
    assert warm_up(rows)[0].tolist() == [2, 0, 0, 0]


def test_slope_of_a_line_is_exact():
    """7 a step, with a value missing and one far off: the median of slopes holds."""
    values = 100 + 7.0 * np.arange(12)
    values[3], values[8] = NAN, 1e6
    slope, low, high = slopes(values[None, :])
    assert slope[0] == pytest.approx(7)
    assert low[0] <= 7 <= high[0]


def test_interval_by_hand():
    """1, 2, 4, 3, 5: of ten slopes in order, C = 1.96 √16.67 leaves first and last."""
    slope, low, high = slopes(_rows([1, 2, 4, 3, 5]))
    assert slope[0] == pytest.approx(1.0)
    assert (low[0], high[0]) == (-1.0, 2.0)


def test_few_values_have_no_slope():
    """Four say nothing."""
    slope, low, high = slopes(_rows([1, 2, 3, 4, NAN]))
    assert np.isnan([slope[0], low[0], high[0]]).all()


def test_long_rows_are_shortened_without_changing_their_slope():
    """1,000 values of a line."""
    slope, *_ = slopes(3.0 * np.arange(1000)[None, :])
    assert slope[0] == pytest.approx(3)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0), (0, 7), (1, 1)])
def test_nothing_in_nothing_out(shape):
    """No rows, no columns."""
    values = np.zeros(shape)
    assert medians(values).shape == spreads(values).shape == (shape[0],)
    assert outlying(values, values).shape == shape
    assert slopes(values)[0].shape == warm_up(values)[0].shape == (shape[0],)


_VALUES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 20)),
    elements=st.one_of(st.just(NAN), st.integers(0, 1000).map(float)),
)


@given(_VALUES)
@settings(deadline=None)
def test_intervals_hold_their_slope_and_shift_with_nothing(values):
    """low ≤ slope ≤ high; a constant added to all values changes none of them."""
    (slope, low, high), (moved, *_) = slopes(values), slopes(values + 1000)
    known = ~np.isnan(slope)
    assert (low[known] <= slope[known]).all()
    assert (slope[known] <= high[known]).all()
    np.testing.assert_allclose(slope, moved)
