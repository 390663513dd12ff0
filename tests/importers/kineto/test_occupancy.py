"""How kernels fill their device: what a trace says of each launch, as means of kernels."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus

from .traces import flux

_FILES = ("wild/switch_moe_a100.json.gz", "wild/kineto_cuda_sync_after_fix.json.gz")


def _told(occupancy, blocks, warps):
    return {
        "est. achieved occupancy %": occupancy,
        "blocks per SM": blocks,
        "warps per SM": warps,
    }


def test_kernels_have_the_means_of_their_launches(tmp_path):
    """A launch of 30 µs weighs three times as much as one of 10; texts are numbers, too; what is no
    share or no number is not known, nor 0 with 12 warps on each processor, as Kineto estimates for
    kernels with much shared memory; a kernel of which nothing was said has none."""
    trace = flux()
    trace.kernel("gemm", 60, 10, launched=23, **_told(20, 1.0, 8.0))
    trace.kernel("gemm", 70, 30, launched=24, **_told("60", "2.0", 16))
    trace.kernel("odd", 100, 10, launched=25, **_told(250, "none", -1))
    trace.kernel("plain", 110, 10, launched=26)
    trace.kernel("much shared memory", 120, 10, launched=27, **_told(0, 1.0, 12.0))
    trace.kernel("one block", 130, 10, launched=28, **_told(0, 0.01, 0.3))
    analysis = analyze(trace.imported(tmp_path))
    rows = analysis.kernels.select(
        "kernel", "occupancy_share", "blocks_per_sm", "warps_per_sm"
    ).sort("kernel")
    assert rows.rows() == [
        ("gemm", 0.5, 1.75, 14.0),
        ("much shared memory", None, 1.0, 12.0),
        ("odd", None, None, None),
        ("one block", 0.0, 0.01, 0.3),
        ("plain", None, None, None),
    ]
    columns = ("occupancy_share", "blocks_per_sm", "warps_per_sm")
    (gemm,) = analysis.shapes.filter(pl.col("kernel") == "gemm").select(columns).rows()
    assert gemm == (0.5, 1.75, 14.0)


@needs_corpus
@pytest.mark.parametrize("name", _FILES)
def test_real_traces_have_what_their_text_says(name, tmp_path):
    """Of every kernel the mean by time, from the JSON alone."""
    path = CORPUS / name
    sums: dict[str, list[float]] = {}
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        share = event.get("args", {}).get("est. achieved occupancy %")
        if event.get("cat", "").lower() == "kernel" and share is not None:
            of = sums.setdefault(event["name"], [0.0, 0.0])
            of[0] += event["dur"] * float(share) / 100
            of[1] += event["dur"]
    expected = {kernel: total / length for kernel, (total, length) in sums.items() if length}
    kernels = analyze(load(import_trace(path, tmp_path))).kernels.drop_nulls("occupancy_share")
    found = dict(kernels.select("kernel", "occupancy_share").iter_rows())
    assert found == pytest.approx(expected)
    assert found
