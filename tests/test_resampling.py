"""Intervals of differences: they are of the right width, and always the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace.bootstrap import Bootstrap

QUIET = [100.0, 101, 99, 102, 98, 100, 101, 99]


def _calls(base, new):
    return Bootstrap().compare(base, new).exceeds_noise


def test_one_value_a_side_has_no_interval():
    """What was measured once says nothing about noise."""
    found = Bootstrap().compare([100.0], [150.0])
    assert (found.base, found.new, found.low, found.high) == (100, 150, None, None)
    assert not found.exceeds_noise


def test_a_difference_beyond_the_scatter_is_called():
    """20 % where values scatter by 2 %; the same values are no difference."""
    assert _calls(QUIET, [1.2 * value for value in QUIET])
    assert not _calls(QUIET, QUIET)
    assert not _calls(QUIET, [1.005 * value for value in QUIET])


def test_two_values_a_side_call_next_to_nothing():
    """Two values may be close by chance: 5 % apart, each pair within 1 %, is not called."""
    assert not _calls([100.0, 101.0], [105.0, 106.0])
    assert _calls([100.0, 101.0, 100.5, 100.2], [105.0, 106.0, 105.5, 105.2])


def test_one_slow_value_is_no_difference():
    """A single value that the machine interrupted does not move the median."""
    assert not _calls(QUIET, [*QUIET[:-1], 1000.0])


@pytest.mark.parametrize(("value", "called"), [(150.0, True), (101.0, False), (60.0, True)])
def test_a_single_value_scatters_as_the_other_side(value, called):
    """One new run against eight baselines."""
    assert _calls(QUIET, [value]) is called
    assert _calls([value], QUIET) is called


def test_zeros():
    """How a time scatters that was 0 thrice and is not once is not known; thrice, it is there."""
    found = Bootstrap().compare([0.0, 0.0, 0.0], [7.0])
    assert (found.low, found.high, found.assumed) == (None, None, True)
    assert _calls([0.0, 0.0, 0.0], [7.0, 8.0, 7.0])


@pytest.mark.parametrize(
    ("base", "new", "called"),
    [
        ([100.0, 100.0], [101.0], False),
        ([100.0, 100.0], [110.0], False),
        ([100.0, 100.0], [115.0], True),
        ([100.0, 100.0], [104.0, 104.0], False),
        ([100.0, 100.0], [106.0, 106.0], True),
        ([100.0, 100.1], [104.0, 104.1], False),
        ([100.0] * 3, [102.0], False),
        ([100.0] * 3, [105.0], True),
        ([100.0] * 27, [101.0] * 27, False),
        ([100.0] * 27, [102.0] * 27, True),
    ],
)
def test_values_that_show_no_noise_are_not_without_it(base, new, called):
    """Equal values, or two close ones, call what exceeds a spread of 0.5 % widened for so few."""
    found = Bootstrap().compare(base, new)
    assert found.assumed
    assert found.high - found.low > 0.01 * found.base
    assert found.exceeds_noise is called


def test_a_spread_that_is_observed_is_not_assumed():
    """However small it is, of three values or more."""
    assert not Bootstrap().compare([100.0, 100.1, 100.2], [100.0, 100.1, 100.3]).assumed


@pytest.mark.parametrize(("base", "new"), [(2, 1), (1, 3), (2, 2), (3, 2), (5, 5)])
def test_rounded_noise_alone_is_rarely_called(base, new):
    """Values that scatter by 0.3 %, on a clock of 0.5 %: at most 8 % of 400 pairs; an interval of
    no width called 20 % of two against one."""
    generator = np.random.default_rng(5)
    bootstrap = Bootstrap()
    called = 0
    for _ in range(400):
        values = np.round(generator.lognormal(0, 0.003, base + new) * 200) / 200
        called += bootstrap.compare(values[:base], values[base:]).exceeds_noise
    assert called <= 0.08 * 400


def test_the_same_values_have_the_same_interval():
    """In any order, and whatever was compared before."""
    used = Bootstrap()
    used.compare(QUIET, QUIET[:3])
    assert used.compare(QUIET, QUIET[1:]) == Bootstrap().compare(QUIET[::-1], QUIET[1:])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10, 27])
def test_middle_ranks_are_those_of_drawing_values(n):
    """The medians have the distribution of those of values drawn one by one: mean and deviation
    of 20,000 agree to 3 % of the range of ranks."""
    lower, upper = Bootstrap(20_000)._middle(0, n)
    drawn = np.random.default_rng(7).integers(0, n, (20_000, n))
    expected = np.median(drawn, axis=1)
    found = (lower + upper) / 2
    assert found.mean() == pytest.approx(expected.mean(), abs=0.03 * n)
    assert found.std() == pytest.approx(expected.std(), abs=0.03 * n)


@pytest.mark.parametrize(
    ("base", "new"), [(3, 3), (5, 5), (10, 10), (27, 27), (3, 1), (5, 1), (10, 1)]
)
def test_noise_alone_is_rarely_called(base, new):
    """Of 400 pairs of equal sides at most 8 % are called different; the interval promises 5 %."""
    generator = np.random.default_rng(11)
    bootstrap = Bootstrap()
    called = 0
    for _ in range(400):
        values = generator.lognormal(0, 0.05, base + new)
        called += bootstrap.compare(values[:base], values[base:]).exceeds_noise
    assert called <= 0.08 * 400


_SIDE = st.lists(st.integers(0, 10**12), min_size=1, max_size=40)


@given(_SIDE, _SIDE)
def test_the_difference_lies_in_its_interval(base, new):
    """Whatever was measured."""
    found = Bootstrap(500).compare(base, new)
    if len(base) == len(new) == 1:
        assert found.low is None
        return
    slack = 1e-9 * (found.base + found.new)
    assert found.low - slack <= found.new - found.base <= found.high + slack
