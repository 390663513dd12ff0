"""`graph optimize`: what each optimizer does with real models, and what becomes of outputs, module
paths, types and files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from profiler.errors import InputError, OutputError
from profiler.graph import COMMAND_INDEX, LAYER, Optimizer, Target, optimize_files, read_model
from profiler.graph.optimize import files, runner
from profiler.graph.optimize.files import OPTIMIZERS
from profiler.graph.optimize.rewrites import write_for_mmdit_fusion
from profiler.graph.split import split_files
from tests.graph.models import graph, save
from tests.graph.optimized_models import TINY, paths_by_type

TRANSFORMER = TINY / "transformer" / "model.onnx"
ENCODER = TINY / "text_encoder" / "model.onnx"
BRANCHES = (  # which read a cast of the graph around them
    "[a] s = Sin(x) [c] h = Cast<to=10>(s) [i] y = If (b) <"
    "then_branch = t () => (float16[2,4] p) {[d] p = Erf(h)}, "
    "else_branch = e () => (float16[2,4] q) {[f] q = Erf(h)}>"
)
PACKAGES = {"onnxslim": "onnxslim", "onnxsim": "onnxsim", "ort-transformers": "sympy"}


def optimizer(name: str, **how: str) -> Optimizer:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return Optimizer(name, **how)


@pytest.fixture
def here(monkeypatch):
    """Optimizers run in this process, where what they write is tested and not that they end: the
    start of one takes fifty times what it does with a model of a few nodes."""

    def run(command, **_how):
        monkeypatch.setattr(sys, "argv", command[2:])
        return SimpleNamespace(returncode=runner.main())

    monkeypatch.setattr(files, "subprocess", SimpleNamespace(run=run, DEVNULL=None))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("ort", {}),
        ("ort", {"level": "extended"}),
        ("ort", {"level": "all"}),
        ("onnxslim", {}),
        ("onnxsim", {}),
        ("ort-transformers", {}),
    ],
)
def test_every_optimizer(name, how, tmp_path):
    """The encoder computes the same, takes and gives the same, and every node that computes data
    lies in a module as before; what is reported is what the file holds."""
    (found,) = optimize_files(ENCODER, tmp_path / "out.onnx", optimizer(name, **how))
    before, after = read_model(ENCODER), read_model(found.out)
    assert all(one.within and one.compared for one in found.differences)
    for was, now in (
        (before.graph.inputs, after.graph.inputs),
        (before.graph.outputs, after.graph.outputs),
    ):
        assert [(v.name, v.dtype, str(v.shape)) for v in now] == [
            (v.name, v.dtype, str(v.shape)) for v in was
        ]
    types = [n.op_type for n in after.graph.all_nodes()]
    assert sum(found.nodes_after.values()) == len(types)
    assert found.nodes_before != found.nodes_after
    assert (found.bytes_before, found.bytes_after) == (
        ENCODER.stat().st_size,
        found.out.stat().st_size,
    )
    assert found.paths.without <= found.paths.before - found.paths.had
    products = [path for t in ("MatMul", "Gemm") for path in paths_by_type(after).get(t, [])]
    assert sorted(p for p in products if "fc1" in p) == [
        f"text_model.encoder.layers.{n}.mlp.fc1" for n in range(2)
    ]


def test_mmdit_attention_is_fused(tmp_path):
    """The four attentions of the dynamo-exported SD3 transformer become ONNX Runtime's, in the
    modules that they were in, and the GELUs become one node each."""
    (found,) = optimize_files(TRANSFORMER, tmp_path / "o.onnx", optimizer("ort-transformers"))
    assert found.optimizer.model_type == "mmdit"
    assert found.done == {"attention_prepared": 4}
    assert "Softmax" not in found.nodes_after
    paths = paths_by_type(read_model(found.out))
    assert paths["MultiHeadAttention"] == [f"transformer_blocks.{n}.attn" for n in range(4)]
    assert paths["FastGelu"][0] == "transformer_blocks.0.ff.net.0"


def _attention(scale: float, mask: str = "", values: str = "q") -> ir.Model:
    """Attention of 2 heads of 16 numbers, keys turned in three dimensions, as dynamo writes it."""
    joined = "[c] c = Concat<axis=1>(h) [tv] v = Transpose<perm=[0,2,1,3]>(c)"
    scores = ("[a] m = Add(s0, mask)", "m") if mask else ("", "s0")
    proto = graph(
        "float[2,8,32] x, float[8,8] mask",
        "float[2,8,32] y",
        f"""[r] h = Reshape(x, four) [t] q = Transpose<perm=[0,2,1,3]>(h)
        [k3] k3 = Reshape(q, three) [kt] kt = Transpose<perm=[0,2,1]>(k3)
        [k4] k4 = Reshape(kt, turned) [qs] qs = Mul(q, scale) [ks] ks = Mul(k4, scale)
        [s] s0 = MatMul(qs, ks) {scores[0]}
        [sm] p = Softmax<axis=-1>({scores[1]}) {joined if values == "v" else ""}
        [pv] o = MatMul(p, {values})
        [tb] b = Transpose<perm=[0,2,1,3]>(o) [rb] y = Reshape(b, back)""",
        arrays={
            "four": np.array([2, 8, 2, 16]),
            "three": np.array([-1, 8, 16]),
            "turned": np.array([2, 2, 16, 8]),
            "back": np.array([2, 8, 32]),
            "scale": np.array(scale, dtype=np.float32),
        },
    )
    return ir.from_proto(proto)


@pytest.mark.parametrize(
    ("scale", "mask", "values", "written"),
    [(0.5, "", "q", 1), (0.5, "", "v", 1), (0.4, "", "q", 0), (0.5, "mask", "q", 0)],
)
def test_only_attention_that_the_fusion_knows(scale, mask, values, written, tmp_path):
    """Another scale than 1 / sqrt(head size), and a mask, leave an attention as it is; one that
    fits becomes a node that computes the same, also where values are joined before they have the
    order of heads, as in FLUX. An input that nothing reads stays an input."""
    model = _attention(scale, mask, values)
    source = tmp_path / "m.onnx"
    ir.save(model, source)
    assert write_for_mmdit_fusion(read_model(source)) == written
    chosen = optimizer("ort-transformers", model_type="mmdit")
    (found,) = optimize_files(source, tmp_path / "o.onnx", chosen)
    assert found.nodes_after.get("com.microsoft.MultiHeadAttention", 0) == written
    assert found.done == ({"attention_prepared": 1} if written else {"attention_left": 1})
    assert [one.name for one in read_model(found.out).graph.inputs] == ["x", "mask"]


def test_float16_stays_float16(here, tmp_path):
    """ONNX Runtime's CPU computes float16 in float32: the casts for that are not written."""
    weight = np.arange(64, dtype=np.float16).reshape(8, 8) / 64
    nodes = "[i] w = Identity(c) [m] a = MatMul(x, w) [e] b = Erf(a) [n] y = Neg(b)"
    model = graph("float16[4,8] x", "float16[4,8] y", nodes, arrays={"c": weight})
    source = save(model, tmp_path)
    (found,) = optimize_files(source, tmp_path / "o.onnx")
    assert found.done["casts_removed"] > 0
    assert found.nodes_after == {"MatMul": 1, "Erf": 1, "Neg": 1}
    assert [one.dtype for one in found.differences] == ["float16"]


@pytest.mark.parametrize("level", ["basic", "extended"])
@pytest.mark.parametrize(
    ("inputs", "nodes", "outputs"),
    [
        ("float16[2,4] x", "[g] y = Gelu(x)", "float16[2,4] y"),
        ("float16[2,4] x", '[g] y = Gelu<approximate="tanh">(x)', "float16[2,4] y"),
        (
            "float16[2,4] x",
            "[a] f = Cast<to=1>(x) [b] s = Sin(f) [c] h = Cast<to=10>(s) [d] y = Erf(h)",
            "float16[2,4] y",
        ),
        (
            "float16[2,4] x",
            "[a] h = Erf(x) [b] f = Cast<to=1>(h) [c] y = Sin(f) [d] z = Erf(h)",
            "float[2,4] y, float16[2,4] z",
        ),
        (
            "float[2,4] x",
            "[a] s = Sin(x) [b] h = Cast<to=10>(s) [c] y = Erf(h) [d] z = Transpose(h)",
            "float16[2,4] y, float16[4,2] z",
        ),
        (
            "bool b, float[2,4] x",
            BRANCHES,
            "float16[2,4] y",
        ),
        (
            "float16[1,3,4,4] x",
            "[s] s = Constant<value_floats=[1.0,1.0,2.0,2.0]>() [r] z = Resize(x,,s) [e] y=Erf(z)",
            "float16[1,3,8,8] y",
        ),
    ],
    ids=["gelu", "gelu_tanh", "rounds", "widens", "both", "branches", "resize"],
)
def test_casts_of_the_model_stay(here, inputs, nodes, outputs, level, tmp_path):
    """ONNX Runtime drops casts of the model beside those that it inserts for its CPU, and writes
    functions out with constants in float32: each node reads the types again that it read."""
    source = save(graph(inputs, outputs, nodes, opset=20), tmp_path)
    (found,) = optimize_files(source, tmp_path / "o.onnx", Optimizer("ort", level=level))
    assert found.done["casts_removed"] > 0
    assert found.nodes_after.get("Cast", 0) <= nodes.count("Cast") + ("If" in nodes)
    assert all(one.within and one.compared for one in found.differences)
    again = onnx.load(found.out)
    onnx.checker.check_model(again, full_check=True)
    assert not [t.name for t in again.graph.initializer if "Gelu" in t.name and t.data_type != 10]


def test_level_all_keeps_the_casts_of_its_layouts(here, tmp_path):
    """Layouts of level `all` are those of float32: a float16 model keeps the casts to it."""
    model = graph(
        "float16[1,8,4,4] x",
        "float16[1,8,4,4] y",
        "[c] y = Conv<kernel_shape=[1,1]>(x, w)",
        arrays={"w": np.full((8, 8, 1, 1), 0.125, dtype=np.float16)},
    )
    chosen = Optimizer("ort", level="all")
    (found,) = optimize_files(save(model, tmp_path), tmp_path / "o.onnx", chosen)
    assert found.done == {}
    assert found.nodes_after["Cast"] >= 2
    assert all(one.within and one.compared for one in found.differences)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_external_data(name, tmp_path):
    """A model with external data is written as OUT and OUT.data, and needs nothing else."""
    source = tmp_path / "in" / "model.onnx"
    source.parent.mkdir()
    ir.save(ir.load(TRANSFORMER), source, external_data="weights", size_threshold_bytes=1024)
    how = {"model_type": "mmdit"} if name == "ort-transformers" else {}
    (found,) = optimize_files(source, tmp_path / "out" / "o.onnx", optimizer(name, **how))
    assert {file.name for file in found.out.parent.iterdir()} == {"o.onnx", "o.onnx.data"}
    assert found.out.stat().st_size < 1 << 20 < (tmp_path / "out" / "o.onnx.data").stat().st_size
    assert found.bytes_before == sum(file.stat().st_size for file in source.parent.iterdir())
    assert all(one.within for one in found.differences)


def test_split_operations_stay_split(tmp_path):
    """Parts of split operations are commands of their layer after fusions, each number once."""
    parts = tmp_path / "parts.onnx"
    split_files(TRANSFORMER, parts, Target(parts=2), op_types=["MatMul"])
    (found,) = optimize_files(parts, tmp_path / "o.onnx", Optimizer(level="extended"))

    def commands(path: Path) -> list[tuple[str, str]]:
        metadata = [node.metadata_props for node in read_model(path).graph.all_nodes()]
        return [(one[LAYER], one[COMMAND_INDEX]) for one in metadata if COMMAND_INDEX in one]

    before, after = commands(parts), commands(found.out)
    assert len(after) == len(set(after))
    assert set(after) <= set(before)
    assert {layer for layer, _ in after} == {layer for layer, _ in before}


def test_a_folder(tmp_path):
    """Every model of a folder is optimized, as the type of its class; what else is there comes
    along."""
    source, out = tmp_path / "in", tmp_path / "out"
    for part in ("text_encoder", "text_encoder_3"):
        (source / part).mkdir(parents=True)
        for file in (TINY / part).iterdir():
            (source / part / file.name).write_bytes(file.read_bytes())
    found = optimize_files(source, out, optimizer("ort-transformers"))
    assert [one.optimizer.model_type for one in found] == ["clip", "t5"]
    assert [one.out for one in found] == [
        out / part / "model.onnx" for part in ("text_encoder", "text_encoder_3")
    ]
    assert (out / "text_encoder" / "config.json").is_file()
    assert found[1].nodes_after["com.microsoft.SkipSimplifiedLayerNormalization"] == 4


def test_what_computes_something_else_is_not_written(tmp_path, monkeypatch):
    """An optimizer that changes a weight is found out, and leaves no file."""
    run = files.run_optimizer

    def wrong(*arguments):
        done = run(*arguments)
        bias = done.model.graph.initializers["proj_out.bias"]
        array = bias.const_value.numpy().copy()
        array[0] += 1
        bias.const_value = ir.tensor(array, name=bias.name)
        return done

    monkeypatch.setattr(files, "run_optimizer", wrong)
    with pytest.raises(OutputError, match="computes something else"):
        optimize_files(TRANSFORMER, tmp_path / "o.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_installed(monkeypatch, tmp_path):
    """A missing package is one sentence with the command that installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in PACKAGES:
        with pytest.raises(InputError, match=rf"^{name} needs .*pip install '[a-z]+>=[0-9.]+'"):
            optimize_files(ENCODER, tmp_path / "o.onnx", Optimizer(name))


def test_what_an_optimizer_does_not_take(tmp_path):
    """An operator that ONNX Runtime does not have is its sentence, with what to do, and no file."""
    model = graph("float[2] x", "float[2] y", "[n] y = own.Thing(x)", domains=', "own": 1')
    source = save(model, tmp_path)
    with pytest.raises(InputError, match=r"ort cannot optimize it \(.*Thing.*\): choose another"):
        optimize_files(source, tmp_path / "o.onnx")
    assert list(tmp_path.iterdir()) == [source]


def test_more_than_2_gb_for_fusions_that_read_weights(tmp_path):
    """A type whose fusions compute with weights is refused above 2 GB, before these are read."""
    rows, columns = 16384, 17000
    model = graph(f"float[b,{rows}] x", f"float[b,{columns}] y", "[m] y = MatMul(x, w)")
    size = rows * columns * 4 * 2
    tensor = onnx.TensorProto(name="w", dims=[2 * rows, columns], data_type=1, data_location=1)
    for key, value in (("location", "w.data"), ("offset", "0"), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    source = save(model, tmp_path)
    with (tmp_path / "w.data").open("wb") as file:
        file.truncate(size)  # without taking the disk
    chosen = optimizer("ort-transformers", model_type="clip")
    with pytest.raises(InputError, match=r"more than 2 GB.*take --with ort"):
        optimize_files(source, tmp_path / "o.onnx", chosen)
    assert not (tmp_path / "o.onnx").exists()


def test_a_model_without_class(tmp_path):
    """ort-transformers asks for the type where nothing tells it."""
    source = save(graph("float[2] x", "float[2] y", "[n] y = Relu(x)"), tmp_path)
    with pytest.raises(InputError, match="give --model-type, one of mmdit"):
        optimize_files(source, tmp_path / "o.onnx", optimizer("ort-transformers"))
