"""Layer counters of OpenVINO: the corpus by its totals, small files, broken ones."""

from __future__ import annotations

import json

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.importers.importing import importers
from profiler.importers.mixed import contents_of
from profiler.tools.sources import load
from profiler.trace import DropKind, DropReason
from tests.corpus import CORPUS, needs_corpus
from tests.importers.broken import read_or_refused

NAME = "winml_resnet_intel_npu__benchmark_average_counters_report.csv"
HEADER = "layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)"
ROWS = (
    "conv;Status.EXECUTED;Convolution;DPU;0.116;0.464",
    "relu;OPTIMIZED_OUT;ReLU;;0.000;0.000",
    "add;EXECUTED;Add;jit_avx512;0.100;0.090",
)
TOTAL = "Total;;;;0.216;0.554"


def written(folder, *lines, name="benchmark_average_counters_report.csv"):
    path = folder / name
    path.write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    return path


def imported(folder, path):
    return load(import_trace([path], folder / "traces"))


@needs_corpus
def test_the_totals_of_the_corpus(tmp_path):
    """Layers, the sum of their times, the costliest, by type; device, latency and iterations of the
    report beside them: those of `truth.json` and of the report."""
    truth = json.loads((CORPUS / "truth.json").read_text())[f"openvino/{NAME}"]
    run = imported(tmp_path, CORPUS / "openvino" / NAME)
    layers = run.commands.filter(pl.col("category") == "compute")
    assert len(layers) == truth["count"]
    total = int(layers["duration_ns"].sum())
    assert total / 1e6 == pytest.approx(truth["busy_ms"]["(sum of realTime)"], abs=1e-9)
    analysis = analyze(run)
    assert dict(analysis.devices.select("device", "busy_ns").iter_rows())["openvino:0"] == total
    assert analysis.accounting.end_to_end_ns == 3_270_000
    top = layers.sort("duration_ns", descending=True).head(3)
    found = top.select(pl.col("layer").cast(pl.String), "duration_ns").rows()
    assert found == [(name, round(ms * 1e6)) for name, ms in truth["top3"]]
    types = layers.group_by(pl.col("op_type").cast(pl.String)).agg(
        pl.col("duration_ns").sum() / 1e6
    )
    by_type = dict(types.iter_rows())
    assert all(by_type[name] == pytest.approx(ms) for name, ms in truth["top3_layer_type"])
    assert run.info.devices["openvino:0"].hardware == "NPU"
    settings = run.info.settings
    assert (settings["iterations"], settings["median_latency_ms"]) == (16506, 3.27)
    assert run.info.recording.files == 2


def test_layers_lie_end_to_end_and_say_so(tmp_path):
    """Averages in the order of the file; what executed nothing has no command."""
    run = imported(tmp_path, written(tmp_path, *ROWS, TOTAL))
    columns = ("layer", "op_type", "kernel")
    rows = run.commands.select(
        *(pl.col(name).cast(pl.String) for name in columns), "start_ns", "duration_ns"
    ).rows()
    assert rows == [
        ("conv", "Convolution", "DPU", 0, 116_000),
        ("add", "Add", "jit_avx512", 116_000, 100_000),
    ]
    assert [drop.kind for drop in run.drops] == [DropKind.ESTIMATED_TIMES]
    assert run.info.capabilities == ("averages",)


def test_requests_of_detailed_counters_are_calls(tmp_path):
    """The table repeats for each infer request: each is a timeline of its own."""
    run = imported(tmp_path, written(tmp_path, *ROWS, TOTAL, HEADER, *ROWS, TOTAL))
    assert run.calls.select("pipeline", "start_ns").rows() == [(0, 0), (1, 216_000)]


def test_a_sum_that_is_another_is_said(tmp_path):
    """The file's own total is checked, and taken for no layer."""
    run = imported(tmp_path, written(tmp_path, *ROWS, "Total;;;;0.500;0.554"))
    drop = next(drop for drop in run.drops if drop.kind is DropKind.AGGREGATE_MISMATCH)
    assert drop.detail.values == {"layers_ns": 216_000, "total_ns": 500_000}


@pytest.mark.parametrize(
    ("row", "unread"),
    [
        ("x;Status.EXECUTED;Add;DPU;soon;0.1", 1),
        ("x;Status.EXECUTED;Add;DPU;-1;0.1", 1),
        ("x;Status.EXECUTED;Add;DPU;nan;0.1", 1),
        ("x;Status.EXECUTED;Add;DPU;1e300;0.1", 1),
        ("x;BROKEN;Add;DPU;0.1;0.1", 1),
        (";Status.EXECUTED;Add;DPU;0.1;0.1", 1),
        ("x;y", 1),
        ("x;NOT_RUN;Add;;0.0;0.0", 0),
    ],
)
def test_a_damaged_row_is_counted(tmp_path, row, unread):
    """And the others are read."""
    run = imported(tmp_path, written(tmp_path, ROWS[0], row, ROWS[2], TOTAL))
    assert len(run.commands) == 2
    dropped = [drop.count for drop in run.drops if drop.kind is DropKind.DROPPED_EVENTS]
    assert dropped == [unread] * bool(unread)


def test_a_cut_file_is_read_as_far_as_it_is_whole(tmp_path):
    """At whatever byte it ends: a drop, or one sentence."""
    text = "\n".join((HEADER, *ROWS, TOTAL))
    read = 0
    for length in range(len(HEADER), len(text) - len(TOTAL), 13):
        path = tmp_path / f"{length}.csv"
        path.write_text(text[:length])
        run = read_or_refused(imported, tmp_path, path, sentence="holds no time of a layer")
        if run is None:
            continue
        read += 1
        assert DropKind.TRUNCATED_FILE in {drop.kind for drop in run.drops}
    assert read > 3


def test_the_report_alone_is_refused_and_beside_is_read(tmp_path):
    """It has no layers; in the folder of the counters it tells the device."""
    path = written(tmp_path, *ROWS, TOTAL)
    report = tmp_path / "benchmark_report.csv"
    report.write_text(
        "Command line parameters\n-m;a/unet.xml\n\ntarget device;GPU.1\nlatency (ms);2\n"
    )
    with pytest.raises(InputError, match="without layers"):
        import_trace([report], tmp_path / "traces")
    run = imported(tmp_path, path)
    assert (run.info.devices["openvino:0"].hardware, run.info.model) == ("GPU.1", "unet.xml")
    assert recognised([path]).name == "openvino"


@pytest.mark.parametrize(
    ("told", "lasts"),
    [
        ("latency (ms);2", 2_000_000),
        ("latency (ms);0.1", 216_000),
        ("latency (ms);nan", 216_000),
        ("number of parallel infer requests;4\nlatency (ms);2", 216_000),
    ],
)
def test_a_call_lasts_as_long_as_the_median_inference(tmp_path, told, lasts):
    """The report's latency where it is longer than the layers, which the drops say; the layers'
    216 µs where it is shorter, is none, or is that of requests that wait for each other."""
    path = written(tmp_path, *ROWS, TOTAL)
    (tmp_path / "benchmark_report.csv").write_text(f"Command line parameters\n{told}\n")
    run = imported(tmp_path, path)
    assert run.calls["duration_ns"].to_list() == [lasts]
    host = run.commands.filter(pl.col("category") == "host")["duration_ns"].to_list()
    assert host == [lasts] * (lasts == 2_000_000)
    codes = [drop.detail.code for drop in run.drops]
    assert (DropReason.MEDIAN_LATENCY in codes) == (lasts == 2_000_000)


def test_the_report_in_the_folder_is_not_called_unread(tmp_path):
    """It is read beside the counters; another text in the folder is not."""
    written(tmp_path, *ROWS, TOTAL)
    (tmp_path / "benchmark_report.csv").write_text("Command line parameters\nlatency (ms);2\n")
    (tmp_path / "notes.txt").write_text("of NPU 1")
    left_out = contents_of(tmp_path, importers()).left_out
    assert [one.file for one in left_out] == ["notes.txt"]
