"""Each rule of `graph check`: a graph in which it finds something, and one in which it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from profiler.errors import InputError
from profiler.graph import check_model
from profiler.graph.check import RULES
from profiler.pipelines.model_folder import TARGETS
from tests.graph.models import graph, save

LONG = np.arange(256, dtype=np.float32)
LAYERNORM = (
    "m = ReduceMean(x, last) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, last) "
    "s = Add(v, eps) r = Sqrt(s) y = Div(d, r)"
)
RMSNORM = "q = Pow(x, two) v = ReduceMean(q, last) s = Add(v, eps) r = Sqrt(s) y = Div(x, r)"
NORM_INITIALIZERS = "int64[1] last={-1}, float two={2}, float eps={0.00001}"
ERF = "h = Div(x, root) e = Erf(h) p = Add(e, one) t = Mul(x, p) y = Mul(t, half)"
ERF_INITIALIZERS = "float root={1.4142}, float one={1}, float half={0.5}"
TANH = (
    "x2 = Mul(x, x) x3 = Mul(x2, x) c = Mul(x3, k) a = Add(x, c) b = Mul(a, root) e = Tanh(b) "
    "p = Add(e, one) t = Mul(x, p) y = Mul(t, half)"
)
ATTENTION = (
    "kt = Transpose<perm=[0,2,1]>(x) s = MatMul(x, kt) u = Mul(s, half) m = Add(u, mask) "
    "p = Softmax<axis=-1>(m) y = MatMul(p, x)"
)
PAIRS = (
    "a = Transpose<perm=[1,0]>(x) [n] b = Transpose<perm=[1,0]>(a) "
    "c = Cast<to=11>(b) [m] d = Cast<to=1>(c) y = Relu(d)"
)
NO_PAIRS = (
    "a = Cast<to=10>(x) b = Cast<to=1>(a) c = Transpose<perm=[1,0]>(b) "
    "d = Reshape(c, s) y = Reshape(d, t)"
)

BRANCHES = (
    "[m] a = Relu(x) [i] y = If (c) <then_branch = t () => (float[2] p) {[p] p = Neg(a)}, "
    "else_branch = e () => (float[2] q) {[q] q = Abs(a)}>"
)

# rule → severity, where it is found, its graph (inputs, outputs, nodes), other arguments of `graph`
FOUND = {
    "empty_input": (
        "error",
        ["n", "n"],
        ("float[2,4] x", "float[2,4] y", '[n] y = LayerNormalization<axis=-1>(x, "", "")'),
        {},
    ),
    "dangling_input": (
        "error",
        ["n"],
        ("float[2] x", "float[2] y", "[n] y = Add(x, nowhere)"),
        {},
    ),
    "unsorted_node": (
        "error",
        ["n"],
        ("float[2] x", "float[2] y", "[n] y = Neg(a) [m] a = Relu(x)"),
        {},
    ),
    "invalid_node": ("error", ["n"], ("float[2] x", "float[2] y", "[n] y = Add(x)"), {}),
    "duplicate_node_name": (
        "error",
        ["n"],
        ("float[2] x", "float[2] y", "[n] a = Relu(x) [n] y = Neg(a)"),
        {},
    ),
    "unnamed_node": (
        "note",
        ["Relu that writes 'y'"],
        ("float[2] x", "float[2] y", "y = Relu(x)"),
        {},
    ),
    "int64_compute": (
        "warning",
        ["n"],
        ("float[4,8] x", "int64[4] y", "i = ArgMax<axis=1,keepdims=0>(x) [n] y = Add(i, i)"),
        {},
    ),
    "float64_tensor": (
        "warning",
        ["n", "m"],
        ("float[2] x", "float[2] y", "[n] d = Cast<to=11>(x) [m] e = Sin(d) y = Cast<to=1>(e)"),
        {},
    ),
    "unknown_operator": (
        "error",
        ["n"],
        ("float[2] x", "float[2] y", "[n] y = my.Own(x)"),
        {"domains": ', "my": 1'},
    ),
    "constant_subgraph": (
        "warning",
        ["n"],
        ("float[2] x", "float[2] y", "s = Sqrt(w) [n] t = Neg(s) y = Add(x, t)"),
        {"initializers": "float[2] w={1,2}"},
    ),
    "duplicate_initializer": (
        "warning",
        ["b"],
        ("float[256] x", "float[256] y", "h = Add(x, a) y = Add(h, b)"),
        {"arrays": {"a": LONG, "b": LONG}},
    ),
    "redundant_pair": (
        "warning",
        ["n", "m"],
        (
            "float[2,4] x",
            "float[2,4] y",
            PAIRS,
        ),
        {},
    ),
    "decomposed_layernorm": (
        "note",
        ["Div that writes 'y'"],
        ("float[2,4] x", "float[2,4] y", LAYERNORM),
        {"initializers": NORM_INITIALIZERS},
    ),
    "decomposed_rmsnorm": (
        "note",
        ["Div that writes 'y'"],
        ("float[2,4] x", "float[2,4] y", RMSNORM),
        {"initializers": NORM_INITIALIZERS},
    ),
    "decomposed_gelu": (
        "note",
        ["Erf that writes 'e'"],
        ("float[2,4] x", "float[2,4] y", ERF),
        {"initializers": ERF_INITIALIZERS},
    ),
    "decomposed_attention": (
        "note",
        ["Softmax that writes 'p'"],
        ("float[2,3,4] x, float[3,3] mask", "float[2,3,4] y", ATTENTION),
        {"initializers": "float half={0.5}"},
    ),
}

# rule → graphs near the fault in which it finds nothing
SILENT = {
    "empty_input": [
        (("float[2,4] x, float[4] s", "float[2,4] y", "y = LayerNormalization(x, s)"), {}),
        (("float[2] x, float m", "float[2] y", 'y = Clip(x, "", m)'), {}),
    ],
    "dangling_input": [
        (("float[2] x", "float[2] y", "y = Add(x, w)"), {"initializers": "float w={1}"})
    ],
    "unsorted_node": [
        (("float[2] x", "float[2] y", "[m] a = Relu(x) [n] b = Neg(a) [o] y = Add(a, b)"), {}),
        (  # what stands in a branch is read by the node that has the branch
            (
                "bool c, float[2] x",
                "float[2] y",
                BRANCHES,
            ),
            {},
        ),
    ],
    "invalid_node": [(("float[2] x", "float[2] y", "y = Clip(x)"), {})],
    "duplicate_node_name": [(("float[2] x", "float[2] y", "[a] h = Relu(x) [b] y = Neg(h)"), {})],
    "unnamed_node": [(("float[2] x", "float[2] y", "[a] y = Relu(x)"), {})],
    "int64_compute": [
        (  # arithmetic on sizes: shapes are int64 by ONNX
            (
                "float[B,6] x",
                "float[C,D] y",
                "s = Shape<end=1>(x) t = Mul(s, k) u = Concat<axis=0>(t, r) y = Reshape(x, u)",
            ),
            {"initializers": "int64[1] k={2}, int64[1] r={-1}"},
        )
    ],
    "float64_tensor": [(("float[2] x", "float16[2] y", "y = Cast<to=10>(x)"), {})],
    "unknown_operator": [
        (
            ("float[2] x", "float[2] y", "y = com.microsoft.Gelu(x)"),
            {"domains": ', "com.microsoft": 1'},
        )
    ],
    "constant_subgraph": [
        (
            ("float[2] x", "float[2] y", "c = Constant<value = float[2] {1,2}>() y = Add(x, c)"),
            {},
        )
    ],
    "duplicate_initializer": [
        (
            ("float[256] x", "float[256] y", "h = Add(x, a) y = Add(h, b)"),
            {"arrays": {"a": LONG, "b": np.where(LONG == 77, 0, LONG).astype("float32")}},
        )
    ],
    "redundant_pair": [
        (  # a narrowing Cast, a Transpose that moves, a Reshape with 0 that copies a size
            (
                "float[2,4] x",
                "float[2,4] y",
                NO_PAIRS,
            ),
            {"initializers": "int64[2] s={2,4}, int64[2] t={0,4}"},
        )
    ],
    "decomposed_layernorm": [
        (("float[2,4] x", "float[2,4] y", RMSNORM), {"initializers": NORM_INITIALIZERS}),
        (("float[2,4] x, float[4] s", "float[2,4] y", "y = LayerNormalization(x, s)"), {}),
    ],
    "decomposed_rmsnorm": [
        (("float[2,4] x", "float[2,4] y", LAYERNORM), {"initializers": NORM_INITIALIZERS})
    ],
    "decomposed_gelu": [
        (("float[2,4] x", "float[2,4] y", "y = Tanh(x)"), {}),
        (  # a gate: no cube of x
            ("float[2,4] x", "float[2,4] y", "e = Tanh(x) p = Add(e, one) y = Mul(x, p)"),
            {"initializers": ERF_INITIALIZERS},
        ),
        (("float[2,4] x", "float[2,4] y", "y = Gelu(x)"), {"opset": 20}),
    ],
    "decomposed_attention": [
        (  # a classifier: one MatMul is by a weight
            (
                "float[2,4] x, float[5,2] z",
                "float[5,4] y",
                "s = MatMul(x, w) p = Softmax(s) y = MatMul(z, p)",
            ),
            {"arrays": {"w": np.eye(4, dtype=np.float32)}},
        )
    ],
}


def found(folder: Path, given: tuple, options: dict, **asked: object) -> dict[str, list]:
    """Findings of the graph by rule."""
    result = check_model(save(graph(*given, **options), folder), **asked)
    by_rule: dict[str, list] = {}
    for finding in result.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    return by_rule


@pytest.mark.parametrize("rule", FOUND)
def test_a_graph_with_the_fault(rule: str, tmp_path: Path) -> None:
    """The rule finds the fault, at the nodes that have it, with its severity and a
    recommendation."""
    severity, places, given, options = FOUND[rule]
    findings = [f for f in found(tmp_path, given, options)[rule] if f.severity == severity]
    assert [finding.node for finding in findings] == places
    assert all(finding.evidence and finding.recommendation for finding in findings)


@pytest.mark.parametrize("rule", SILENT)
def test_a_graph_without_the_fault(rule: str, tmp_path: Path) -> None:
    """The rule stays silent on graphs that are near the fault, and right."""
    for given, options in SILENT[rule]:
        assert rule not in found(tmp_path, given, options)


def test_every_rule_is_tested() -> None:
    """Each registered rule has a graph that triggers it and one on which it is silent."""
    elsewhere = {"dynamic_shape", "unsupported_opset", "missing_data"}
    assert set(FOUND) == set(SILENT) == set(RULES) - elsewhere


def test_the_documentation_names_all() -> None:
    """docs/graph.md has each rule, and each target with its opsets."""
    text = (Path(__file__).parents[2] / "docs" / "graph.md").read_text("utf-8")
    assert [rule for rule in RULES if f"`{rule}`" not in text] == []
    for name, target in TARGETS.items():
        [row] = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"{target.highest} |" in row


def test_gelu_by_tanh(tmp_path: Path) -> None:
    """GELU's approximation is known by its factor of the cube."""
    options = {
        "initializers": "float k={0.044715}, float root={0.7979}, float one={1}, float half={0.5}"
    }
    findings = found(tmp_path, ("float[2,4] x", "float[2,4] y", TANH), options)
    assert [finding.node for finding in findings["decomposed_gelu"]] == ["Tanh that writes 'e'"]


def test_int64_inputs_are_noted(tmp_path: Path) -> None:
    """An int64 input is a note; one in int32 is none."""
    given = ("{}[2] i", "float[2,4] y", "[n] y = Gather(w, i)")
    for dtype, expected in (("int64", ["i"]), ("int32", [])):
        nodes = (given[0].format(dtype), *given[1:])
        findings = found(tmp_path, nodes, {"arrays": {"w": np.ones((8, 4), "float32")}})
        assert [f.node for f in findings.get("int64_compute", [])] == expected


def test_static_shapes(tmp_path: Path) -> None:
    """Symbolic sizes and shapes that depend on data are errors where static ones are asked for,
    and only there."""
    given = ("float[B,4] x, float[S,T] z", "int64[2,N] y", "[n] y = NonZero(x)")
    assert "dynamic_shape" not in found(tmp_path, given, {})
    findings = found(tmp_path, given, {}, static=True)["dynamic_shape"]
    assert [(f.node, f.severity) for f in findings] == [(n, "error") for n in ("x", "z", "n")]
    assert findings[0].evidence == "input of shape B x 4: B is not fixed"
    assert findings[1].evidence == "input of shape S x T: S, T are not fixed"


def test_targets_that_take_fixed_sizes(tmp_path: Path) -> None:
    """QNN takes no dynamic shapes: that is an error with its source, without --static; of fixed
    sizes nothing is said, and other targets say nothing."""
    given = ("float[B,4] x", "int64[2,N] y", "[n] y = NonZero(x)")
    findings = found(tmp_path, given, {}, target="qnn")["dynamic_shape"]
    assert [f.node for f in findings] == ["x", "n"]
    assert "B is not fixed, and Qualcomm AI Runtime 2.39 takes fixed ones" in findings[0].evidence
    assert "QNN-ExecutionProvider" in findings[0].evidence
    fixed = ("float[2,4] x", "float[2,4] y", "[n] y = Relu(x)")
    assert "dynamic_shape" not in found(tmp_path, fixed, {}, target="qnn")
    assert "dynamic_shape" not in found(tmp_path, given, {}, target="tensorrt-11")


@pytest.mark.parametrize(
    ("target", "opset", "error"),
    [
        ("tensorrt-10.0", 20, False),
        ("tensorrt-10.0", 21, True),
        ("tensorrt-11", 8, True),
        ("qnn", 22, False),
        ("qnn", 23, True),
        ("onnxruntime", 26, False),
        ("", 26, False),
    ],
)
def test_opsets_of_targets(target: str, opset: int, error: bool, tmp_path: Path) -> None:
    """The model's opset is an error where the target's documents do not reach it."""
    given = ("float[2] x", "float[2] y", "[n] y = Relu(x)")
    findings = found(tmp_path, given, {"opset": opset}, target=target)
    assert ("unsupported_opset" in findings) == error


def test_operators_of_runtimes(tmp_path: Path) -> None:
    """ONNX Runtime's own operators are an error for a target that takes those of ONNX."""
    given = ("float[2] x", "float[2] y", "[n] y = com.microsoft.Gelu(x)")
    options = {"domains": ', "com.microsoft": 1'}
    findings = found(tmp_path, given, options, target="qnn")["unsupported_opset"]
    assert [finding.node for finding in findings] == ["n"]
    assert "unsupported_opset" not in found(tmp_path, given, options, target="onnxruntime")


def test_an_unknown_target(tmp_path: Path) -> None:
    """A target that is not in the table is refused with the names of those that are."""
    path = save(graph("float[2] x", "float[2] y", "y = Relu(x)"), tmp_path)
    with pytest.raises(
        InputError, match=r"no target is called 'npu': give one of onnxruntime, .*qnn"
    ):
        check_model(path, target="npu")


def test_nodes_in_a_circle(tmp_path: Path) -> None:
    """A circle is an error that nothing repairs; nodes that only stand in another order are."""
    given = ("float[2] x", "float[2] y", "[n] a = Add(x, b) [m] b = Relu(a) [o] y = Neg(b)")
    [circle] = found(tmp_path, given, {})["unsorted_node"]
    assert (circle.node, circle.fix) == ("n", False)
    assert circle.evidence == "Add reads 'b', which is computed from what it writes"
    given = ("float[2] x", "float[2] y", "[n] y = Neg(a) [m] a = Relu(x)")
    [late] = found(tmp_path, given, {})["unsorted_node"]
    assert (late.evidence, late.fix) == ("Neg reads 'a', which a later node writes", True)


def test_a_branch_that_reads_what_comes_later(tmp_path: Path) -> None:
    """A node reads what its branches read."""
    branches = "<then_branch = t () => (float[2] p) {[p] p = Neg(a)}, else_branch = e () => "
    nodes = f"[i] y = If (c) {branches}(float[2] q) {{[q] q = Abs(x)}}> [m] a = Relu(x)"
    [late] = found(tmp_path, ("bool c, float[2] x", "float[2] y", nodes), {})["unsorted_node"]
    assert late.node == "i"


def test_an_output_that_no_node_writes(tmp_path: Path) -> None:
    """Outputs of the model are looked at as inputs of nodes are; an input may be an output."""
    [gone] = found(tmp_path, ("float[2] x", "float[2] y", "[n] z = Relu(x)"), {})["dangling_input"]
    assert (gone.node, gone.evidence) == ("y", "the model gives 'y', which no node writes")
    passed = ("float[2] x", "float[2] x, float[2] y", "[n] y = Relu(x)")
    assert "dangling_input" not in found(tmp_path, passed, {})


@pytest.mark.parametrize("imported", [[], [("", 999)], [("my", 1)]])
def test_an_opset_that_there_is_not(imported: list, tmp_path: Path) -> None:
    """Without an opset of ONNX, or with one beyond the latest, nobody knows the operators."""
    model = graph("float[2] x", "float[2] y", "[n] y = Relu(x)")
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(*entry) for entry in imported)
    result = check_model(save(model, tmp_path))
    assert [f.severity for f in result.findings if f.rule == "unsupported_opset"] == ["error"]


def test_a_negative_size_is_not_fixed(tmp_path: Path) -> None:
    """Sizes of -1, as some exporters write free ones, count as free."""
    model = graph("float[2,4] x", "float[2,4] y", "[n] y = Relu(x)")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    [free] = check_model(save(model, tmp_path), static=True).findings
    assert free.evidence == "input of shape -1 x 4: -1 is not fixed"


def test_names_are_cut(tmp_path: Path) -> None:
    """A name of a megabyte does not become a page of text."""
    model = graph("float[2] x", "float[2] y", "y = Own(x)")
    model.graph.node[0].op_type = "n" * (1 << 20)
    for finding in check_model(save(model, tmp_path)).findings:
        assert max(map(len, (finding.node, finding.evidence, finding.recommendation))) <= 1001


def test_a_long_chain_of_constants(tmp_path: Path) -> None:
    """Each node of a chain that data reads, too, is followed back; that ends in a model of many,
    and what was found until then stays."""
    nodes = " ".join(f"c{i + 1} = Neg(c{i}) a{i + 1} = Add(a{i}, c{i + 1})" for i in range(2000))
    given = ("float[2] a0", "float[2] a2000", nodes)
    findings = found(tmp_path, given, {"initializers": "float[2] c0={1,2}"})["constant_subgraph"]
    assert 1000 < len(findings) < 2000
    assert findings[999].evidence.endswith("by 1000 nodes")
