"""A fleet of 500 runs with three planted regressions: all are found, none is invented."""

from __future__ import annotations

import numpy as np

from profiler.fleet.dataset import Dataset
from profiler.fleet.metric_history import metric_history
from profiler.fleet.storage import LocalStorage
from tests.fleet.histories import drift, flat, two_modes
from tests.fleet.simulated import addition, filled, key

PLANTED = {
    "denoise.step": [(180, 0.05)],
    "elapsed": [(260, 0.08)],
    "denoise.first_step": [(400, 0.2)],
    "decode.elapsed": [],
    "encode.elapsed": [],
    "denoise.idle": [],
}


def values_of_500():
    """Noise of 1 to 3 %, two modes, a drift; regressions as planted."""
    generator = np.random.default_rng(2026)
    made = {
        "step": flat(generator, 500, 0.01),
        "elapsed": flat(generator, 500, 0.02),
        "first_step": flat(generator, 500, 0.03),
        "decode": flat(generator, 500, 0.03),
        "encode": two_modes(generator, 500, 0.01),
        "idle": drift(generator, 500, 0.02, 0.0005),
    }
    for name, (at, by) in {
        "step": (180, 0.05),
        "elapsed": (260, 0.08),
        "first_step": (400, 0.2),
    }.items():
        made[name][at:] *= 1 + by
    return made


def test_three_of_three_and_nothing_else(tmp_path):
    """Each planted regression is an alarm at its run (within one, at 2 % noise); metrics with noise
    alone, two modes and a drift have no change, and the last two are told as what they are."""
    from profiler.fleet.measures import Measure

    made = values_of_500()
    runs = []
    for number in range(500):
        one = addition(number, {"elapsed": made["elapsed"][number], "step": made["step"][number]})
        more = [
            ("denoise", "first_step", made["first_step"]),
            ("decode", "elapsed", made["decode"]),
            ("encode", "elapsed", made["encode"]),
            ("denoise", "idle", made["idle"]),
        ]
        rows = tuple(
            Measure(
                stage, None, None, None, None, None, name, float(values[number]), None, None, "ns"
            )
            for stage, name, values in more
        )
        object.__setattr__(one, "summary", replaced(one.summary, rows))
        runs.append(one)
    filled(LocalStorage(tmp_path / "fleet"), runs)
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


def replaced(summary, rows):
    """A summary with further rows."""
    from msgspec.structs import replace

    return replace(summary, metrics=(*summary.metrics, *rows))
