"""Attention in parts by heads: chains of operations, ONNX's operation, ONNX Runtime's two."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from profiler.graph import Target, split_model
from tests.graph.split_models import add_scopes, check_same, commands, make_model, numbers

Q, K, V = (numbers(2, 4, 5, 6, seed=seed) for seed in range(3))
FLAT = [numbers(2, 5, 24, seed=seed) for seed in range(3)]


def chain(softmax_axis=-1):
    feeds = {"q": Q, "k": K, "v": V}
    nodes = [
        ("Transpose", ["k"], "kt", {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["q", "kt"], "s", {}),
        ("Mul", ["s", "scale"], "m", {}),
        ("Softmax", ["m"], "p", {"axis": softmax_axis}),
        ("MatMul", ["p", "v"], "y", {}),
    ]
    return make_model(nodes, feeds, {"scale": np.float32([0.4])}), feeds


def test_scores_of_a_chain_stay_in_their_part():
    """Every operation between the MatMuls is split, and put together once, at the end."""
    model, feeds = chain()
    add_scopes(model, {node.name: "attn" for node in model.graph})
    result = check_same(model, feeds, Target(parts=2))
    assert [(found.node, found.axis, found.parts) for found in result.split] == [
        ("MatMul_4", "heads", 2)
    ]
    names = [name for name, *_ in commands(model)]
    assert [name for name in names if "/part_0" in name] == [
        "MatMul_1/part_0",
        "Mul_2/part_0",
        "Softmax_3/part_0",
        "MatMul_4/part_0",
    ]
    assert sum("concat" in name for name in names) == 1
    numbers = Counter(name.partition("/")[0] for name in names)
    for operation, count in numbers.items():
        own = [i for name, _, i, _ in commands(model) if name.startswith(f"{operation}/")]
        assert sorted(own) == list(range(count))
    assert {layer for _, layer, _, _ in commands(model)} == {"attn"}


def test_a_softmax_over_heads_is_no_attention_of_heads():
    """A Softmax that mixes heads keeps them together."""
    model, feeds = chain(softmax_axis=1)
    result = check_same(model, feeds, Target(parts=2), op_types=["Attention"])
    assert [found.reason for found in result.whole] == ["its Softmax is not over its last axis"]


def test_one_head_leaves_the_matmuls():
    """Attention of a single head has nothing to cut but its MatMuls."""
    feeds = {"q": Q[:1, :1], "k": K[:1, :1].swapaxes(2, 3).copy(), "v": V[:1, :1]}
    nodes = [
        ("MatMul", ["q", "k"], "s", {}),
        ("Softmax", ["s"], "p", {"axis": -1}),
        ("MatMul", ["p", "v"], "y", {}),
    ]
    result = check_same(make_model(nodes, feeds), feeds, Target(parts=2))
    assert [(found.op_type, found.axis) for found in result.split] == [("MatMul", "columns")] * 2
    assert not result.whole
    model = make_model(nodes, feeds)
    result = check_same(model, feeds, Target(parts=2), op_types=["Attention"])
    assert [found.reason for found in result.whole] == ["it has too few heads: 1"]


def test_a_softmax_between_weights_is_no_attention():
    """A gate, say: its MatMuls have columns of their weights."""
    nodes = [
        ("MatMul", ["x", "w"], "s", {}),
        ("Softmax", ["s"], "p", {"axis": -1}),
        ("MatMul", ["p", "v"], "y", {}),
    ]
    feeds = {"x": FLAT[0]}
    model = make_model(nodes, feeds, {"w": numbers(24, 6), "v": numbers(6, 8)})
    result = check_same(model, feeds, Target(parts=2))
    assert [(found.op_type, found.axis) for found in result.split] == [("MatMul", "columns")] * 2


def test_matmuls_alone_where_attention_is_not_asked_for():
    """Without `Attention` the MatMuls of a chain are split each for itself."""
    model, feeds = chain()
    result = check_same(model, feeds, Target(parts=2), op_types=["MatMul"])
    assert [found.axis for found in result.split] == ["batches", "batches"]


def test_a_mask_of_truth_values():
    """What is chosen by a mask a head is cut with it, whatever its type."""
    feeds = {"q": Q, "k": K.swapaxes(2, 3).copy(), "v": V, "mask": numbers(2, 4, 5, 5) > -1}
    nodes = [
        ("MatMul", ["q", "k"], "s", {}),
        ("Where", ["mask", "s", "low"], "m", {}),
        ("Softmax", ["m"], "p", {"axis": -1}),
        ("MatMul", ["p", "v"], "y", {}),
    ]
    model = make_model(nodes, feeds, {"low": np.float32(-1e4).reshape(())})
    result = check_same(model, feeds, Target(parts=3))
    assert [(found.axis, found.parts) for found in result.split] == [("heads", 3)]


def test_scores_that_are_read_elsewhere():
    """Where the scores are an output of the model, the MatMuls are split each for itself."""
    nodes = [
        ("MatMul", ["q", "k"], "s", {}),
        ("Softmax", ["s"], "p", {"axis": -1}),
        ("MatMul", ["p", "v"], "y", {}),
    ]
    feeds = {"q": Q, "k": K.swapaxes(2, 3).copy(), "v": V}
    model = make_model(nodes, feeds, outputs=("p", "y"))
    result = check_same(model, feeds, Target(parts=2))
    assert [(found.op_type, found.axis) for found in result.split] == [("MatMul", "batches")] * 2


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("mask", [None, (5, 5), (1, 1, 5, 5), (2, 4, 5, 5)])
@pytest.mark.parametrize("flat", [False, True])
def test_onnx_attention(kv_heads, mask, flat):
    """Queries follow the heads of their keys, in both layouts; a mask of heads is cut with them."""
    feeds = {"q": Q, "k": K[:, :kv_heads].copy(), "v": V[:, :kv_heads].copy()}
    attributes = {}
    if flat:
        feeds = {
            name: array.swapaxes(1, 2).reshape(2, 5, -1).copy() for name, array in feeds.items()
        }
        attributes = {"q_num_heads": 4, "kv_num_heads": kv_heads}
    if mask is not None:
        feeds["mask"] = numbers(*mask)
    model = make_model([("Attention", list(feeds), "y", attributes)], feeds, opset=23)
    result = check_same(model, feeds, Target(parts=2))
    assert [(found.op_type, found.axis, found.parts) for found in result.split] == [
        ("Attention", "heads", 2)
    ]


@pytest.mark.parametrize("heads_of_bias", [0, 1, 4])
def test_attention_with_packed_weights(heads_of_bias):
    """Weights and bias of query, key and value are cut by heads, each by itself."""
    weights = {"w": numbers(7, 72), "b": numbers(72)}
    inputs = ["x", "w", "b"]
    feeds = {"x": numbers(2, 5, 7)}
    if heads_of_bias:
        feeds["bias"] = numbers(2, heads_of_bias, 5, 5)
        inputs += ["", "", "bias"]
    nodes = [("com.microsoft:Attention", inputs, "y", {"num_heads": 4})]
    model = make_model(nodes, feeds, weights)
    result = check_same(model, feeds, Target(parts=3))
    assert [(found.parts, found.bytes, found.part_bytes) for found in result.split] == [
        (3, 2016, 1008)
    ]


def test_attention_with_widths_of_its_own():
    """Values that are wider than queries keep their width a head."""
    weights = {"w": numbers(7, 8 + 8 + 16), "b": numbers(32)}
    attributes = {"num_heads": 4, "qkv_hidden_sizes": [8, 8, 16]}
    feeds = {"x": numbers(2, 5, 7)}
    nodes = [("com.microsoft:Attention", ["x", "w", "b"], "y", attributes)]
    assert check_same(make_model(nodes, feeds, weights), feeds, Target(parts=2)).split


@pytest.mark.parametrize("form", ["apart", "apart with bias", "keys by head"])
def test_multi_head_attention(form):
    """Queries, keys and values apart, with a bias, or as (batch, heads, length, size)."""
    feeds = dict(zip(("q", "k", "v"), FLAT, strict=True))
    weights = {}
    if form == "keys by head":
        feeds = {"q": FLAT[0], "k": K, "v": V}
    elif form == "apart with bias":
        weights = {"b": numbers(72)}
    inputs = [*feeds, *weights]
    nodes = [("com.microsoft:MultiHeadAttention", inputs, "y", {"num_heads": 4})]
    model = make_model(nodes, feeds, weights)
    result = check_same(model, feeds, Target(parts=2))
    assert [(found.op_type, found.parts) for found in result.split] == [("MultiHeadAttention", 2)]


def test_packed_queries_keys_and_values():
    """(batch, length, heads, 3, size) is cut along its heads; ONNX Runtime runs it on GPUs only."""
    feeds = {"q": numbers(2, 5, 4, 3, 6)}
    nodes = [("com.microsoft:MultiHeadAttention", ["q"], "y", {"num_heads": 4})]
    model = make_model(nodes, feeds)
    assert len(split_model(model, Target(parts=2)).split) == 1
    handed, *parts, _ = model.graph
    assert (handed.op_type, handed.attributes["axis"].as_int()) == ("Split", 2)
    assert [part.attributes["num_heads"].as_int() for part in parts] == [2, 2]


def test_states_of_earlier_tokens_keep_an_operation_whole():
    """What is read and written whole cannot be cut by heads."""
    feeds = {"q": Q, "k": K, "v": V, "past_k": K, "past_v": V}
    inputs = ["q", "k", "v", "", "past_k", "past_v"]
    model = make_model([("Attention", inputs, "y", {})], feeds, opset=23)
    result = split_model(model, Target(parts=2))
    assert [found.reason for found in result.whole] == ["it reads states of earlier tokens"]
