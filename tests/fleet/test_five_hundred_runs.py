"""A fleet of 500 runs with three planted regressions: all are found, none is invented."""

from __future__ import annotations

from profiler.fleet import Dataset, LocalStorage
from profiler.fleet.history import metric_history
from tests.fleet.planted import PLANTED, additions, planted_values
from tests.fleet.simulated import filled, key


def test_three_of_three_and_nothing_else(tmp_path):
    """Each planted regression is an alarm at its run (within one, at 2 % noise); metrics with noise
    alone, two modes and a drift have no change, and the last two are told as what they are."""
    filled(LocalStorage(tmp_path / "fleet"), additions(planted_values()))
    data = Dataset(tmp_path / "fleet")
    found = {
        name: metric_history(name, data.history(name), family=len(PLANTED)) for name in PLANTED
    }
    for name, planted in PLANTED.items():
        places = [each.change.at for each in found[name].changes]
        assert len(places) == len(planted), (name, places)
        for at, (true, by), each in zip(places, planted, found[name].changes, strict=True):
            assert abs(at - true) <= 1
            assert abs(each.change.change - by) < 0.02
            assert each.is_open
            assert each.bad["run"] == key(at)
    assert found["encode.elapsed"].two_modes is not None
    assert [each.end for each in found["denoise.idle"].drifts] == [500]
