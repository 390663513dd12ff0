"""FLOPs and bytes of the real Stable Diffusion 3.5 trace against TraceLens, an independent tool."""

from __future__ import annotations

import csv
import gzip
import json
from math import prod

import polars as pl
import pytest

from profiler.analysis import kind_work, kinds_of
from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.corpus import SD35, needs_corpus

pytestmark = needs_corpus


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(import_trace(SD35, tmp_path_factory.mktemp("traces")))


@pytest.fixture(scope="module")
def work(run):
    """Kinds and their work, FLOPs and bytes summed over their commands."""
    kinds = kinds_of(run.calls, run.commands)
    return kinds.table.hstack(kind_work(kinds, run.commands).table.drop("kind"))


def _tracelens(name):
    with (SD35.parent / f"sd35_mi300x.tracelens_{name}.csv").open() as file:
        return list(csv.DictReader(file))


def _of(work, *op_types):
    return work.filter(pl.col("op_type").is_in(op_types), pl.col("category") == "compute")


def test_attention_is_that_of_tracelens(work):
    """FLOPs and bytes of all attention, by TraceLens' figures for each shape: a causal mask is half
    the scores."""
    rows = _tracelens("SDPA_fwd")
    flops = moved = 0.0
    for row in rows:
        count = int(row["name_count"])
        flops += float(row["GFLOPS_first"]) * 1e9 * count
        moved += float(row["Data Moved (MB)_first"]) * 2**20 * count
    found = _of(work, "aten::_flash_attention_forward")
    assert found["flops"].sum() == pytest.approx(flops, rel=1e-9)
    assert (found["bytes_read"] + found["bytes_written"]).sum() == pytest.approx(moved, rel=1e-6)


def test_products_are_those_of_the_trace(work):
    """2·M·N·K over every product in the file, read by hand; TraceLens has their number and time,
    and no FLOPs."""
    with gzip.open(SD35) as file:
        events = json.load(file)["traceEvents"]
    expected, count = 0, 0
    first = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
    launched = {
        event["args"].get("External id") for event in events if event.get("cat") == "kernel"
    }
    for event in events:
        place = first.get(event.get("name"))
        if place is not None and event["args"].get("External id") in launched:
            a, b = event["args"]["Input Dims"][place : place + 2]
            expected += 2 * prod(a) * b[-1]
            count += 1
    found = _of(work, *first)
    assert found["flops"].sum() == expected > 1.9e14
    rows = [r for r in _tracelens("ops_summary_by_category") if r["op category"] == "GEMM"]
    assert found["commands"].sum() == count == sum(int(row["Count"]) for row in rows)
    milliseconds = sum(float(row["total_direct_kernel_time_ms"]) for row in rows)
    assert found["total_ns"].sum() / 1e6 == pytest.approx(milliseconds, rel=1e-4)


def test_group_norms_move_what_tracelens_says(work):
    """Bytes of group norms, which run as two kernels each, within 0.1 %."""
    rows = [r for r in _tracelens("Normalization_fwd") if r["name"] == "aiter::_groupnorm_run"]
    moved = sum(
        float(row["Data Moved (MB)_first"]) * 2**20 * int(row["name_count"]) for row in rows
    )
    found = _of(work, "aiter::_groupnorm_run")
    assert found["commands"].sum() == 2 * sum(int(row["name_count"]) for row in rows)
    assert (found["bytes_read"] + found["bytes_written"]).sum() == pytest.approx(moved, rel=1e-3)


def test_the_roof_is_that_of_the_hardware(run):
    """Products and attention are compute-bound, below the published roofline of an MI300X; little
    of the time has no roofline."""
    roofline = analyze(run).roofline
    large = roofline.filter(pl.col("total_ns") > 30_000_000)
    assert set(large["bound"]) == {"compute"}
    assert (large["of_roofline"] < 1).all()
    without = roofline.filter(pl.col("roofline_ns").is_null())
    assert without["total_ns"].sum() < 0.01 * roofline["total_ns"].sum()


def test_what_takes_a_part_of_its_input_counts_that_part(run):
    """Kernels that cut a buffer, with figures worked out by hand from the dims: 333 of 4429 rows
    read and written; 4096 of 36864 rows of the positional embedding beside 2·4096·2432 elements;
    and a gelu in place, which reads and writes what it updates."""
    roofline = analyze(run).roofline
    names = {
        "triton_poi_fused__unsafe_view_clone_slice_transpose_13": 148 * 2 * 2 * (2 * 333 * 2432),
        "triton_red_fused__unsafe_view_add_clone_convolution_native_layer_norm_slice_transpose_view"
        "_4": 4 * (2 * (3 * 4096 * 2432 + 2432) + 3 * 4 * (2 * 4096 * 19)),
        "triton_poi_fused_addmm_gelu_view_15": 152 * 2 * (2 * 2 * 4096 * 9728 + 9728),
    }
    moved = dict(roofline.select("layer", "bytes").iter_rows())
    assert {name: moved[name] for name in names} == names
    shares = dict(roofline.select("layer", "of_roofline").iter_rows())
    expected = (0.233, 0.305, 0.434)
    assert [shares[name] for name in names] == pytest.approx(expected, abs=0.0005)
