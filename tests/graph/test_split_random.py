"""Outputs stay the same, and parts are numbered without gaps, for random shapes and targets."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.graph import Target
from tests.examples import examples
from tests.graph.split_models import check_same, commands, make_model, numbers

SETTINGS = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
SIZE = st.integers(1, 9)
TARGETS = st.one_of(
    st.integers(2, 5).map(lambda parts: Target(parts=parts)),
    st.integers(8, 400).map(lambda limit: Target(max_bytes=limit)),
)


def check(model, feeds, target):
    """Same outputs; the numbers of the only layer are 0, 1, …; parts keep to the limit."""
    result = check_same(model, feeds, target)
    assert len(result.split) + len(result.whole) + result.small == 1
    found = [index for _, _, index, _ in commands(model)]
    assert sorted(found) == list(range(len(found)))
    for operation in result.split:
        assert operation.parts == sum("/part_" in name for name, *_ in commands(model))
        if target.max_bytes is not None:
            assert operation.part_bytes is not None
            assert operation.part_bytes <= target.max_bytes < operation.bytes


@st.composite
def broadcasting(draw, most=2):
    """Batch dimensions of two operands that broadcast."""
    dims = draw(st.lists(st.tuples(SIZE, st.sampled_from("ab1")), max_size=most))
    first = [1 if which == "b" else size for size, which in dims]
    second = [1 if which == "a" else size for size, which in dims]
    return tuple(first[draw(st.integers(0, len(dims))) :]), tuple(second)


@SETTINGS
@given(broadcasting(), SIZE, SIZE, SIZE, st.sampled_from(["x", "w", ""]), TARGETS)
def test_matmul(batches, rows, inner, columns, constant, target):
    """Any batch dimensions, uneven portions, either operand constant or none."""
    arrays = {
        "x": numbers(*batches[0], rows, inner),
        "w": numbers(*batches[1], inner, columns, seed=1),
    }
    weights = {constant: arrays.pop(constant)} if constant else {}
    check(make_model([("MatMul", ["x", "w"], "y", {})], arrays, weights), arrays, target)


@SETTINGS
@given(
    *(SIZE, SIZE, SIZE),
    *(st.booleans(), st.booleans()),
    st.sampled_from([None, "", "1", "n", "1n", "m1", "mn"]),
    st.sampled_from(["a", "b", ""]),
    TARGETS,
)
def test_gemm(rows, inner, columns, trans_a, trans_b, bias, constant, target):
    """Either operand transposed, constant or none, and biases that broadcast."""
    arrays = {
        "a": numbers(*((inner, rows) if trans_a else (rows, inner))),
        "b": numbers(*((columns, inner) if trans_b else (inner, columns)), seed=1),
    }
    if bias is not None:
        dims = {"1": 1, "m": rows, "n": columns}
        arrays["c"] = np.asarray(numbers(*(dims[name] for name in bias)), dtype=np.float32)
    weights = {constant: arrays.pop(constant)} if constant else {}
    attributes = {"transA": int(trans_a), "transB": int(trans_b), "alpha": 1.5, "beta": 0.5}
    inputs = ["a", "b", *(["c"] if bias is not None else [])]
    check(make_model([("Gemm", inputs, "y", attributes)], arrays, weights), arrays, target)


@SETTINGS
@given(
    *(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
    *(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    *(st.booleans(), st.booleans()),
    TARGETS,
)
def test_conv(group, inputs, outputs, kernel, stride, rank, bias, constant, target):  # noqa: PLR0917
    """One and two dimensions, groups, strides, with and without a bias, weights computed or not."""
    arrays = {
        "x": numbers(2, group * inputs, *(6,) * rank),
        "w": numbers(group * outputs, inputs, *(kernel,) * rank, seed=1),
    }
    if bias:
        arrays["b"] = numbers(group * outputs, seed=2)
    weights = {name: arrays.pop(name) for name in ("w", "b") if constant and name in arrays}
    attributes = {"group": group, "strides": [stride] * rank, "kernel_shape": [kernel] * rank}
    names = ["x", "w", *(["b"] if bias else [])]
    check(make_model([("Conv", names, "y", attributes)], arrays, weights), arrays, target)


@SETTINGS
@given(
    *(st.integers(1, 2), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([None, (), ("s", "t"), (1, "s", "t"), ("h", 1, 1), ("b", "h", "s", "t")]),
    st.booleans(),
    TARGETS,
)
def test_attention_chain(batch, heads, length, size, mask, scaled, target):
    """Scales and masks of all shapes that broadcast to the scores."""
    feeds = {
        "q": numbers(batch, heads, length, size),
        "k": numbers(batch, heads, size, length + 1, seed=1),
        "v": numbers(batch, heads, length + 1, size, seed=2),
    }
    nodes = [("MatMul", ["q", "k"], "s0", {})]
    weights = {}
    if scaled:
        weights["scale"] = np.float32(size**-0.5).reshape(())
        nodes.append(("Mul", [nodes[-1][2], "scale"], "s1", {}))
    if mask is not None:
        dims = {"b": batch, "h": heads, "s": length, "t": length + 1, 1: 1}
        shape = [dims[name] for name in mask]
        feeds["mask"] = np.asarray(numbers(*shape, seed=3), dtype=np.float32)
        nodes.append(("Add", ["mask", nodes[-1][2]], "s2", {}))
    nodes.append(("Softmax", [nodes[-1][2]], "p", {"axis": -1}))
    nodes.append(("MatMul", ["p", "v"], "y", {}))
    model = make_model(nodes, feeds, weights)
    result = check_same(model, feeds, target)
    if target.parts is not None and heads > 1:
        assert [found.op_type for found in result.split] == ["Attention"]
        expected = min(heads, target.parts)
        parts = [name for name, *_ in commands(model) if "/part_" in name]
        assert len(parts) == expected * len(nodes)
