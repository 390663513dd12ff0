"""Runs of different producers: by what they are compared, and what is said of it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from profiler.analysis import worded_note
from profiler.compare.compare import compare
from profiler.compare.measure import measure
from profiler.importers import import_trace
from profiler.tools.sources import load
from tests.analysis.comparison.small import BASE, SLOWER, compared, steps_run
from tests.corpus import CORPUS, needs_corpus
from tests.importers.onnxruntime.test_profiles import node, run
from tests.importers.onnxruntime.test_profiles import written as profile
from tests.importers.tensorrt.test_exports import row
from tests.importers.tensorrt.test_exports import written as exported
from tests.runs import Command, make_call, make_run, make_span

COPY = "Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1"
ENGINE = {  # ms
    COPY: 0.1,
    "Conv_0 + Relu_1": 0.4,
    "PWN(Sigmoid_2, Mul_3)": 0.2,
    "__myl_Add_myl0_1": 0.05,
}
TIME = {"name": "", "timeMs": 1.0, "averageMs": 1.0, "percentage": 1.0}
NODES = {"Conv_0": 900, "Relu_1": 300, "Sigmoid_2": 200, "Mul_3": 100, "Cast_9": 50}  # µs


def _engine(tmp_path, *, inferences=4):
    times = [{"count": 1}] + [
        {"name": name, "timeMs": ms, "averageMs": ms, "percentage": 1}
        for name, ms in ENGINE.items()
    ]
    rows = [row(300 + 10 * number, 0.75) for number in range(inferences)]
    files = {"profile": times} | ({"timing": rows} if inferences else {})
    return import_trace(exported(tmp_path / "engine", **files), tmp_path / "traces")


def _session(tmp_path, times=None, *, runs=3):
    """A profile of ONNX Runtime, whose first run takes twice as long."""
    at, events = 0, []
    for number in range(runs):
        begin, factor = at, 1 if number else 2
        for name, us in (times or NODES).items():
            events.append(node(name, at, us * factor, op=name.partition("_")[0]))
            at += us * factor
        events.append(run(begin, at - begin))
        at += 1000
    return import_trace([profile(tmp_path / "session.json", *events)], tmp_path / "traces")


def _notes(comparison):
    return [str(worded_note(note)).replace("\N{NO-BREAK SPACE}", " ") for note in comparison.notes]


@pytest.mark.parametrize("inferences", [0, 4])
def test_layers_of_tensorrt_are_sets_of_onnx_nodes(tmp_path, inferences):
    """A fused layer and the copies for it beside the nodes that it replaced, of an inference each,
    without the first one; what remains is there with its time."""
    base, new = (load(_engine(tmp_path, inferences=inferences)), load(_session(tmp_path)))
    found = compare([measure(base)], [measure(new)])
    rows = found.nodes.select("base_layers", "new_layers", "base_ns", "new_ns").rows()
    assert rows == [
        (f"{COPY}, Conv_0 + Relu_1", "Conv_0, Relu_1", 500_000, 1_200_000),
        ("PWN(Sigmoid_2, Mul_3)", "Sigmoid_2, Mul_3", 200_000, 300_000),
        ("__myl_Add_myl0_1", None, 50_000, None),
        (None, "Cast_9", None, 50_000),
    ]
    assert found.level == "node"
    assert "compared by ONNX node" in _notes(found)


def test_inferences_are_compared_one_by_one(tmp_path):
    """How many there were was the recorder's choice: end to end is that of one, steady ones
    apart."""
    base, new = load(_engine(tmp_path)), load(_session(tmp_path))
    found = compare([measure(base)], [measure(new)]).metrics
    whole = found.filter(pl.col("metric") == "end_to_end").row(0, named=True)
    assert (whole["base_count"], whole["new_count"], whole["calls"]) == (3, 2, "steady")
    assert whole["new_ns"] == 1_550_000
    assert 750_000 <= whole["base_ns"] <= 4_000_000
    busy = found.filter(pl.col("level") == "busy").row(0, named=True)
    assert (busy["base_ns"], busy["new_ns"]) == (750_000, 1_550_000)


def test_a_real_session_beside_an_engine(tmp_path):
    """Names that ONNX Runtime itself gives: what its fusions made of a product and a sum, and a
    convolution in another layout, are found by the nodes of the engine."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the run extra")
    onnx = pytest.importorskip("onnx", reason="needs the run extra")
    np = pytest.importorskip("numpy")
    made, values = onnx.helper, np.random.default_rng(0).standard_normal
    weights = {"w": (16, 16, 3, 3), "m": (64, 64), "b": (64,)}
    nodes = [
        made.make_node("Conv", ["x", "w"], ["/c/Conv_output_0"], name="/c/Conv", pads=[1] * 4),
        made.make_node("Relu", ["/c/Conv_output_0"], ["/r/Relu_output_0"], name="/r/Relu"),
        made.make_node("Flatten", ["/r/Relu_output_0"], ["f"], name="/Flatten"),
        made.make_node("Reshape", ["f", "to"], ["p"], name="/Reshape"),
        made.make_node("MatMul", ["p", "m"], ["q"], name="/l/MatMul"),
        made.make_node("Add", ["q", "b"], ["y"], name="/l/Add"),
    ]
    stored = [
        onnx.numpy_helper.from_array(values(dims).astype(np.float32), name)
        for name, dims in weights.items()
    ]
    stored.append(onnx.numpy_helper.from_array(np.array([-1, 64]), "to"))
    dtype = onnx.TensorProto.FLOAT
    graph = made.make_graph(
        nodes,
        "g",
        [made.make_tensor_value_info("x", dtype, [1, 16, 8, 8])],
        [made.make_tensor_value_info("y", dtype, [16, 64])],
        stored,
    )
    model = made.make_model(graph, opset_imports=[made.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "session")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for _ in range(3):
        session.run(None, {"x": np.ones((1, 16, 8, 8), np.float32)})
    made_by_session = Path(session.end_profiling())
    events = json.loads(made_by_session.read_text())
    for event in events:  # a node during which another process ran has most of the time
        if event["cat"] == "Node":
            event["dur"] = min(event["dur"], 1)
    made_by_session.write_text(json.dumps(events))
    recorded = import_trace([made_by_session], tmp_path / "traces")
    layers = ("/c/Conv + /r/Relu", "/Flatten + /Reshape", "/l/MatMul + /l/Add")
    times = [{"count": 1}, *({**TIME, "name": name} for name in layers)]
    engine = import_trace(exported(tmp_path / "engine", profile=times), tmp_path / "traces")
    found = compare([measure(load(engine))], [measure(load(recorded))])
    matched = dict(found.nodes.drop_nulls().select("base_layers", "new_count").rows())
    assert matched["/c/Conv + /r/Relu"] >= 1
    assert matched["/l/MatMul + /l/Add"] >= 1
    assert found.nodes["base_ns"].sum() == 3_000_000
    layers = load(recorded).commands["duration_ns"]
    assert found.nodes["new_ns"].sum() < layers.sum()


@cache
def _sample(path):
    paths = sorted(CORPUS.glob(path))
    assert paths
    return measure(load(paths[0]))


H100 = "torch_pairs/*h100.json.gz"
MI300 = "torch_pairs/*mi300.json.gz"
A100 = "tensorrt/resnet_fp16_a100.profile.json"


@needs_corpus
@pytest.mark.parametrize(
    ("base", "new", "level"),
    [
        (H100, MI300, "module"),
        ("nsys/healthy_1pct.sqlite", H100, "sort"),
        (H100, "nsys/healthy_1pct.sqlite", "sort"),
        ("rocprofv3/908_results.json.gz", MI300, "submodule"),
        (A100, "ort/*.json.gz", "role"),
        ("tensorrt/RTX-3090_fp16", "tensorrt/RTX-3090_fp32", "node"),
        ("ort/*.json.gz", H100, "sort"),
    ],
)
def test_the_finest_level_of_two_producers(base, new, level):
    """Whatever wrote the two, they are compared by what both know, and a line says by what; never
    as a whole that is only in one and another that is only in the other."""
    found = compare([_sample(base)], [_sample(new)])
    assert found.level == level
    alone = found.metrics.filter(pl.col("verdict").str.starts_with("only_in"))
    assert set(alone["level"]) <= {"role", "module", "modules"}
    said = [note for note in _notes(found) if note.startswith("compared by ")]
    assert len(said) == (level != "module")
    if level == "sort":
        assert said[0].startswith("compared by kind of work: ")


def _run(names, times, stages=None):
    """A run of one pipeline call in which each submodule takes its time, in one kernel."""
    stages = stages or {}
    calls, commands, at = [], [], 0
    for number, (name, time) in enumerate(zip(names, times, strict=True)):
        calls.append(
            make_call(
                number, name, at, at + time, stage=stages.get(name, "run"), pipeline=0, step=-1
            )
        )
        place = (number, calls[-1].device, "stream 7", "compute")
        commands.append(Command(*place, "sgemm_128x64", at, time))
        at += time
    return make_run(calls, commands, [make_span("pipeline", "P", 0, at, pipeline=0)])


def test_submodules_without_a_name_in_common():
    """The only ones of both sides are a pair; several are compared as one."""
    pair = compared(_run(["a"], [100]), _run(["b"], [150]))
    assert pair.metrics.filter(pl.col("level") == "submodule").select(
        "base_ns", "new_ns"
    ).rows() == [(100, 150)]
    assert "a of base is compared with b of new" in _notes(pair)
    together = compared(_run(["a", "c"], [100, 30]), _run(["b"], [150]))
    rows = together.metrics.filter(pl.col("level") == "submodule")
    assert rows.select("submodule", "base_ns", "new_ns").rows() == [("run", 130, 150)]


def test_a_part_of_a_model_is_compared_with_the_whole_in_its_stage():
    """OpenVINO and ONNX Runtime call the VAE's decoder `vae_decoder`, a trace of torch `vae`; names
    that only begin alike, or are of another stage, are no pair."""
    stages = {"vae": "decode", "vae_decoder": "decode", "vae_encoder": "encode"}

    def run_of(*names):
        return _run(names, [100 * (1 + len(name)) for name in names], stages)

    parts = compared(run_of("unet", "vae"), run_of("vae_encoder", "unet", "vae_decoder"))
    rows = parts.metrics.filter(level="submodule").select("submodule", "base_ns", "new_ns").rows()
    assert sorted(rows) == [("unet", 500, 500), ("vae", 400, 1200), ("vae_encoder", None, 1200)]
    assert "vae of base is compared with vae_decoder of new" in _notes(parts)


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ("text_encoder", "text_encoder_2"),
        ("transformer_2", "transformer"),
        ("vae", "vae_2_decoder"),
    ],
)
def test_a_number_behind_a_name_is_another_model(base, new):
    """Pipelines number models of one kind, such as their text encoders: each has a row of its
    own."""
    comparison = compared(_run(["unet", base], [500, 100]), _run(["unet", new], [500, 300]))
    found = comparison.metrics.filter(level="submodule").select("submodule", "base_ns", "new_ns")
    assert {*found.rows()} == {("unet", 500, 500), (base, 100, None), (new, None, 300)}
    assert "is compared with" not in _notes(comparison)


MODEL = {  # operators and kernels of a call, with their times in ns
    "encoder": [("aten::mm", "sgemm_128x64", 40), ("aten::copy_", "direct_copy_kernel_cuda", 8)],
    "denoiser": [
        ("aten::mm", "sgemm_128x64", 300),
        ("aten::copy_", "direct_copy_kernel_cuda", 20),
        ("aten::copy_", "bfloat16_copy_kernel_cuda", 70),
        ("aten::gelu", "GeluCUDAKernelImpl", 50),
    ],
}


def _pipelines(names, *, order, pipelines, known, gap=10):
    """A run whose pipeline calls execute the models of `order`, under other names; with `known`
    the stages, steps and operators are recorded, without only kernels are."""
    calls, commands, spans, at = [], [], [], 0
    for pipeline in range(pipelines):
        begin = at
        for step, model in enumerate(order):
            denoises = known and model == "denoiser"
            place = {"stage": "denoise" if denoises else "encode"} if known else {"stage": "run"}
            place["step"] = step if denoises else -1
            start = at
            for op_type, kernel, ns in MODEL[model]:
                where = (len(calls), "cuda:0", "stream 7", "compute", op_type if known else kernel)
                what = {"kernel": kernel, "op_type": op_type if known else kernel}
                commands.append(Command(*where, at, ns, **what))
                at += ns
            number = len(calls)
            place |= {"device": "cuda:0", "pipeline": pipeline}
            calls.append(make_call(number, names[model], start, at + gap, **place))
            at += gap
        spans.append(make_span("pipeline", "P", begin, at, pipeline=pipeline))
    return make_run(calls, commands, spans)


def test_a_submodule_with_steps_on_one_side_is_compared_by_pipeline_call():
    """Under one name on both sides: four steps of the base beside four calls of which no step was
    recorded."""
    order, names = ["encoder", *["denoiser"] * 4], {"encoder": "e", "denoiser": "d"}
    base, new = (
        _pipelines(names, order=order, pipelines=1, known=known) for known in (True, False)
    )
    found = compared(base, new).metrics
    rows = found.filter(pl.col("metric") == "submodule.d").select("base_ns", "new_ns")
    assert rows.rows() == [(4 * (440 + 10), 4 * (440 + 10))]
    assert "submodule.d.role.matmul" in found["metric"]
    alone = compared(base, base).metrics.filter(pl.col("metric") == "submodule.d")
    assert alone["base_ns"].to_list() == [440 + 10]


@pytest.mark.parametrize(("order", "pipelines"), [("eddd", 1), ("edeedd", 2), ("ed", 3)])
def test_unnamed_submodules_pair_in_the_order_of_their_calls(order, pipelines):
    """Recorded with operators and steps on one side, as CUDA graphs on the other: each submodule
    has its own row, and what its kernels do takes the same time per pipeline call, although steps
    are samples of one side alone and the first is not steady."""
    order = [{"e": "encoder", "d": "denoiser"}[one] for one in order]
    named = {"encoder": "text_encoder", "denoiser": "transformer"}
    graphs = {"encoder": "graph 1", "denoiser": "graph 2"}
    found = compared(
        _pipelines(named, order=order, pipelines=pipelines, known=True, gap=90),
        _pipelines(graphs, order=order, pipelines=pipelines, known=False),
    )
    lines = found.waterfall.filter(pl.col("level") == "role")
    expected = {
        (named[model], role): [order.count(model) * ns] * 2
        for model, role, ns in (
            ("encoder", "matmul", 40),
            ("encoder", "data_movement", 8),
            ("denoiser", "matmul", 300),
            ("denoiser", "data_movement", 90),
            ("denoiser", "elementwise", 50),
        )
    }
    rows = lines.select("submodule", "role", "base_ns", "new_ns").rows()
    assert {(name, role): [base, new] for name, role, base, new in rows} == expected
    idle = found.waterfall.filter(pl.col("level") == "idle")
    assert {
        name: (base, new)
        for name, base, new in idle.select("submodule", "base_ns", "new_ns").rows()
    } == {named[model]: (order.count(model) * 90, order.count(model) * 10) for model in named}
    sums = {}  # the other way: kernels of one pipeline call
    for model in order:
        for _, kernel, ns in MODEL[model]:
            sums[named[model], kernel] = sums.get((named[model], kernel), 0) + ns
    kernels = found.kernels.select("submodule", "what", "base_ns", "new_ns").rows()
    assert {row[:2]: row[2:] for row in kernels} == {key: (ns, ns) for key, ns in sums.items()}
    assert _notes(found)[0] == (
        "no submodule is on both sides: text_encoder, transformer of base are compared with "
        "graph 1, graph 2 of new, which are called in the same order"
    )


def test_submodules_of_another_order_are_compared_as_one():
    """Nothing says which is which: all of one side beside all of the other, as often as they ran,
    and the sums of their kernels are those of a pipeline call on both sides."""
    names = ({"encoder": "a", "denoiser": "b"}, {"encoder": "x", "denoiser": "y"})
    orders = (["encoder", "denoiser", "denoiser"], ["denoiser", "encoder", "denoiser"])
    base, new = (
        _pipelines(name, order=order, pipelines=2, known=known)
        for name, order, known in zip(names, orders, (True, False), strict=True)
    )
    found = compared(base, new)
    rows = found.waterfall.filter(pl.col("level") == "submodule")
    assert rows.select("submodule", "base_ns", "new_ns").rows() == [("run", 958, 958)]
    kernels = dict(found.kernels.select("what", pl.struct("base_ns", "new_ns")).rows())
    assert kernels["GeluCUDAKernelImpl"] == {"base_ns": 100, "new_ns": 100}


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ([steps_run(BASE)], [steps_run(SLOWER)]),
        ([steps_run(BASE, BASE, SLOWER)], [steps_run(SLOWER, SLOWER)]),
        ([steps_run(BASE, untraced=(2, 3))], [steps_run(SLOWER), steps_run(BASE)]),
    ],
)
def test_a_waterfall_adds_up(base, new):
    """Submodules and what is between them make the whole, roles and idle time a submodule: on both
    sides, so that differences do."""
    found = compared(base, new).waterfall
    columns = ["base_ns", "new_ns", "difference_ns"]
    level = pl.col("level")
    whole = found.filter(level == "end_to_end").select(columns).row(0)
    parts = found.filter(level.is_in(["submodule", "between"])).select(columns)
    assert parts.sum().row(0) == whole
    inside = found.filter(level.is_in(["role", "idle"])).select(columns)
    assert inside.sum().row(0) == found.filter(level == "submodule").select(columns).row(0)
    assert whole[1] - whole[0] == whole[2]
