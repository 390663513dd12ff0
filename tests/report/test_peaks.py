"""What part a shape reaches of the peak that bounds it."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis import DeviceProfile
from profiler.analysis.analyze import analyze
from profiler.analysis.shapes import with_of_peak
from profiler.text import percent
from tests.analysis.shaped_runs import Shaped

from .rendered import report_of


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


@pytest.mark.parametrize("launch_ns", [None, 9.5])
@pytest.mark.parametrize(("flops", "bandwidth"), [(32e9, 56e9), (640e9, 56e9), (64e9, 560e9)])
def test_the_sentence_above_the_shapes_says_what_its_row_says(flops, bandwidth, launch_ns):
    """One part of one peak: the product's 128 FLOPs and 112 bytes in 10 ns are 0.2 of both, or less
    or more of one; the larger part counts, also where a launch takes longest."""
    profile = DeviceProfile(
        "Example", {"bfloat16": flops}, bandwidth, launch_ns, "", measured=True, device="cuda:0"
    )
    product = ("a", "aten::mm", "in: bfloat16[8,4] bfloat16[4,2]", 0, 10)
    analysis = analyze(Shaped([product]).run, measured=[profile])
    (part,) = [
        part
        for section in report_of(analysis).sections
        for part in section.parts
        if part.anchor == "shapes"
    ]
    parts = {"peak": 128 / 10e-9 / flops, "bandwidth": 112 / 10e-9 / bandwidth}
    name = max(parts, key=lambda each: parts[each])
    assert part.lead.values[name] == percent(parts[name])
    assert len({"peak", "bandwidth"} & {*part.lead.values}) == 1
    (row,) = with_of_peak(analysis.shapes).to_dicts()
    assert row["of_peak"] == pytest.approx(parts[name])
