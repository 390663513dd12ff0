"""The real Stable Diffusion 3.5 trace against the figures of TraceLens, an independent tool."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.corpus import CORPUS, SD35, needs_corpus

from .traces import calls

_WORK = ("kernel", "memcpy", "memset")
TRACELENS = "sd35_mi300x.tracelens_"

pytestmark = needs_corpus


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(import_trace(SD35, tmp_path_factory.mktemp("traces")))


@pytest.fixture(scope="module")
def work(run):
    """Everything that ran on the GPU."""
    return run.commands.filter(pl.col("device") == "rocm:2")


def timeline():
    """TraceLens' GPU timeline, in ms: busy time, idle time, from first to last event."""
    with (SD35.parent / f"{TRACELENS}gpu_timeline.csv").open() as file:
        return {row["type"]: float(row["time ms"]) for row in csv.DictReader(file)}


def kernel_ms(category, operator=""):
    """TraceLens' kernel time of a category, in ms, of all parent modules."""
    with (SD35.parent / f"{TRACELENS}ops_summary_by_category.csv").open() as file:
        return sum(
            float(row["total_direct_kernel_time_ms"])
            for row in csv.DictReader(file)
            if row["op category"] == category and f"['{operator}" in row["call_stack_first"]
        )


def busy_ms(frame):
    """Wall time in which at least one command ran."""
    spans = frame.sort("start_ns")
    start = spans["start_ns"].to_numpy()
    end = np.maximum.accumulate(start + spans["duration_ns"].to_numpy())
    covered = np.maximum(start, np.concatenate((start[:1], end[:-1])))
    return float(np.maximum(end - covered, 0).sum()) / 1e6


def test_the_calls_are_those_of_the_run(run):
    """Six encoder calls, four steps with both branches in one batch, one VAE decode."""
    encoders = ("text_encoder", "text_encoder_2", "text_encoder_3")
    assert calls(run) == [
        *((name, "encode", "prompt", -1) for name in encoders),
        *((name, "encode", "negative_prompt", -1) for name in encoders),
        *(("transformer", "denoise", "batched", step) for step in range(4)),
        ("vae", "decode", None, -1),
    ]
    assert run.calls["device"].unique().to_list() == ["rocm:2"]


def test_nothing_of_the_device_is_lost_and_99_percent_lies_in_calls(run, work):
    """All 8,066 kernels and copies are there, and the manifest's share is what the table says."""
    assert len(work) == 8066
    inside = work.filter(pl.col("call") >= 0)["duration_ns"].sum()
    facts = run.info.attribution["rocm:2"]
    assert facts.attributed_ns == inside
    assert facts.total_ns == work["duration_ns"].sum()
    assert inside / facts.total_ns > 0.99


def test_busy_and_total_time_agree_with_tracelens(work):
    """Union of device work, and from its first begin to its last end, within 0.1 %."""
    expected = timeline()
    end = (work["start_ns"] + work["duration_ns"]).max()
    assert busy_ms(work) == pytest.approx(expected["busy_time"], rel=1e-3)
    total_ms = (end - work["start_ns"].min()) / 1e6
    assert total_ms == pytest.approx(expected["total_time"], rel=1e-3)


@pytest.mark.parametrize(
    ("operators", "category", "operator"),
    [
        ("^aten::(mm|addmm|bmm|baddbmm)$", "GEMM", ""),
        ("^aten::_flash_attention_forward$", "other", "aten::_flash_attention_forward"),
        ("^aten::miopen_convolution$", "CONV_fwd", ""),
        ("^triton_", "triton", ""),
    ],
)
def test_kernel_time_by_category_agrees_with_tracelens(work, operators, category, operator):
    """Kernel time by launching operator, within 1 %."""
    expected = kernel_ms(category, operator)
    assert expected > 0
    chosen = work.filter(pl.col("op_type").cast(pl.String).str.contains(operators))
    assert chosen["duration_ns"].sum() / 1e6 == pytest.approx(expected, rel=1e-2)


def test_a_layer_has_the_same_path_in_every_step_and_pass(work):
    """Module instances keep their numbers, so that layers can be compared between calls."""
    layers = {call: set(work.filter(pl.col("call") == call)["layer"]) for call in range(11)}
    assert layers[0] == layers[3]
    assert layers[1] == layers[4]
    assert layers[2] == layers[5]
    assert layers[7] == layers[8] == layers[9]
    layer = "CLIPTextTransformer.CLIPEncoder.CLIPEncoderLayer_11.CLIPMLP.Linear_0"
    assert layer in layers[0]
    assert layer in layers[1]


def test_stages_and_host_work_account_for_the_pipeline(run):
    """Stages tile the pipeline; calls and host work leave less than 1 % of it unexplained."""
    spans = run.spans
    pipeline = spans.filter(pl.col("kind") == "pipeline")["duration_ns"].item()
    assert spans.filter(pl.col("kind") == "stage")["duration_ns"].sum() == pipeline
    host = run.commands.filter(pl.col("track") == "Host")
    intervals = ["start_ns", "duration_ns"]
    together = pl.concat([host.select(intervals), run.calls.select(intervals)])
    assert busy_ms(together) * 1e6 == pytest.approx(pipeline, rel=1e-2)
    assert together["duration_ns"].sum() / 1e6 == pytest.approx(busy_ms(together))


def test_the_decoder_runs_on_after_its_call_returned(run, work):
    """Kernels of the VAE belong to it though its host range ended long before they ran."""
    vae = run.calls.row(-1, named=True)
    kernels = work.filter(pl.col("call") == vae["call"])
    assert kernels["start_ns"].max() > vae["start_ns"] + vae["duration_ns"]
    assert kernels["duration_ns"].sum() > 4 * vae["duration_ns"]


@pytest.mark.parametrize(
    ("name", "kernels", "busy"),
    [
        ("switch_moe_a100", 524, 621.729),
        ("switch_moe_a100_launch_bound", 574, 12.054),
        ("kineto_autograd_api_2021.pt.trace", 10_133, 979.604),
        ("kineto_array_form_2020.pt.trace", 9_927, 649.472),  # a bare list of events
        ("kineto_tb_gpu_metrics", 32, 0.050),
        ("switch_moe_cpu", 0, 0.0),
    ],
)
def test_public_traces_have_the_busy_time_of_their_text(name, kernels, busy, tmp_path):
    """Work of devices and the union of its times, by a loop over the JSON and by the corpus' own
    list; what was launched before the recording is beside the busy time."""
    path = CORPUS / "wild" / f"{name}.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = document if isinstance(document, list) else document["traceEvents"]
    work = [one for one in events if one.get("cat", "").lower().removeprefix("gpu_") in _WORK]
    total = reach = 0.0
    for start, length in sorted((one["ts"], one["dur"]) for one in work if one["ph"] == "X"):
        total += max(start + length - max(start, reach), 0)
        reach = max(reach, start + length)
    assert (len(work), round(total / 1000, 3)) == (kernels, busy)
    devices = analyze(load(import_trace(path, tmp_path))).devices
    found = devices.select(pl.col("busy_ns") + pl.col("before_after_ns"))
    on_device = found.filter(~devices["device"].cast(pl.String).str.starts_with("cpu"))
    assert float(on_device.sum().item()) / 1e6 == pytest.approx(busy, abs=1e-3)
