"""MatMul, Gemm and Conv in parts: what is cut, what parts are called, what cannot be split."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from profiler.errors import InputError
from profiler.graph import Target, split_model
from profiler.graph.split import SplitOperation, WholeOperation
from profiler.graph.split_parts import shape_for
from tests.graph.models import graph
from tests.graph.split_models import add_scopes, check_same, commands, make_model, numbers, run

X = numbers(2, 5, 6)


def linear(columns=7):
    return make_model([("MatMul", ["x", "w"], "y", {})], {"x": X}, {"w": numbers(6, columns)})


def test_columns_of_a_constant_are_sliced():
    """Three parts of seven columns have 3, 2 and 2, as initializers of their own; the whole weight
    is gone; the output keeps its name."""
    model = linear()
    result = check_same(model, {"x": X}, Target(parts=3))
    assert result.split == [SplitOperation("MatMul_0", "MatMul", "MatMul_0", "columns", 3, 168, 72)]
    assert [tuple(value.shape) for value in model.graph.initializers.values()] == [
        (6, 3),
        (6, 2),
        (6, 2),
    ]
    assert [output.name for output in model.graph.outputs] == ["y"]


def test_parts_have_the_layer_of_the_operation_and_a_number():
    """Parts are named after the node and numbered from 0, what gathers them comes behind and is a
    copy; the module path is their layer, and what else stood on the node is on them."""
    model = linear()
    add_scopes(model, {"MatMul_0": "block.fc1"})
    split_model(model, Target(parts=2))
    assert commands(model) == [
        ("MatMul_0/part_0", "block.fc1", 0, ""),
        ("MatMul_0/part_1", "block.fc1", 1, ""),
        ("MatMul_0/concat", "block.fc1", 2, "copy"),
    ]
    assert all("pkg.torch.onnx.name_scopes" in node.metadata_props for node in model.graph)


def test_each_operation_of_a_module_numbers_its_parts():
    """Two operations of one module have numbers from 0 each."""
    weights = {"w": numbers(6, 4), "v": numbers(4, 4)}
    nodes = [("MatMul", ["x", "w"], "h", {}), ("MatMul", ["h", "v"], "y", {})]
    model = make_model(nodes, {"x": X}, weights)
    add_scopes(model, {"MatMul_0": "mlp", "MatMul_1": "mlp"})
    check_same(model, {"x": X}, Target(parts=2))
    assert [(layer, index) for _, layer, index, _ in commands(model)] == [
        ("mlp", number) for _ in range(2) for number in range(3)
    ]


def test_a_model_that_was_split_can_be_split_further():
    """Parts of parts belong to the same layer, with numbers that are free."""
    model = linear(8)
    split_model(model, Target(parts=2))
    check_same(model, {"x": X}, Target(parts=2))
    found = [index for _, layer, index, _ in commands(model) if layer == "MatMul_0"]
    assert len(found) == len(set(found)) == 7  # two of 2 parts and a copy, and the first copy


def test_bytes_of_a_part_stay_below_the_limit():
    """A column has 24 bytes: 60 are two columns, so that seven need four parts; a model that has
    no more is left alone."""
    model = linear()
    result = check_same(model, {"x": X}, Target(max_bytes=60))
    assert [(found.parts, found.part_bytes) for found in result.split] == [(4, 48)]
    assert split_model(linear(), Target(max_bytes=168)).small == 1


def test_a_single_column_is_cut_along_the_sum():
    """Too few columns: parts have terms, an activation is handed out by a Split, and their outputs
    are added up: a computation, not a copy."""
    model = linear(1)
    result = check_same(model, {"x": X}, Target(parts=4))
    assert [(found.axis, found.parts) for found in result.split] == [("terms", 4)]
    assert [(name, category) for name, _, _, category in commands(model)] == [
        ("MatMul_0/split_x", "copy"),
        *((f"MatMul_0/part_{number}", "") for number in range(4)),
        ("MatMul_0/sum", ""),
    ]


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "axis"),
    [
        ((2, 4, 5, 6), (2, 4, 6, 3), "batches"),
        ((2, 4, 5, 6), (4, 6, 3), "batches"),
        ((4, 5, 6), (2, 1, 6, 3), "batches"),
        ((5, 6), (6, 4), "columns"),
        ((5, 6), (6,), "rows"),
        ((6,), (6, 4), "columns"),
        ((3, 1, 5, 6), (6, 4), "columns"),
        ((3, 1, 5, 6), (6, 1), "rows"),
        ((3, 1, 1, 6), (6, 1), "batches"),
        ((1, 5, 6), (6, 4), "columns"),
    ],
)
def test_activations(shape_a, shape_b, axis):
    """Between two activations heads come first, then columns, then rows, in all ways in which
    operands may broadcast."""
    feeds = {"x": numbers(*shape_a), "w": numbers(*shape_b, seed=1)}
    model = make_model([("MatMul", ["x", "w"], "y", {})], feeds)
    result = check_same(model, feeds, Target(parts=2))
    assert [found.axis for found in result.split] == [axis]


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "axis"),
    [((8, 6), (2, 6, 5), "rows"), ((1, 6), (6, 5), "terms"), ((6,), (6, 5), "terms")],
)
def test_a_constant_on_the_left(shape_a, shape_b, axis):
    """Rows of the constant, or portions of the sum where it has one row."""
    feeds = {"x": numbers(*shape_b)}
    model = make_model([("MatMul", ["w", "x"], "y", {})], feeds, {"w": numbers(*shape_a)})
    result = check_same(model, feeds, Target(parts=3))
    assert [(found.axis, found.parts) for found in result.split] == [(axis, 3)]


@pytest.mark.parametrize("bias", [None, (), (1,), (7,), (1, 7), (5, 1), (5, 7)])
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("constant", ["a", "b", ""])
def test_gemm(bias, transposed, constant):
    """Transposed operands, alpha and beta, and a bias of each shape that broadcasts."""
    a, b = numbers(5, 6), numbers(6, 7)
    arrays = {"a": a.T.copy() if transposed else a, "b": b.T.copy() if transposed else b}
    if bias is not None:
        arrays["c"] = np.asarray(numbers(*bias), dtype=np.float32)
    weights = {name: arrays.pop(name) for name in (constant, "c") if name in arrays}
    if not arrays:
        return
    attributes = {"transA": transposed, "transB": transposed, "alpha": 0.5, "beta": 2.0}
    inputs = ["a", "b", *(["c"] if bias is not None else [])]
    model = make_model([("Gemm", inputs, "y", attributes)], arrays, weights)
    result = check_same(model, arrays, Target(parts=3))
    axis = "rows" if constant == "a" else "columns"
    assert [(found.axis, found.parts) for found in result.split] == [(axis, 3)]


@pytest.mark.parametrize("bias", [False, True])
def test_gemm_adds_its_bias_once(bias):
    """Of portions of the sum only the first has the bias."""
    weights = {"w": numbers(6, 1), **({"c": numbers(1)} if bias else {})}
    model = make_model([("Gemm", ["x", *weights], "y", {})], {"x": numbers(5, 6)}, weights)
    result = check_same(model, {"x": numbers(5, 6)}, Target(parts=3))
    assert [found.axis for found in result.split] == ["terms"]


@pytest.mark.parametrize(
    ("channels", "group", "outputs", "axis", "parts"),
    [
        (6, 1, 8, "channels", 3),
        (6, 1, 1, "terms", 3),
        (6, 3, 6, "groups", 3),
        (6, 6, 6, "groups", 3),
        (6, 2, 4, "groups", 2),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_conv(channels, group, outputs, axis, parts, bias):
    """Output channels, whole groups, or input channels added up."""
    weights = {"w": numbers(outputs, channels // group, 3, 3)}
    if bias:
        weights["b"] = numbers(outputs)
    feeds = {"x": numbers(2, channels, 8, 8)}
    attributes = {"group": group, "pads": [1, 1, 1, 1], "strides": [2, 2]}
    model = make_model([("Conv", ["x", *weights], "y", attributes)], feeds, weights)
    result = check_same(model, feeds, Target(parts=3))
    assert [(found.axis, found.parts) for found in result.split] == [(axis, parts)]


def test_a_weight_that_others_use_stays():
    """A weight of two operations is cut once, and stays whole for who needs it whole."""
    nodes = [
        ("MatMul", ["x", "w"], "h", {}),
        ("MatMul", ["h", "w"], "g", {}),
        ("Add", ["g", "w"], "y", {}),
    ]
    feeds = {"x": numbers(6, 6)}
    model = make_model(nodes, feeds, {"w": numbers(6, 6)})
    check_same(model, feeds, Target(parts=2))
    assert set(model.graph.initializers) == {"w", "w/0_3", "w/3_6"}


def test_slices_are_read_when_they_are_written(tmp_path):
    """Nothing of an external weight is read by the split itself: the data may be missing."""
    model = linear()
    ir.save(model, tmp_path / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    loaded = ir.load(tmp_path / "m.onnx")
    (tmp_path / "m.data").unlink()
    assert len(split_model(loaded, Target(parts=2)).split) == 1
    with pytest.raises(OSError, match=r"m\.data"):
        next(iter(loaded.graph.initializers.values())).const_value.numpy()


def test_operations_in_subgraphs():
    """Branches of an If are split where they stand, with weights of the outer graph."""

    def branch(op_type):
        node = helper.make_node(op_type, ["x", "w"], [op_type], op_type)
        output = helper.make_tensor_value_info(op_type, TensorProto.FLOAT, None)
        return helper.make_graph([node], op_type, [], [output])

    feeds = {"x": numbers(6, 6), "chosen": np.array(True)}
    branches = {"then_branch": branch("MatMul"), "else_branch": branch("Add")}
    nodes = [("If", ["chosen"], "y", branches)]
    model = make_model(nodes, feeds, {"w": numbers(6, 6)})
    result = check_same(model, feeds, Target(parts=3))
    assert [(found.node, found.parts) for found in result.split] == [("MatMul", 3)]
    assert len(model.graph.initializers) == 4  # the slices, and w for the other branch


def test_what_cannot_be_split_is_listed_with_its_reason():
    """An operation whose axes are known only when it runs stays as it is."""
    feeds = {"x": numbers(5, 6), "w": numbers(6, 7)}
    shapes = {"x": ["rows", "inner"], "w": ["inner", "columns"]}
    model = make_model([("MatMul", ["x", "w"], "y", {})], feeds, shapes=shapes)
    result = check_same(model, feeds, Target(parts=2))
    reason = (
        "how many columns it has is only known when it runs; "
        "how many rows it has is only known when it runs"
    )
    assert result.whole == [WholeOperation("MatMul_0", "MatMul", "MatMul_0", reason)]
    assert not result.split


def test_bytes_need_sizes():
    """Bytes of activations follow from the sizes of symbolic dimensions, and are unknown without
    them."""
    feeds = {"x": numbers(2, 4, 5, 6), "w": numbers(2, 4, 6, 5)}
    shapes = {"x": ["n", 4, "s", 6], "w": ["n", 4, 6, "s"]}

    def split(**asked):
        model = make_model([("MatMul", ["x", "w"], "y", {})], feeds, shapes=shapes)
        return check_same(model, feeds, Target(max_bytes=500), **asked)

    assert "--size" in split().whole[0].reason
    found = split(sizes={"n": 2, "s": 5}).split
    assert [(one.axis, one.parts, one.bytes, one.part_bytes) for one in found] == [
        ("batches", 2, 960, 480)
    ]


@pytest.mark.parametrize(
    ("name", "sizes", "size"),
    [
        ("height//2", {"height": 9}, 4),
        ("Max(0, n - 3)", {"n": 8}, 5),
        ("batch size", {"batch size": 3}, 3),
        ("batch size", {"n": 3}, None),
        ("?", {"n": 3}, None),
        ("9**9**9**9**9", {"n": 3}, None),
        ("9999999999*n", {"n": 3}, None),
        ("(" * 400, {"n": 3}, None),
        ("n/0", {"n": 3}, None),
        ("n - 8", {"n": 3}, None),
    ],
)
def test_names_of_dimensions(name, sizes, size):
    """A size follows from an expression of others; what is none stays open, soon."""
    (found,) = shape_for(ir.Shape([name]), sizes)
    assert (found if isinstance(found, int) else None) == size


def test_bytes_behind_shapes_that_are_computed():
    """Sizes reach through a Reshape whose shape the graph computes."""
    feeds = {"x": numbers(6, 10)}
    nodes = [
        ("Shape", ["x"], "s", {"start": 0, "end": 1}),
        ("Concat", ["four", "s", "rest"], "t", {"axis": 0}),
        ("Reshape", ["x", "t"], "a", {}),
        ("Transpose", ["a"], "b", {"perm": [0, 2, 1]}),
        ("MatMul", ["a", "b"], "y", {}),
    ]
    weights = {"four": np.array([5]), "rest": np.array([2])}
    model = make_model(nodes, feeds, weights, shapes={"x": ["n", 10]})
    result = check_same(model, feeds, Target(max_bytes=200), sizes={"n": 6})
    assert [(one.axis, one.bytes, one.parts) for one in result.split] == [("batches", 720, 5)]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"op_types": ["Relu"]}, "operations of type Relu cannot be split"),
        ({"nodes": ["nowhere"]}, "node nowhere is none"),
    ],
)
def test_unknown_names_are_refused(asked, words):
    """A type or node that is not there gets a sentence."""
    with pytest.raises(InputError, match=words):
        split_model(linear(), Target(parts=2), **asked)


def test_only_what_is_named_is_split():
    """Types and nodes can be chosen."""
    nodes = [("MatMul", ["x", "w"], "h", {}), ("MatMul", ["h", "w"], "y", {})]
    model = make_model(nodes, {"x": X}, {"w": numbers(6, 6)})
    result = split_model(model, Target(parts=2), nodes=["MatMul_1"])
    assert [found.node for found in result.split] == ["MatMul_1"]
    assert not split_model(model, Target(parts=2), op_types=["Conv"]).split


def test_old_opsets_have_the_lengths_as_attributes():
    """Split of opset 11 takes its lengths otherwise; older models are refused."""
    feeds = {"x": numbers(5, 6)}
    nodes = [("MatMul", ["x", "w"], "y", {})]
    model = make_model(nodes, feeds, {"w": numbers(6, 1)}, opset=11)
    assert check_same(model, feeds, Target(parts=3)).split
    model = make_model(nodes, feeds, {"w": numbers(6, 4)}, opset=9)
    with pytest.raises(InputError, match="opset 9"):
        split_model(model, Target(parts=3))


def test_a_graph_output_in_the_middle():
    """An output that other nodes read keeps its name and readers."""
    nodes = [("MatMul", ["x", "w"], "h", {}), ("Relu", ["h"], "y", {})]
    model = make_model(nodes, {"x": X}, {"w": numbers(6, 4)}, outputs=("h", "y"))
    check_same(model, {"x": X}, Target(parts=2))
    assert len(run(model, {"x": X})) == 2


def test_weights_behind_other_operations():
    """A weight that is transposed or converted when the model is loaded is a weight all the same:
    its columns are cut, by a Split that ONNX Runtime folds."""
    feeds = {"x": numbers(2, 3, 6)}
    nodes = [("Transpose", ["w"], "t", {"perm": [1, 0]}), ("MatMul", ["x", "t"], "y", {})]
    model = make_model(nodes, feeds, {"w": numbers(4, 6)})
    found = check_same(model, feeds, Target(parts=2)).split
    assert [(one.axis, one.bytes, one.part_bytes) for one in found] == [("columns", 96, 48)]


def test_weights_in_constant_nodes():
    """The value of a Constant node is sliced as an initializer is, and the node goes."""
    value = numpy_helper.from_array(numbers(6, 4))
    nodes = [("Constant", [], "w", {"value": value}), ("MatMul", ["x", "w"], "y", {})]
    model = make_model(nodes, {"x": X})
    check_same(model, {"x": X}, Target(parts=2))
    assert [node.op_type for node in model.graph] == ["MatMul", "MatMul", "Concat"]


def test_integers_are_not_added_up():
    """Sum takes floats: columns of integers can be cut, portions of their sum cannot."""
    x = np.arange(12, dtype=np.int64).reshape(2, 6)
    nodes = [("MatMul", ["x", "w"], "y", {})]
    model = make_model(nodes, {"x": x}, {"w": np.ones((6, 4), np.int64)})
    assert check_same(model, {"x": x}, Target(parts=2)).split
    model = make_model(nodes, {"x": x}, {"w": np.ones((6, 1), np.int64)})
    reasons = [found.reason for found in check_same(model, {"x": x}, Target(parts=2)).whole]
    assert reasons == ["Sum does not add up INT64"]


def test_half_precision():
    """Weights of float16 are sliced as they are."""
    x = numbers(5, 6, dtype=np.float16)
    model = make_model(
        [("MatMul", ["x", "w"], "y", {})], {"x": x}, {"w": numbers(6, 4, dtype=np.float16)}
    )
    assert check_same(model, {"x": x}, Target(parts=2), tolerance=1e-2).split[0].bytes == 48


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (("MatMul", ["x"], "y", {}), "takes 2 to 2 inputs, not 1"),
        (("Conv", ["x", "w"], "y", {"group": "two"}), "has a STRING as its attribute 'group'"),
    ],
)
def test_nodes_that_are_no_use_of_their_operator(node, words):
    """They are refused with a sentence, whichever of them would be split."""
    model = make_model([node], {"x": X}, {"w": numbers(6, 4)})
    with pytest.raises(InputError, match=words):
        split_model(model, Target(parts=2))


@pytest.mark.parametrize(
    ("node", "shape", "reason"),
    [
        (("Gemm", ["x", "w"], "y", {}), (6,), "its operands are no matrices"),
        (("Conv", ["x", "w"], "y", {"group": 3}), (4, 2, 3, 3), "its 4 channels have no 3 groups"),
        (("Conv", ["x", "w"], "y", {}), (4, 2), "the shape of its weights is not known"),
        (("Conv", ["x", "w", "b"], "y", {}), (4, 2, 3, 3), "its operand b does not fit"),
    ],
)
def test_operands_that_do_not_fit(node, shape, reason):
    """An operation that cannot run stays whole; nothing of the graph is changed."""
    weights = {"w": numbers(*shape), "b": numbers(3)}
    model = make_model([node], {"x": numbers(2, 6)}, weights)
    result = split_model(model, Target(parts=2))
    assert reason in result.whole[0].reason
    assert [found.op_type for found in model.graph] == [node[0]]
    assert set(model.graph.initializers) == set(weights)


@pytest.mark.parametrize(
    ("operation", "weight", "reason"),
    [
        ("MatMul", np.eye(4, dtype=np.float32), "one of its operands has no axis"),
        ("Gemm", np.eye(4, dtype=np.float32), "its output does not fit its operands"),
        ("Conv", np.ones((4, 4, 1, 1), np.float32), "its output does not fit its operands"),
    ],
)
def test_shapes_that_lie(operation, weight, reason):
    """An operation whose declared shapes are none that it can have stays whole, with the reason."""
    made = graph("float x", "float y", f"[m] y = {operation}(x, w)", arrays={"w": weight})
    result = split_model(ir.from_proto(made), Target(parts=2))
    assert [(whole.node, whole.op_type) for whole in result.whole] == [("m", operation)]
    assert reason in result.whole[0].reason
