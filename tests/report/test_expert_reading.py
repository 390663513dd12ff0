"""What an expert who knows a sample would see at once, held against figures of the raw file."""

from __future__ import annotations

import csv
import gzip

import polars as pl
import pytest

from profiler.analysis import ReportInput, change, extent, words
from profiler.analysis.analyze import analyze
from profiler.report import build_report
from profiler.tools.sources import load
from tests.corpus import CORPUS, needs_corpus

_RECOMMENDER = CORPUS / "torch_multirank" / "trace_filter"
_DECODE = CORPUS / "rocprofv3" / "ruv_decode"
_RESNET = CORPUS / "torch_kineto_tb" / "resnet50_num_workers_4"


def _rows(name):
    with gzip.open(_DECODE / name, "rt") as file:
        return [*csv.DictReader(file)]


@needs_corpus
def test_a_recording_that_lost_most_of_its_kernels_blames_nobody():
    """Of 181 launches in the API trace 178 have no kernel, by the two CSV files joined by
    correlation id. The report says so, and draws nothing from when the device was idle."""
    dispatched = {row["Correlation_Id"] for row in _rows("decode_kernel_trace.csv.gz")}
    calls = _rows("decode_hip_api_trace.csv.gz")
    launches = [row["Correlation_Id"] for row in calls if "Launch" in row["Function"]]
    lost = sum(one not in dispatched for one in launches)
    assert (len(launches), lost) == (181, 178)
    analysis = analyze(load(_DECODE))
    noted = analysis.health.filter(rule="lost_work").select("device", "count", "total").rows()
    assert noted == [("rocm:1", lost, len(launches))]
    assert [finding.rule for finding in analysis.findings] == ["incomplete_trace"]


@needs_corpus
def test_a_recommender_has_no_attention():
    """Features are multiplied with each other in batches (bmm); the one softmax is of two numbers.
    FBGEMM's kernels look embeddings up, and update them in the backward pass."""
    analysis = analyze(load(_RECOMMENDER))
    commands = analysis.commands.with_columns(
        pl.col("op_type", "kernel", "role").cast(pl.String),
    ).filter(~pl.col("category").is_in(["host", "sync"]))
    products = commands.filter(pl.col("op_type").is_in(["aten::bmm", "aten::mm", "aten::addmm"]))
    computed = products.filter(
        ~pl.col("kernel").str.contains("(?i)memset|splitKreduce|elementwise")
    )
    assert set(computed["role"]) == {"matmul"}
    tables = commands.filter(pl.col("kernel").str.contains("split_embedding"))
    assert set(tables["role"]) == {"embedding"}
    time = commands["duration_ns"].sum()
    assert (
        commands.filter(pl.col("role") == "other")["duration_ns"].sum() < 0.025 * time
    )  # sorts of indices


@needs_corpus
def test_a_training_step_updates_its_weights():
    """SGD adds gradients to weights of their size, and a ResNet-50's 161 weights are no residuals;
    its forward pass has 16 of these a step. What old traces say of memory are changes alone."""
    run = load(_RESNET)
    analysis = analyze(run)
    place = analysis.commands["layer"].cast(pl.String).str.split("/").list.first()
    commands = analysis.commands.with_columns(place=place, role=pl.col("role").cast(pl.String))
    residuals = commands.filter(pl.col("role") == "residual")
    counted = dict(residuals.group_by("place").len().iter_rows())
    assert counted.get("forward") == 16 * 6
    assert "optimizer" not in counted
    updates = commands.filter(
        pl.col("place") == "optimizer", pl.col("op_type").cast(pl.String) == "aten::add_"
    )
    assert set(updates["role"]) == {"optimizer"}
    report = build_report(ReportInput(analysis, *extent(run)))
    memory = next(one for one in report.sections if one.key == "memory")
    notes = [note for part in memory.parts for note in part.notes]
    assert any("cuda:0 held when the recording began is unknown" in note for note in notes)


@needs_corpus
def test_fewer_launches_do_not_help_two_kernels():
    """Two kernels in 40 ms, whose launches load modules: warm up."""
    analysis = analyze(load(CORPUS / "nsys" / "mock.sqlite"))
    (found,) = [one for one in analysis.findings if one.rule == "host_bound"]
    assert "Warm up" in change(found)
    assert "Launch less" not in words(found).recommendation


@needs_corpus
def test_the_critical_path_of_a_busy_device_lies_on_it():
    """One stream of twenty kernels of 200 ms, 2 ms apart, and no wait of the host: the device is
    busy for 99 % of the time, so that the path lies on it for as long."""
    analysis = analyze(load(CORPUS / "nsys" / "healthy_judged_1pct.sqlite"))
    parts = dict(analysis.critical_path.select("part", "path_ns").rows())
    assert parts["compute"] == 20 * 200_000_000 == analysis.kernels["total_ns"].sum()
    assert parts["launches"] + parts["queued"] == pytest.approx(19 * 2_000_000, rel=1e-3)


@needs_corpus
def test_the_costliest_operator_of_a_training_is_its_collective():
    """RCCL's kernel takes 4,158.8 of 4,441.7 ms: it leads what is costliest, marked as what it
    is."""
    analysis = analyze(load(CORPUS / "rocprofv3" / "908_results.json.gz"))
    first = analysis.shapes.row(0, named=True)
    assert first["label"] == "collective ncclDevKernel_Generic_1"
    assert round(first["total_ns"] / 1e6, 6) == 4158.756678
    assert first["share"] == pytest.approx(4158.756678 / 4441.741378)


@needs_corpus
def test_shares_of_what_ran_in_calls_are_of_these():
    """Of 45.6 ms of work 13.7 had been launched before the recording: the costliest product is
    4.02 ms of the 31.9 in the model, and what was launched before has no share."""
    path = CORPUS / "torch_pairs" / "Qwen_Qwen1.5-0.5B-Chat__h100.json.gz"
    shapes = analyze(load(path)).shapes
    first = shapes.row(0, named=True)
    assert first["label"] == "mm 8944×1024×2816 bf16"
    assert first["share"] == pytest.approx(4.02 / 31.9, rel=0.01)
    outside = shapes.filter(pl.col("submodule").is_null())
    assert len(outside) > 5
    assert outside["share"].null_count() == len(outside)
