"""Which runs are comparable, and why not."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.errors import InputError
from profiler.fleet.change_points import ratio_interval, relative_noise, runs_needed
from profiler.fleet.dataset import FIELDS, Why, checked_fields, differences, groups
from profiler.run.columns import schema
from profiler.tools.metrics import RUNS
from tests.fleet.simulated import IDENTITY, noisy

_SCHEMA = {name: dtype for name, dtype in schema(RUNS).items() if name in FIELDS}


def _runs(*changes: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame([{**IDENTITY, **each} for each in changes], schema=_SCHEMA, orient="row")


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_counts(field):
    """A field with another value, or an unknown one, makes runs incomparable; assumed the same, an
    unknown one does not, and another value still does."""
    other = "other" if isinstance(IDENTITY[field], str) else 99
    changed, unknown = {**IDENTITY, field: other}, {**IDENTITY, field: None}
    (found,) = differences(IDENTITY, changed)
    assert (found.field, found.why, found.other) == (field, Why.DIFFERENT, other)
    (found,) = differences(IDENTITY, unknown)
    assert (found.field, found.why, found.other) == (field, Why.UNKNOWN, None)
    assert differences(unknown, unknown)
    assert not differences(IDENTITY, unknown, assume_same=(field,))
    assert differences(IDENTITY, changed, assume_same=(field,))
    assert not differences(IDENTITY, changed, ignored=(field,))


def test_groups():
    """Comparable runs share a group; a run with an unknown field is in none."""
    found = groups(_runs({}, {}, {"steps": 20}, {"cache": None}, {"cache": None}))["group"]
    assert found[0] == found[1] != found[2]
    assert found.null_count() == 2


def test_groups_with_assumed_fields():
    """An unknown field joins the one value that runs which agree otherwise have; where they have
    two, nobody can say which, and it stays apart."""
    one = groups(_runs({}, {"cache": None}), assume_same=("cache",))["group"]
    assert one[0] == one[1]
    two = groups(_runs({}, {"cache": "F"}, {"cache": None}, {"cache": None}), ("cache",))["group"]
    assert two.n_unique() == 3
    assert two[2] == two[3]


def test_groups_agree_with_differences():
    """Both ways of asking say the same of every pair."""
    changes = [{}, {"steps": 20}, {"software": None}, {"guidance": 4.5}, {}, {"steps": 20}]
    found = groups(_runs(*changes))["group"].to_list()
    for i, one in enumerate(changes):
        for j, other in enumerate(changes):
            agree = not differences({**IDENTITY, **one}, {**IDENTITY, **other})
            assert agree == (found[i] is not None and found[i] == found[j])


def test_fields_are_checked():
    """Names of fields and of groups of them; others are refused."""
    assert checked_fields(["variant,steps"], "--assume-same") == ("weights", "adapters", "steps")
    with pytest.raises(InputError, match="--assume-same 'speed'"):
        checked_fields(["speed"], "--assume-same")


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_noise_is_found(noise):
    """The noise of normal values within a fifth."""
    assert relative_noise(noisy(400, 5e6, noise, 1)) == pytest.approx(noise, rel=0.2)


def test_runs_needed():
    """Quiet runs need as many as an interval takes; noisy ones as many as the noise asks for."""
    assert runs_needed([5.0]) == 5
    assert runs_needed(noisy(8, 5e6, 0.001, 1)) == 0
    assert runs_needed(noisy(40, 5e6, 0.10, 1)) == pytest.approx(
        2 * (2.8 * 1.2533 * 2) ** 2 - 40, abs=60
    )


def test_enough_runs_tell_the_difference():
    """With as many runs as are asked for, a difference of 5 % is told in most cases, and where
    there is none, hardly ever."""
    needed = 2 + runs_needed(noisy(60, 5e6, 0.03, 0)) + 60
    told, false = 0, 0
    for seed in range(60):
        base = noisy(needed, 5e6, 0.03, 3 * seed)
        low = ratio_interval(noisy(needed, 5.25e6, 0.03, 3 * seed + 1), base)[1]
        told += low is not None and low > 1
        ends = ratio_interval(noisy(needed, 5e6, 0.03, 3 * seed + 2), base)[1:]
        false += ends[0] is not None and not ends[0] <= 1 <= ends[1]
    assert told >= 48
    assert false <= 6
