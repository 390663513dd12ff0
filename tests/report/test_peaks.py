"""What part a shape reaches of the peak that bounds it."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.roofline_section import with_of_peak


@pytest.mark.parametrize(
    ("bound", "flops", "bandwidth", "expected"),
    [
        ("compute", 0.8, 0.1, 0.8),
        ("memory", 0.001, 0.5, 0.5),
        ("memory", 0.001, None, None),  # faster than memory
        ("host", 0.3, 0.6, 0.6),
        (None, 0.3, None, 0.3),
        (None, None, None, None),
    ],
)
def test_of_peak(bound, flops, bandwidth, expected):
    """FLOP/s where these bound it, bandwidth where memory does, else the larger of both."""
    types = {"bound": pl.String, "flops_of_peak": pl.Float64, "bandwidth_of_peak": pl.Float64}
    rows = pl.DataFrame([(bound, flops, bandwidth)], schema=types, orient="row")
    assert with_of_peak(rows)["of_peak"].to_list() == [expected]
