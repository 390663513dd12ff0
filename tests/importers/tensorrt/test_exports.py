"""What trtexec exports: the corpus by its totals, small engines with known tables, broken files."""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.errors import InputError
from profiler.importers import import_trace, recognised
from profiler.importers.formats import TensorRtKind, tensorrt_kind
from profiler.importers.tensorrt import layers_of, read_export
from profiler.tools.sources import load
from profiler.trace import DropKind
from tests.corpus import CORPUS, needs_corpus
from tests.report.rendered import report_of

FOLDER = CORPUS / "tensorrt"
RTX = ("RTX-3090_fp16", "RTX-3090_fp32")
CONV = "Conv_0 + Relu_1"


def row(start, length, enqueued=None):
    """An inference that computes `length` ms from `start` on; copies of 1 ms around it."""
    begin = start - 2 if enqueued is None else enqueued
    return {
        "startEnqMs": begin,
        "endEnqMs": begin + 0.5,
        "startH2dMs": start - 1,
        "endH2dMs": start,
        "startComputeMs": start,
        "endComputeMs": start + length,
        "startD2hMs": start + length,
        "endD2hMs": start + length + 1,
        "computeMs": length,
        "latencyMs": length + 2,
    }


def tensor(*dims, kind="Row major linear FP16 format"):
    return {"Name": "t", "Dimensions": list(dims), "Format/Datatype": kind}


LAYERS = [
    {
        "Name": CONV,
        "LayerType": "CaskConvolution",
        "Inputs": [tensor(1, 4, 8, 8), tensor(1, 16, 8, 8)],
        "Outputs": [tensor(1, 16, 8, 8)],
        "Kernel": [3, 3],
        "OutMaps": 16,
        "Groups": 1,
        "Weights": {"Type": "Half", "Count": 576},
        "TacticName": "cutlass_fprop",
    },
    {
        "Name": "/mlp/Cast",
        "LayerType": "Reformat",
        "Inputs": [tensor(1, 16, 8, 8)],
        "Outputs": [tensor(1, 16, 8, 8, kind="Row major linear FP32")],
    },
]
PROFILE = [
    {"count": 10},
    {"name": CONV, "timeMs": 20.0, "averageMs": 2.0, "medianMs": 2.0, "percentage": 80.0},
    {"name": "/mlp/Cast", "timeMs": 5.0, "averageMs": 0.5, "medianMs": 0.5, "percentage": 20.0},
    {"name": "Gone", "timeMs": 0.0, "averageMs": 0.0, "medianMs": 0.0, "percentage": 0.0},
]
SUMMARY = {
    "performance_summary": {"Throughput": 1.0},
    "inference_options": {"Duration": "3s (+ 100ms warm up)"},
    "device_information": {
        "Selected Device": "NVIDIA A100",
        "SMs": 108.0,
        "Device Global Memory": "80994 MiB",
    },
}


def written(folder, engine="unet", **files):
    """Files of an engine, by their endings."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for ending, content in files.items():
        path = folder / f"{engine}.{ending.replace('_', '.')}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        paths.append(path)
    return paths


def imported(tmp_path, *paths, **options):
    return load(import_trace(list(paths), tmp_path / "traces", options=options))


def busy_ms(run):
    found = analyze(run).devices.filter(pl.col("device") == "cuda:0")
    return found["busy_ns"].item() / 1e6


@needs_corpus
@pytest.mark.parametrize("name", RTX)
def test_the_totals_of_the_corpus(tmp_path, name):
    """Layers, their sum, the costliest three and times by type; inferences with and without the
    warm-up, their union and mean: those of `truth.json`."""
    truths = json.loads((CORPUS / "truth.json").read_text())
    truth = truths[f"tensorrt/{name}/resnet.onnx.engine.profile.json"]
    profile = imported(tmp_path, FOLDER / name / "resnet.onnx.engine.profile.json")
    (call,) = profile.calls["duration_ns"].to_list()
    assert call / 1e6 == pytest.approx(truth["layer_avg_sum_ms"], abs=1e-6)
    layers = profile.commands.sort("duration_ns", descending=True)
    assert len(layers) == truth["count"]
    assert (layers["duration_ns"] == 0).sum() == truth["layers_zero_time"]
    top = zip(layers["layer"].cast(pl.String), layers["duration_ns"], strict=True)
    found = sorted((-time, layer) for layer, time in top)
    expected = sorted((-round(ms * 1e6), layer) for layer, ms in truth["top3"])
    assert found[0] == expected[0]
    assert [time for time, _ in found[:3]] == [time for time, _ in expected]

    times = FOLDER / name / "resnet.onnx.engine.timing.json.gz"
    everything = imported(tmp_path, times, warmup="0")
    assert len(everything.calls) == truth["iterations"]
    assert busy_ms(everything) == pytest.approx(truth["busy_ms"]["cuda:0"], abs=1e-5)
    folder = imported(tmp_path, FOLDER / name)
    engine = folder.calls.filter(pl.col("submodule").cast(pl.String) == "resnet.onnx")
    assert len(engine) == truth["iterations_after_200ms_warmup"] == truth["metadata_queries"]
    inferences = folder.commands.filter(pl.col("op_type").cast(pl.String) == "Inference")
    mean = inferences["duration_ns"].mean() / 1e6
    assert mean == pytest.approx(truth["compute_mean_after_warmup_ms"], rel=1e-4)  # six digits
    assert folder.info.devices["cuda:0"].hardware == truth["device_name"]
    types = (
        folder.commands.filter(pl.col("op_type").cast(pl.String) != "Inference")
        .group_by(pl.col("op_type").cast(pl.String))
        .agg(pl.col("duration_ns").sum() / 1e6)
        .sort("duration_ns", descending=True)
    )
    for (op_type, ms), (expected_type, expected_ms) in zip(
        types.rows()[:3], truth["top3_layer_type"], strict=True
    ):
        assert (op_type, ms) == (expected_type, pytest.approx(expected_ms, abs=1e-6))


@needs_corpus
def test_every_convolution_of_the_corpus_has_its_work(tmp_path):
    """FLOPs by the shapes are 2 times the result's elements times weights an output channel, from
    the layer file by another way; what is fused (an addend) changes nothing."""
    folder = FOLDER / "RTX-3090_fp16"
    told = json.loads(gzip.decompress((folder / "resnet.onnx.engine.graph.json.gz").read_bytes()))
    expected = {}
    for layer in told["Layers"]:
        if "Weights" in layer:
            batch, channels, height, width = layer["Outputs"][0]["Dimensions"]
            size = batch * channels * height * width
            expected[layer["Name"]] = 2 * size * layer["Weights"]["Count"] // layer["OutMaps"]
    frame = imported(tmp_path, folder).to_pandas()
    found = dict(zip(frame["layer"].astype(str), frame["flops"], strict=True))
    assert len(expected) > 50
    assert {name: found[name] for name in expected} == expected


def test_an_inference_is_a_call_with_its_copies(tmp_path):
    """The host enqueues for 0.5 ms; the device copies in, computes 3 ms, copies out."""
    (path,) = written(tmp_path, timing=[row(300.0, 3.0), row(310.0, 3.0)])
    run = imported(tmp_path, path)
    assert run.calls.select(
        pl.col("submodule").cast(pl.String), "start_ns", "duration_ns", "iteration"
    ).rows() == [("unet", 298_000_000, 500_000, 0), ("unet", 308_000_000, 500_000, 1)]
    kinds = run.commands.select(pl.col("op_type").cast(pl.String), "duration_ns").rows()
    one = [("Memcpy HtoD", 1_000_000), ("Inference", 3_000_000), ("Memcpy DtoH", 1_000_000)]
    assert kinds == one * 2
    assert busy_ms(run) == 10.0


def test_an_inference_without_transfers_has_no_copies(tmp_path):
    """Their times are in the file, of no length: nothing was copied."""
    one = row(300.0, 3.0)
    (path,) = written(tmp_path, timing=[{**one, **_without_copies(one)}])
    kinds = imported(tmp_path, path).commands["op_type"].cast(pl.String).to_list()
    assert kinds == ["Inference"]


@pytest.mark.parametrize(
    ("summary", "options", "calls"),
    [(None, {}, 2), (SUMMARY, {}, 3), (SUMMARY, {"warmup": "250"}, 1), (None, {"warmup": "0"}, 4)],
)
def test_warm_up_is_left_out(tmp_path, summary, options, calls):
    """What begins before 200 ms, or what the summary or the option says; it is counted."""
    files = {"timing": [row(at, 3.0) for at in (50.0, 150.0, 240.0, 300.0)]}
    if summary is not None:
        files["profile_metadata"] = summary
    run = imported(tmp_path, *written(tmp_path, **files), **options)
    assert len(run.calls) == calls
    assert (run.info.warmup.calls if run.info.warmup else 0) == 4 - calls


def test_the_first_inference_does_not_wait_for_the_warm_up(tmp_path):
    """Each is enqueued while the one before computes. The warm-up is left out, and so is the wait
    for it: the first inference that counts takes as long as the second, and nothing was idle."""
    rows = [row(100.0, 150.0), row(250.0, 100.0), row(350.0, 100.0)]
    for before, one in pairwise(rows):
        one["startEnqMs"] = before["startComputeMs"] + 1
        one["endEnqMs"] = one["startEnqMs"] + 0.5
    rows = [{**one, **_without_copies(one)} for one in rows]
    analysis = analyze(imported(tmp_path, *written(tmp_path, timing=rows)))
    assert analysis.calls["elapsed_ns"].to_list() == [100_000_000] * 2
    assert analysis.accounting.end_to_end_ns == 200_000_000
    assert analysis.idle["idle_ns"].to_list() == [0]


def _without_copies(one):
    begin, end = one["startComputeMs"], one["endComputeMs"]
    return {"startH2dMs": begin, "endH2dMs": begin, "startD2hMs": end, "endD2hMs": end}


@needs_corpus
@pytest.mark.parametrize("name", ["RTX-3090_fp16", "RTX-3090_fp32"])
def test_a_folder_of_exports_says_nothing_that_is_not_so(tmp_path, name):
    """Inferences and averages of layers are no requests; the engine's file name is no path of
    modules; the classifier's softmax is no attention; the first inference is as long as others."""
    analysis = analyze(imported(tmp_path, FOLDER / name))
    assert analysis.requests.is_empty()
    assert "onnx" not in analysis.module_tree["name"].cast(pl.String).to_list()
    assert "attention" not in analysis.roles["role"].cast(pl.String).to_list()
    first, *others = analysis.calls.filter(pl.col("submodule") == "resnet.onnx")["elapsed_ns"]
    assert first < 1.1 * max(others)


def test_an_engine_that_only_warmed_up_is_kept(tmp_path):
    """A file that ends before 200 ms is all that there is."""
    (path,) = written(tmp_path, timing=[row(50.0, 3.0)])
    run = imported(tmp_path, path)
    assert len(run.calls) == 1
    assert run.info.warmup is None


def test_layers_lie_end_to_end_and_say_so(tmp_path):
    """Averages in the order of execution, with type, kernel, tensors and bytes of the layer file;
    a layer that it lacks keeps its time."""
    run = imported(tmp_path, *written(tmp_path, profile=PROFILE, graph=LAYERS_FILE))
    columns = ("layer", "op_type", "kernel", "shapes")
    rows = run.commands.select(
        *(pl.col(name).cast(pl.String) for name in columns),
        "start_ns",
        "duration_ns",
        "bytes_read",
        "bytes_written",
    ).rows()
    conv = "half[1,4,8,8] half[16,4,3,3] half[1,16,8,8] -> half[1,16,8,8]"
    cast = "half[1,16,8,8] -> float[1,16,8,8]"
    read = 2 * (256 + 576 + 1024)
    assert [tuple(value or "" for value in one[:4]) for one in rows] == [
        (CONV, "CaskConvolution", "cutlass_fprop", conv),
        ("/mlp/Cast", "Reformat", "", cast),
        ("Gone", "", "", ""),
    ]
    assert [one[4:6] for one in rows] == [(0, 2_000_000), (2_000_000, 500_000), (2_500_000, 0)]
    assert rows[0][6:] == (read, 2048)
    assert [drop.kind for drop in run.drops] == [DropKind.ESTIMATED_TIMES]
    assert set(run.info.capabilities) == {"averages", "shapes", "bytes"}
    flops = run.to_pandas()["flops"].fillna(0).tolist()
    assert flops[0] == 2 * 1024 * 4 * 9


LAYERS_FILE = {"Layers": LAYERS, "Bindings": []}


def test_files_of_one_engine_are_one_run(tmp_path):
    """Inferences, then the layers behind them as a submodule and a pipeline call of their own."""
    paths = written(tmp_path, timing=[row(300.0, 3.0)], profile=PROFILE, graph=LAYERS_FILE)
    run = imported(tmp_path, *paths)
    rows = run.calls.select(pl.col("submodule").cast(pl.String), "pipeline", "duration_ns").rows()
    assert rows == [("unet", 0, 500_000), ("unet.layers", 1, 2_500_000)]
    first, second = run.calls["start_ns"].to_list()
    assert second == 304_000_000 > first  # behind the copy out
    assert run.info.clocks.aligned is False


def test_engines_of_a_folder_are_submodules(tmp_path):
    """Each with its own clock: one behind the other."""
    folder = tmp_path / "engines"
    written(folder, "vae", profile=PROFILE, profile_metadata=SUMMARY)
    written(folder, "unet", profile=PROFILE)
    assert recognised([folder]).name == "tensorrt"
    run = imported(tmp_path, folder)
    rows = run.calls.select(pl.col("submodule").cast(pl.String), "pipeline", "start_ns").rows()
    assert rows == [("unet", 0, 0), ("vae", 1, 2_500_000)]
    assert run.run_id.startswith("engines")


def test_a_cut_file_is_read_as_far_as_it_is_whole(tmp_path):
    """Half of each kind of file: whole entries, and a drop that says so; never a traceback."""
    paths = written(tmp_path, timing=[row(300.0, 3.0)] * 9, profile=PROFILE, graph=LAYERS_FILE)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for length in range(1, len(text), 97):
            path.write_text(text[:length], encoding="utf-8")
            if tensorrt_kind(text[:length].encode()) is None:
                with pytest.raises(InputError, match="no export of trtexec"):
                    read_export(path)
            else:
                assert read_export(path).cut
        path.write_text(text, encoding="utf-8")
    timing, profile, _ = paths
    profile.write_text(profile.read_text()[:-20], encoding="utf-8")
    run = imported(tmp_path, profile)
    assert len(run.commands) == 2
    cut = next(drop for drop in run.drops if drop.kind == DropKind.TRUNCATED_FILE)
    assert cut.where == "unet.profile.json"
    timing.write_bytes(gzip.compress(timing.read_bytes())[:90])
    assert read_export(timing).cut


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"graph": LAYERS_FILE}, "holds no time of a layer or inference"),
        ({"profile": [{"count": 1}]}, "looks like a JSON array \\(keys: count"),
        ({"timing": [{"startEnqMs": "soon"}]}, "holds no time"),
        ({"timing": [row(-5.0, 3.0)]}, "holds no time"),
        ({"timing": [row(300.0, -3.0)]}, "holds no time"),
    ],
)
def test_what_holds_no_time_is_refused(tmp_path, files, sentence):
    """One sentence that says what to give."""
    with pytest.raises(InputError, match=sentence):
        imported(tmp_path, *written(tmp_path, **files))


def test_two_files_of_a_kind_need_names(tmp_path):
    """Two profiles of one engine cannot both be its layers."""
    paths = [*written(tmp_path, profile=PROFILE), *written(tmp_path / "b", profile=PROFILE)]
    with pytest.raises(InputError, match="are both the profile of unet"):
        imported(tmp_path, *paths)


@pytest.mark.parametrize(
    "odd",
    [
        {"Inputs": [{"Dimensions": [1, -1], "Format/Datatype": "FP32"}]},
        {"Inputs": [{"Dimensions": "many"}]},
        {"Inputs": [tensor(1 << 50)]},
        {"Inputs": 3, "Outputs": None, "LayerType": 7, "TacticName": []},
        {"Weights": {"Count": 5}, "Kernel": [3, 3], "OutMaps": 16},
        {"Weights": [], "Groups": 0},
    ],
)
def test_a_layer_that_is_described_oddly_keeps_its_time(tmp_path, odd):
    """What cannot be read of tensors is unknown, all of it."""
    layers = {"Layers": [{**LAYERS[0], **odd}]}
    paths = written(tmp_path, profile=PROFILE, graph=layers)
    profile, graph = map(read_export, paths)
    layer = layers_of(profile, graph)[0]
    assert (layer.duration_ns, layer.shapes, layer.bytes_read) == (2_000_000, "", -1)


def test_kinds_are_told_by_content():
    """Never by names."""
    assert tensorrt_kind(json.dumps(PROFILE).encode()) is TensorRtKind.PROFILE
    assert tensorrt_kind(json.dumps([row(1.0, 1.0)]).encode()) is TensorRtKind.TIMES
    assert tensorrt_kind(json.dumps(LAYERS_FILE).encode()) is TensorRtKind.LAYERS
    assert tensorrt_kind(json.dumps(SUMMARY).encode()) is TensorRtKind.SUMMARY
    assert tensorrt_kind(b'{"traceEvents": []}') is None
    assert tensorrt_kind(b'[{"cat": "Session"}]') is None


def test_times_of_another_century(tmp_path):
    """A layer and an inference whose times are no time that something took are counted and left
    out."""
    times = {"timeMs": 4.0, "averageMs": 1.0, "percentage": 50.0}
    far = times | {"name": "far", "averageMs": 1e300, "timeMs": 1e18}
    path = tmp_path / "e.profile.json"
    path.write_text(json.dumps([{"count": 4}, {"name": "near"} | times, far]))
    assert [time.name for time in read_export(path).times] == ["near"]
    assert read_export(path).unread == 1
    path = tmp_path / "e.timing.json"
    path.write_text(json.dumps([row(10, 2), row(1e15, 2)]))
    assert len(read_export(path).rows) == 1
    run = load(import_trace([tmp_path], tmp_path / "traces"))
    assert sum(drop.count for drop in run.drops if drop.kind is DropKind.DROPPED_EVENTS) == 2


@needs_corpus
def test_shares_of_layers_are_of_the_layers():
    """Averages of layers beside 747 whole inferences: each layer, shape and kernel has its share of
    the layers' 4.27 ms, as trtexec's own percentages say; the first lines name shapes alone."""
    folder = FOLDER / "RTX-3090_fp16"
    entries = json.loads((folder / "resnet.onnx.engine.profile.json").read_text())[1:]
    analysis = analyze(load(folder))
    layers = analysis.operators.filter(pl.col("submodule") == "resnet.onnx.layers", ~pl.col("host"))
    found = dict(layers.select("layer", "share").rows())
    for entry in sorted(entries, key=lambda entry: -entry["averageMs"])[:10]:
        assert found[entry["name"]] == pytest.approx(entry["percentage"] / 100, rel=0.01)
    assert layers["share"].sum() == pytest.approx(1)
    assert analysis.kernels["share"].sum() == pytest.approx(
        analysis.kernels["total_ns"].sum() / layers["total_ns"].sum()
    )
    shapes = report_of(analysis).opening.shapes
    assert shapes.frame["label"][0].startswith("conv 32×256×14×14")
    assert "Inference" not in shapes.frame["label"].to_list()


_INT8 = {  # a layer's name → its type, in ms how long it took
    "conv1.weight + QuantizeLinear_2_quantize_scale_node + Conv_4 + Relu_5": ("Conv", 0.4),
    "onnx::QuantizeLinear_9 + /l/_weight_quantizer/QuantizeLinear + /l/Conv": ("Conv", 0.2),
    "(Unnamed Layer* 5) [Convolution] + (Unnamed Layer* 6) [Activation]": ("Conv", 0.1),
    "fc.weight + QuantizeLinear_2 + Gemm_4 + (Unnamed Layer* 8) [Shuffle]": ("Gemm", 0.1),
    "fc.weight + QuantizeLinear_182_quantize_scale_node + Gemm_184": ("Gemm", 0.07),
    "QuantizeLinear_7_quantize_scale_node": ("QuantizeLinear", 0.06),
    "fc.weight + QuantizeLinear_5_quantize_scale_node": ("QuantizeLinear", 0.01),
    "QuantizeLinear_1 + Add_3": ("Add", 0.05),
    "Reformatting CopyNode for Input Tensor 0 to Conv_4": ("Reformat", 0.04),
    "{ForeignNode[/layer4/a...MatMul_9]}": ("", 0.03),
    "[HostToDeviceCopy 0]": ("HostToDeviceCopy", 0.02),
    "Conv_30 || Conv_31": ("Conv", 0.02),
    "Conv__435 + /l/Relu": ("Conv", 0.01),
    "net/q/ReadVariableOp:0 + QuantLinearNode__622 + net/quant_conv1/BiasAdd": ("Conv", 0.01),
    "net/q/ReadVariableOp:0 + QuantLinearNode__638 + net/add/Add": ("Add", 0.01),
}


def test_quantized_layers_have_the_type_of_what_computes(tmp_path):
    """Weights are quantized in the layer that uses them; brackets and braces in names cost no
    layer: the sum of all is that of the file."""
    entries = [{"count": 10}] + [
        {"name": name, "timeMs": 10 * ms, "averageMs": ms, "percentage": 100 * ms}
        for name, (_, ms) in _INT8.items()
    ]
    path = tmp_path / "int8.profile.json"
    path.write_text("[\n" + "\n, ".join(map(json.dumps, entries)) + "\n]\n")
    layers = layers_of(read_export(path), None)
    assert {one.name: one.op_type for one in layers} == {
        name: kind for name, (kind, _) in _INT8.items()
    }
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    assert analysis.operators["total_ns"].sum() == round(sum(ms for _, ms in _INT8.values()) * 1e6)
    roles = dict(analysis.roles.group_by("role").agg(pl.col("total_ns").sum()).rows())
    assert roles["convolution"] == 740_000
    assert roles["data_movement"] == 130_000


@needs_corpus
@pytest.mark.parametrize("name", RTX)
def test_convolutions_of_the_corpus_take_what_their_names_say(tmp_path, name):
    """91 % of the layers' time: of those whose first node is called Conv, whatever follows it."""
    path = FOLDER / name / "resnet.onnx.engine.profile.json"
    entries = json.loads(path.read_text())[1:]
    own = re.compile(r"(?:[^ +]+/)?Conv(?:2D|__\d+)?(?: \+ .*)?")
    convolved = sum(e["averageMs"] for e in entries if own.fullmatch(e["name"]))
    roles = analyze(imported(tmp_path, path)).roles.filter(pl.col("role") == "convolution")
    assert roles["total_ns"].sum() / 1e6 == pytest.approx(convolved, abs=1e-4)
    assert convolved > 0.9 * sum(e["averageMs"] for e in entries)


def test_an_entry_that_is_no_object_is_counted(tmp_path):
    """A name with a quote in it, which trtexec does not escape, is a drop, not silence."""
    path = tmp_path / "a.profile.json"
    names = ("Conv_0", 'Con"v_1', "Conv_2")
    entries = [f'{{"name" : "{one}", "averageMs" : 1, "percentage" : 33}}' for one in names]
    path.write_text("[ " + "\n, ".join(entries) + "\n]")
    export = read_export(path)
    assert [one.name for one in export.times] == ["Conv_0", "Conv_2"]
    assert export.unread == 1


_OTHER_NAMES = {  # a layer's name → its type
    "conv1/7x7_s2 + conv1/relu_7x7 input reformatter 0": "Reformat",
    "{inception_5b/1x1,pool5/7x7_s1,loss3/classifier}": "DLA",
    "{inception_5b/1x1,pool5/7x7_s1,loss3/classifier} output reformatter 0": "DLA",
    "[CONVOLUTION]-[aten_ops.convolution.default]-[/conv1/convolution] + "
    "[RELU]-[aten_ops.relu.default]-[/relu/relu]": "aten::convolution",
    "[MAX]-[aten_ops.max_pool2d.default]-[/maxpool/max_pool2d]": "aten::max_pool2d",
}


def test_layers_of_a_dla_and_of_torch_tensorrt_have_types(tmp_path):
    """Without a layer file, their names say what they are."""
    path = tmp_path / "a.profile.json"
    entries = [{"name": name, "averageMs": 1.0, "percentage": 20.0} for name in _OTHER_NAMES]
    path.write_text(json.dumps(entries))
    found = {one.name: one.op_type for one in layers_of(read_export(path), None)}
    assert found == _OTHER_NAMES


def test_kernels_of_myelin_and_convolutions_as_products_have_their_work(tmp_path):
    """A kernel that Myelin wrote has the type of its ONNX nodes; a convolution that ran as a matrix
    product has the work of one, and Myelin's product its own."""
    gemm = [tensor(1, 64), tensor(64, 10), tensor(1, kind="Float"), tensor(1, 10)]
    layers = [
        LAYERS[0] | {"Name": "/a/Conv", "LayerType": "CaskGemmConvolution"},
        {"Name": "__myl_MulAdd_myl0_1", "LayerType": "kgen", "Metadata": "[ONNX Layer: /a/Relu]"},
        {"Name": "__myl_MaxMinCas_myl0_2", "LayerType": "kgen", "Metadata": ""},
        {"Name": "/fc_myl0_3", "LayerType": "gemm", "Inputs": gemm, "Outputs": [tensor(1, 10)]},
    ]
    profile = [{"name": one["Name"], "averageMs": 1.0, "percentage": 25.0} for one in layers]
    paths = written(tmp_path, graph={"Layers": layers}, profile=profile)
    shapes = analyze(imported(tmp_path, *paths)).shapes
    work = dict(zip(shapes["op_type"], shapes["flops"], strict=True))
    convolved = 2 * (16 * 8 * 8) * (4 * 3 * 3)
    assert work == {
        "CaskGemmConvolution": convolved,
        "gemm": 2 * 10 * 64,
        "Relu": None,
        "Max": None,
    }
