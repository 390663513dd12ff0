"""`--fix` repairs what is safe, proves it by comparing outputs, and keeps the model elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.errors import InputError, OutputError
from profiler.graph import check_model, random_inputs, read_model, run_model
from profiler.graph.fix import fix_folder, fix_model
from profiler.graph.model import model_files, output_folder
from profiler.graph.verify import compare_models
from profiler.pipelines import default_model_folder
from tests.examples import examples
from tests.graph.models import external_model, graph, save

LONG = np.arange(256, dtype=np.float32)


def fixed(folder: Path, model: onnx.ModelProto) -> tuple[dict, onnx.ModelProto]:
    """What was repaired, by rule, and the repaired model."""
    path = save(model, folder)
    before = path.read_bytes()
    result = fix_model(path, folder / "fixed.onnx")
    assert path.read_bytes() == before
    assert all(difference.within for difference in result.differences)
    written = onnx.load(folder / "fixed.onnx")
    onnx.checker.check_model(written, full_check=True)
    return dict(result.repaired), written


def op_types(model: onnx.ModelProto) -> list[str]:
    """The operations of the graph, in order."""
    return [node.op_type for node in model.graph.node]


def legacy_layernorms(opset: int = 17) -> onnx.ModelProto:
    """Two LayerNorms without affine parameters as older exporters wrote them: empty names for
    scale and bias, and no shapes in between."""
    nodes = [
        onnx.helper.make_node("LayerNormalization", ["x", "", ""], ["a"], "/norm1", axis=-1),
        onnx.helper.make_node("Mul", ["a", "k"], ["b"], "/mul"),
        onnx.helper.make_node(
            "LayerNormalization", ["b", ""], ["y"], "/norm2", axis=1, epsilon=1e-3
        ),
    ]
    value = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        nodes,
        "legacy",
        [value("x", onnx.TensorProto.FLOAT, ["batch", 6, 8])],
        [value("y", onnx.TensorProto.FLOAT, ["batch", 6, 8])],
        [onnx.numpy_helper.from_array(np.linspace(-3, 3, 8, dtype=np.float32), "k")],
    )
    return onnx.helper.make_model(
        made, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8
    )


@pytest.mark.parametrize("opset", [17, 18])
def test_the_fault_that_stopped_a_conversion(opset: int, tmp_path: Path) -> None:
    """LayerNorms with empty names get ones and zeros; outputs are those of their definition, for
    ONNX Runtime refuses the model as it was."""
    model = legacy_layernorms(opset)
    path = save(model, tmp_path, "legacy.onnx")
    errors = [found.node for found in check_model(path).findings if found.severity == "error"]
    assert errors == ["/norm1", "/norm1", "/norm2"]
    x = np.random.default_rng(0).standard_normal((2, 6, 8), dtype=np.float32)
    with pytest.raises(InputError, match="ONNX Runtime does not take"):
        run_model(path, {"x": x})

    repaired, written = fixed(tmp_path, model)
    assert repaired == {"empty_input": 3}
    assert [name for node in written.graph.node for name in node.input if not name] == []
    assert not check_model(tmp_path / "fixed.onnx").findings

    def norm(value: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
        centered = value - value.mean(axes, keepdims=True)
        return centered / np.sqrt((centered**2).mean(axes, keepdims=True) + epsilon)

    expected = norm(norm(x, (2,), 1e-5) * np.linspace(-3, 3, 8, dtype=np.float32), (1, 2), 1e-3)
    assert np.allclose(run_model(tmp_path / "fixed.onnx", {"x": x})["y"], expected, atol=1e-5)


def test_the_fault_in_a_diffusion_transformer(tmp_path: Path) -> None:
    """The tiny transformer with the scales and biases of its LayerNorms emptied, which are ones and
    zeros there, and its shapes forgotten: repaired, it computes what it did before."""
    source = default_model_folder() / "transformer" / "model.onnx"
    model = onnx.load(source)
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    for node in norms:
        del node.input[1:]
        node.input.extend(["", ""])
    del model.graph.value_info[:]
    path = save(model, tmp_path)
    assert check_model(path).count("error") == 2 * len(norms) == 32
    result = fix_model(path, tmp_path / "out.onnx")
    assert result.repaired["empty_input"] == 32
    assert not result.left.count("error")
    inputs = random_inputs(read_model(source))
    assert all(found.within for found in compare_models(source, tmp_path / "out.onnx", inputs))


def test_a_scale_of_unknown_size_is_left(tmp_path: Path) -> None:
    """A LayerNorm over a symbolic size is not repaired, and that is said of its node."""
    path = save(
        graph("float[2,N] x", "float[2,N] y", '[n] y = LayerNormalization<axis=-1>(x, "")'),
        tmp_path,
    )
    [found] = [found for found in check_model(path).findings if found.severity == "error"]
    assert not found.fix
    with pytest.raises(InputError, match="LayerNormalization 'n' has no Scale, and of which size"):
        fix_model(path, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_an_empty_bias_is_left_out(tmp_path: Path) -> None:
    """The empty bias of a Conv, a Gemm and a LayerNorm is no empty input any more."""
    nodes = (
        '[c] a = Conv(x, w, "") [r] b = Reshape(a, s) '
        '[n] l = LayerNormalization<axis=-1>(b, k, "") [g] y = Gemm(l, v, "")'
    )
    ones = {"w": np.ones((4, 3, 1), np.float32), "v": np.eye(4, dtype=np.float32)}
    model = graph(
        "float[2,3,N] x, float[M] k",
        "float[P,4] y",
        nodes,
        initializers="int64[2] s={-1,4}",
        arrays=ones,
    )
    path = save(model, tmp_path)
    fixes = [found.fix for found in check_model(path).findings if found.rule == "empty_input"]
    assert fixes == [True, True, True]
    result = fix_model(path, tmp_path / "out.onnx", sizes={"M": 4})
    assert result.repaired == {"empty_input": 3}
    written = onnx.load(tmp_path / "out.onnx")
    assert [name for node in written.graph.node for name in node.input if not name] == []


def test_instance_and_rms_norms(tmp_path: Path) -> None:
    """The same fault of InstanceNormalization and RMSNormalization is repaired and proven alike."""
    nodes = '[n] a = InstanceNormalization(x, "", b) [m] y = RMSNormalization<axis=-1>(a, "")'
    model = graph(
        "float[2,3,8] x", "float[2,3,8] y", nodes, initializers="float[3] b={1,2,3}", opset=23
    )
    repaired, _ = fixed(tmp_path, model)
    assert repaired == {"empty_input": 2}


def test_pairs(tmp_path: Path) -> None:
    """Casts there and back, Transposes that follow each other, Reshapes in a row and Unsqueeze with
    Squeeze leave the least that computes the same."""
    nodes = (
        "[a] a = Cast<to=11>(x) [b] b = Cast<to=1>(a) [c] c = Transpose<perm=[1,2,0]>(b) "
        "[d] d = Transpose<perm=[1,2,0]>(c) [e] e = Reshape(d, s) [f] f = Reshape(e, t) "
        "[g] g = Unsqueeze(f, u) [h] h = Squeeze(g, u) [i] y = Relu(h)"
    )
    stored = "int64[2] s={6,4}, int64[3] t={2,-1,4}, int64[1] u={1}"
    repaired, written = fixed(
        tmp_path, graph("float[2,3,4] x", "float[2,3,4] y", nodes, initializers=stored)
    )
    assert op_types(written) == ["Transpose", "Reshape", "Relu"]
    assert list(written.graph.node[0].attribute[0].ints) == [2, 0, 1]
    assert set(repaired) == {"redundant_pair"}


def test_a_pair_whose_middle_is_read(tmp_path: Path) -> None:
    """The first of a pair stays where another node, or an output, has what it writes."""
    nodes = (
        "[a] a = Transpose<perm=[1,0]>(x) [b] b = Transpose<perm=[1,0]>(a) [c] y = Relu(b) "
        "[d] z = Neg(a)"
    )
    _, written = fixed(tmp_path, graph("float[2,3] x", "float[2,3] y, float[3,2] z", nodes))
    assert op_types(written) == ["Transpose", "Relu", "Neg"]
    nodes = "[a] y = Transpose<perm=[1,0]>(x) [b] z = Transpose<perm=[1,0]>(y)"
    _, written = fixed(tmp_path, graph("float[2,3] x", "float[3,2] y, float[2,3] z", nodes))
    assert op_types(written) == ["Transpose", "Transpose"]
    assert list(written.graph.node[1].input) == ["x"]


def test_constants_are_folded(tmp_path: Path) -> None:
    """Nodes that compute from initializers become one initializer; what they read goes too."""
    nodes = "[a] a = Transpose<perm=[1,0]>(w) [b] b = Sqrt(a) [c] y = MatMul(x, b)"
    model = graph(
        "float[2,3] x", "float[2,4] y", nodes, arrays={"w": np.ones((4, 3), np.float32) * 4}
    )
    repaired, written = fixed(tmp_path, model)
    assert repaired == {"constant_subgraph": 1}
    assert op_types(written) == ["MatMul"]
    [stored] = written.graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(stored), np.full((3, 4), 2, np.float32))


def test_what_would_grow_is_not_folded(tmp_path: Path) -> None:
    """A few bytes that are expanded to megabytes stay computed."""
    nodes = "[a] a = Expand(k, s) [b] y = Add(x, a)"
    model = graph(
        "float[1024,1024] x",
        "float[1024,1024] y",
        nodes,
        initializers="float k={2}, int64[2] s={1024,1024}",
    )
    path = save(model, tmp_path)
    [found] = [found for found in check_model(path).findings if found.rule == "constant_subgraph"]
    assert (found.severity, found.fix) == ("note", False)
    _, written = fixed(tmp_path, model)
    assert op_types(written) == ["Expand", "Add"]


def test_weights_are_stored_once(tmp_path: Path) -> None:
    """Readers of a duplicate read the first weight, and the file loses the second."""
    nodes = "[a] h = Add(x, a) [b] i = Mul(h, b) [c] y = Sub(i, c)"
    arrays = {"a": LONG, "b": LONG, "c": LONG + 1}
    repaired, written = fixed(tmp_path, graph("float[256] x", "float[256] y", nodes, arrays=arrays))
    assert repaired == {"duplicate_initializer": 1}
    assert [tensor.name for tensor in written.graph.initializer] == ["a", "c"]


def test_names(tmp_path: Path) -> None:
    """Shared names get numbers that are free, missing ones come from operation and output."""
    nodes = "[n] a = Relu(x) [n] b = Neg(a) [n_1] c = Abs(b) y = Sin(c)"
    repaired, written = fixed(tmp_path, graph("float[2] x", "float[2] y", nodes))
    assert [node.name for node in written.graph.node] == ["n", "n_2", "n_1", "Sin_y"]
    assert repaired == {"duplicate_node_name": 1, "unnamed_node": 1}


STEPS = st.lists(
    st.sampled_from(
        ["cast64", "cast32", "cast16", "turn", "turn_back", "flat", "cube", "add_axis", "drop_axis"]
    ),
    max_size=10,
)


@settings(max_examples=examples(50))
@given(steps=STEPS, tap=st.integers(0, 9))
def test_any_chain_of_pairs_computes_the_same(
    steps: list[str], tap: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any chain of Cast, Transpose, Reshape and Squeeze, with an output in its middle, computes the
    same after repair, and a second repair finds no pair."""
    lines, value, rank = [], "x", 3
    for number, step in enumerate(steps):
        perms = {3: ("[1,2,0]", "[2,0,1]"), 4: ("[1,2,3,0]", "[3,0,1,2]")}[rank]
        if (step == "drop_axis" and rank == 3) or (step == "add_axis" and rank == 4):
            continue
        if step in ("flat", "cube") and rank == 4:
            continue
        call = {
            "cast64": f"Cast<to=11>({value})",
            "cast32": f"Cast<to=1>({value})",
            "cast16": f"Cast<to=10>({value})",
            "turn": f"Transpose<perm={perms[0]}>({value})",
            "turn_back": f"Transpose<perm={perms[1]}>({value})",
            "flat": f"Reshape({value}, flat)",
            "cube": f"Reshape({value}, cube)",
            "add_axis": f"Unsqueeze({value}, zero)",
            "drop_axis": f"Squeeze({value}, zero)",
        }[step]
        if step == "drop_axis" and not lines[-1].endswith("zero)"):
            continue  # the axis of size 1 has moved
        rank += {"add_axis": 1, "drop_axis": -1}.get(step, 0)
        lines.append(f"[n{number}] v{number} = {call}")
        value = f"v{number}"
    names = [line.split()[1] for line in lines]
    second = names[tap % len(names)] if names else "x"
    nodes = f"{' '.join(lines)} [last] y = Cast<to=1>({value}) [tap] z = Cast<to=1>({second})"
    model = graph(
        "float[2,3,4] x",
        "float y, float z",
        nodes,
        initializers="int64[3] flat={1,24,1}, int64[3] cube={4,-1,2}, int64[1] zero={0}",
    )
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    folder = tmp_path_factory.mktemp("chain")
    path = save(model, folder)
    result = fix_model(path, folder / "out.onnx")
    assert all(difference.absolute == 0 for difference in result.differences)
    again = check_model(folder / "out.onnx")
    assert not [found for found in again.findings if found.rule == "redundant_pair" and found.fix]


def test_external_data_is_repaired_too(tmp_path: Path) -> None:
    """A model with external data is repaired into a file and its .data."""
    path = external_model(tmp_path)
    result = fix_model(path, tmp_path / "out" / "fixed.onnx")
    assert result.differences[0].absolute == 0
    inputs = random_inputs(read_model(path))
    again = run_model(tmp_path / "out" / "fixed.onnx", inputs)["y"]
    assert np.array_equal(again, run_model(path, inputs)["y"])


@pytest.mark.parametrize(("dtype", "code"), [("bfloat16", 16), ("float16", 10), ("double", 11)])
def test_types_of_floats(dtype: str, code: int, tmp_path: Path) -> None:
    """Models of each type of floats are compared, bfloat16 too."""
    model = graph(
        f"{dtype}[2,4] x, float z",
        f"{dtype}[2,4] y, float[2,4] f",
        f"[n] a = Cast<to=1>(x) [n] f = Add(a, z) [m] y = Cast<to={code}>(f)",
    )
    path = save(model, tmp_path)
    result = fix_model(path, tmp_path / "out.onnx")
    names = {"double": "float64"}
    assert [d.dtype for d in result.differences] == [names.get(dtype, dtype), "float32"]
    assert all(difference.absolute == 0 for difference in result.differences)


def test_inputs_are_never_written_over(tmp_path: Path) -> None:
    """The model itself as OUT, and missing data, are one sentence; nothing is written."""
    path = save(graph("float[2] x", "float[2] y", "y = Relu(x)"), tmp_path)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="is an input, which is never written over"):
        fix_model(path, path)
    assert path.read_bytes() == before
    (tmp_path / "cut").mkdir()
    cut = external_model(tmp_path / "cut", size=3)
    with pytest.raises(InputError, match="the file ends at 3"):
        fix_model(cut, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_data_that_is_repaired_away_is_an_input(tmp_path: Path) -> None:
    """OUT.data is refused where the input's data lies there, though the repaired model has none."""
    path = external_model(tmp_path, location="out.onnx.data")
    model = onnx.load(path, load_external_data=False)
    del model.graph.node[:]
    nodes = "[c] d = Sqrt(w) [m] y = MatMul(x, d)"
    model.graph.node.extend(graph("float[2,8] x", "float[2,16] y", nodes).graph.node)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(OutputError, match=r"out\.onnx\.data is an input"):
        fix_model(path, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size == 512


def test_sizes_that_the_model_does_not_take(tmp_path: Path) -> None:
    """Where default sizes do not run, the sentence asks for some; with them it is repaired."""
    given_ = ("float[N] x", "float[3,M] y", "y = Reshape(x, s)")
    path = save(graph(*given_, initializers="int64[2] s={3,-1}"), tmp_path)
    with pytest.raises(InputError, match=r"does not run on inputs x \[8\].*give sizes"):
        fix_model(path, tmp_path / "out.onnx")
    fix_model(path, tmp_path / "out.onnx", sizes={"N": 9})
    assert (tmp_path / "out.onnx").is_file()


def test_the_tiny_pipeline(tmp_path: Path) -> None:
    """The tiny pipeline has no error; it is repaired as a folder that has all its other files, and
    the constant of its transformer is folded."""
    source, out = default_model_folder(), tmp_path / "out"
    models = model_files(source)
    assert not any(check_model(path).count("error") for path in models)
    results = fix_folder(source, out, models)
    repaired = {result.out.parent.name: result.repaired for result in results}
    assert repaired["transformer"] == {"constant_subgraph": 1}
    assert not any(result.left.count("warning") for result in results)
    names = {
        path.relative_to(source) for path in source.rglob("*") if "__pycache__" not in path.parts
    }
    assert {path.relative_to(out) for path in out.rglob("*")} == names


def test_functions_and_subgraphs(tmp_path: Path) -> None:
    """Nodes of subgraphs are repaired like others; nodes of functions whose attributes are those of
    the call are left."""
    inner = "[a] s = Cast<to=11>(x) [b] t = Cast<to=1>(s) [b] o = Relu(t)"
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18, "own": 1]> '
        "g (float[2,4] x, bool c) => (float[4,2] y) { "
        f"[if] b = If(c) <then_branch = t () => (float[2,4] o) {{ {inner} }}, "
        "else_branch = e () => (float[2,4] p) { [k] p = Neg(x) }> "
        "[call] y = own.turn<perm=[1,0]>(b) } "
        '<domain: "own", opset_import: ["": 18]> turn <perm> (x) => (y) '
        "{ [p] d = Transpose<perm: ints=@perm>(x) [q] e = Transpose<perm: ints=@perm>(d) "
        "[r] y = Transpose<perm: ints=@perm>(e) }"
    )
    repaired, written = fixed(tmp_path, model)
    assert repaired == {"redundant_pair": 2}
    branches = {attribute.name: attribute.g for attribute in written.graph.node[0].attribute}
    assert [node.op_type for node in branches["then_branch"].node] == ["Relu"]
    assert len(written.functions[0].node) == 3


def test_nodes_are_put_in_order(tmp_path: Path) -> None:
    """Nodes that stand before what they read are moved behind it."""
    model = graph("float[2] x", "float[2] y", "[n] y = Neg(a) [m] a = Relu(x)")
    repaired, written = fixed(tmp_path, model)
    assert repaired == {"unsorted_node": 1}
    assert op_types(written) == ["Relu", "Neg"]


def test_many_nodes_of_one_name(tmp_path: Path) -> None:
    """Names are numbered on from the last number that a name got, past those that are taken."""
    nodes = "[n] a = Relu(x) [n] b = Neg(a) [n_1] c = Abs(b) [n] d = Exp(c) [n_1] y = Neg(d)"
    repaired, written = fixed(tmp_path, graph("float[2] x", "float[2] y", nodes))
    assert repaired == {"duplicate_node_name": 3}
    assert [node.name for node in written.graph.node] == ["n", "n_2", "n_1", "n_3", "n_1_1"]


def test_what_a_folder_refuses_names_its_output(tmp_path: Path) -> None:
    """A model of a folder that cannot be repaired is named where it would lie, not in a copy."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    path = save(graph("float[2] x", "float[2] y", "[n] y = Log(x)"), source)
    with pytest.raises(InputError) as refused, output_folder(source, out, []) as copy:
        raise InputError(f"{copy / path.name} is refused")
    assert str(refused.value) == f"{out / 'model.onnx'} is refused"
    assert not out.exists()
