"""Peaks of measured profiles that a run's own products went beyond."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis import DeviceProfile
from profiler.analysis.roofline import with_attained

MEASURED = DeviceProfile("GPU", {"bfloat16": 790e12}, 4e12, None, "random", measured=True)
PUBLISHED = DeviceProfile("GPU", {"bfloat16": 989e12}, 4.8e12, None, "https://", measured=False)


def _operations(*rows):
    names = ("device", "family", "dtype", "flops", "total_ns")
    return pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows])


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("cuda:0", "matmul", "bfloat16", 840e9, 1_000_000), 840e12),
        (("cuda:0", "matmul", "bfloat16", 700e9, 1_000_000), 790e12),  # slower than measured
        (("cuda:0", "matmul", "bfloat16", 1200e9, 1_000_000), 790e12),  # no device does that
        (("cuda:0", "matmul", "bfloat16", 84e9, 100_000), 790e12),  # too short to be timed
        (("cuda:0", "attention", "bfloat16", 840e9, 1_000_000), 790e12),  # keys may be left out
        (("cuda:1", "matmul", "bfloat16", 840e9, 1_000_000), 790e12),
        (("cuda:0", "matmul", "float16", 840e9, 1_000_000), 790e12),
    ],
)
def test_peak(row, expected):
    """A product of the run that is faster than what was measured, and no faster than what is
    published, is what the device can do."""
    found = with_attained({"cuda:0": MEASURED}, {"cuda:0": PUBLISHED}, _operations(row))
    assert found["cuda:0"].peak("bfloat16") == pytest.approx(expected)
    assert found["cuda:0"].attained == (("bfloat16",) if expected > 790e12 else ())


def test_what_is_published_stays():
    """Of hardware that was not measured, and where nothing is published, nothing is raised."""
    row = ("cuda:0", "matmul", "bfloat16", 840e9, 1_000_000)
    for profile, limits in ((PUBLISHED, {"cuda:0": PUBLISHED}), (MEASURED, {})):
        assert with_attained({"cuda:0": profile}, limits, _operations(row)) == {"cuda:0": profile}
