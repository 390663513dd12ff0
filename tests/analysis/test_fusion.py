"""Chains that could be one command, and what that would save, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis import DeviceProfile, parse_shapes, work_of
from profiler.analysis.fusion_chains import find_chains
from tests.analysis.shaped_runs import Shaped, in_order

UNIT = DeviceProfile("unit", {"float32": 1e9}, 1e9, 5.0, "", measured=True)

X = "float[2,8,4]"  # 64 elements, 256 bytes
ROW = "float[2,8,1]"  # 64 bytes
VECTOR = "float[2,1,4]"  # 32 bytes


def _chains(*operations):
    works = [work_of(name, parse_shapes(shapes)) for name, shapes in operations]
    return find_chains(works, [name for name, _ in operations])


def _rows(*operations, calls=1, duration=1000):
    found = Shaped(in_order(*operations, duration=duration), calls=calls).found(cuda=UNIT)
    return found["fusions"].to_dicts()


def test_an_elementwise_chain():
    """Two intermediates of 256 bytes, each written and read once, vanish."""
    (row,) = _rows(
        ("Add", f"{X} {X} -> {X}"), ("Tanh", f"{X} -> {X}"), ("Mul", f"{X} float[] -> {X}")
    )
    assert (row["what"], row["op_types"]) == ("elementwise", "Add → Tanh → Mul")
    assert (row["chains"], row["total_ns"], row["saved_bytes"]) == (1, 3000, 4 * 256)
    assert row["saved_ns"] == 3000 - (3 * 256 + 4)  # two inputs, a number and the result are left


def test_all_calls_count():
    """One call is looked at and stands for three."""
    (row,) = _rows(("Tanh", f"{X} -> {X}"), ("Tanh", f"{X} -> {X}"), calls=3)
    assert (row["chains"], row["total_ns"], row["saved_bytes"]) == (3, 6000, 3 * 512)


def test_no_more_is_saved_than_it_takes():
    """Of 2·300 ns, what is left (256 read, 256 written) takes 512 at the roofline."""
    (row,) = _rows(("Tanh", f"{X} -> {X}"), ("Tanh", f"{X} -> {X}"), duration=300)
    assert row["saved_ns"] == 600 - 512


def test_what_was_faster_than_its_fused_roofline_saves_nobody_knows_what():
    """2·200 ns for what one command takes 512 ns for: data came from a cache."""
    (row,) = _rows(("Tanh", f"{X} -> {X}"), ("Tanh", f"{X} -> {X}"), duration=200)
    assert (row["total_ns"], row["saved_ns"]) == (400, None)


def test_launches_of_one_command_remain():
    """A launch takes 5 ns, however little is left to do."""
    (row,) = _rows(("Tanh", "float[] -> float[]"), ("Tanh", "float[] -> float[]"), duration=4)
    assert (row["total_ns"], row["saved_ns"]) == (8, 0)  # 8 bytes are left
    (row,) = _rows(("Tanh", "bool[] -> bool[]"), ("Tanh", "bool[] -> bool[]"), duration=4)
    assert (row["total_ns"], row["saved_ns"]) == (8, 3)


def test_without_a_profile_bytes_are_known_and_time_is_not():
    """`saved_ns` is null."""
    found = Shaped(in_order(("Tanh", f"{X} -> {X}"), ("Tanh", f"{X} -> {X}"))).found()
    assert found["fusions"].select("saved_bytes", "saved_ns").rows() == [(512, None)]


def test_a_norm_written_by_hand():
    """T5's: square, mean, + ε, root, inverse, · x."""
    (row,) = _rows(
        ("Pow", f"{X} float[] -> {X}"),
        ("ReduceMean", f"{X} int64[1] -> {ROW}"),
        ("Add", f"{ROW} float[] -> {ROW}"),
        ("Sqrt", f"{ROW} -> {ROW}"),
        ("Reciprocal", f"{ROW} -> {ROW}"),
        ("Mul", f"{X} {ROW} -> {X}"),
    )
    assert row["what"] == "norm"
    # the square, four rows of 64 bytes, and x, which need not be read a second time
    assert row["saved_bytes"] == 2 * 256 + 4 * 2 * 64 + 256


def test_a_norm_written_by_hand_in_torch():
    """The mean's result is not in torch's shapes: the next command that reads one fits."""
    (chain,) = _chains(
        ("aten::pow", X),
        ("aten::mean", X),
        ("aten::add", ROW),
        ("aten::rsqrt", ROW),
        ("aten::mul", f"{X} {ROW}"),
    )
    assert chain.members == [0, 1, 2, 3, 4]
    assert chain.saved_bytes == 2 * 256 + 3 * 2 * 64 + 256


def test_what_a_list_takes_is_read_outside():
    """A list tells the width of its elements alone: what it reads of a chain must be written."""
    square, root = ("aten::pow", "float[2,4]"), ("aten::sqrt", "float[2,4]")
    assert [chain.members for chain in _chains(square, root)] == [[0, 1]]
    assert _chains(square, ("aten::cat", "in: bits32[2,4] bits32[2,8]"), root) == []


def test_a_norm_with_modulation():
    """(1 + scale) · norm(x) + shift, scale and shift [batch, 1, width]."""
    (row,) = _rows(
        ("LayerNormalization", f"{X} float[4] -> {X}"),
        ("Mul", f"{X} {VECTOR} -> {X}"),
        ("Add", f"{X} {VECTOR} -> {X}"),
    )
    assert (row["what"], row["saved_bytes"]) == ("norm_and_modulation", 4 * 256)


def test_modulation_alone():
    """A gate and a residual."""
    (row,) = _rows(("Mul", f"{X} {VECTOR} -> {X}"), ("Add", f"{X} {X} -> {X}"))
    assert (row["what"], row["saved_bytes"]) == ("modulation", 512)


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["norm", "norm"], "norm"),
        (["modulation", "norm"], "norm_and_modulation"),
        (["modulation", "residual"], "modulation"),
        (["rope", "other"], "rope"),
        (["mlp", "mlp"], "elementwise"),
        ([None, None], "elementwise"),
    ],
)
def test_roles_say_what_a_chain_is(roles, expected):
    """Whatever its operations look like; roles that say nothing of chains leave it to these."""
    rows = in_order(("Relu", f"{X} -> {X}"), ("Tanh", f"{X} -> {X}"))
    found = Shaped(rows).found(cuda=UNIT)["fusions_by_role"](pl.Series(roles, dtype=pl.String))
    assert found["what"].to_list() == [expected]


SCORES = "float[2,4,8,8]"  # 2048 bytes
Q, K = "float[2,4,8,16]", "float[2,4,16,8]"


def test_unfused_attention():
    """Scores are written and read, as probabilities again: four times 2048 bytes."""
    (row,) = _rows(
        ("MatMul", f"{Q} {K} -> {SCORES}"),
        ("Softmax", f"{SCORES} -> {SCORES}"),
        ("MatMul", f"{SCORES} {Q} -> {Q}"),
    )
    assert (row["what"], row["op_types"]) == ("attention", "MatMul → Softmax → MatMul")
    assert row["saved_bytes"] == 4 * 2048


def test_unfused_attention_with_a_mask():
    """The mask's sum is one more intermediate; views between are passed."""
    (chain,) = _chains(
        ("MatMul", f"{Q} {K} -> {SCORES}"),
        ("Add", f"{SCORES} float[8,8] -> {SCORES}"),
        ("Reshape", f"{SCORES} int64[3] -> float[8,8,8]"),
        ("Softmax", "float[8,8,8] -> float[8,8,8]"),
        ("MatMul", "float[8,8,8] float[8,8,16] -> float[8,8,16]"),
    )
    assert chain.members == [0, 1, 3, 4]
    assert chain.saved_bytes == 6 * 2048


def test_a_product_with_a_weight_is_no_attention():
    """A classifier's softmax: its product has a weight, and is a product before a softmax."""
    assert (
        _chains(("MatMul", "float[8,16] -> float[8,8]"), ("Softmax", "float[8,8] -> float[8,8]"))
        == []
    )


@pytest.mark.parametrize(
    "operations",
    [
        (  # a router: its weights are shares of experts
            ("aten::addmm", "float[4] float[16,8] float[8,4]"),
            ("aten::_softmax", "float[2,8,4]"),
            ("aten::mul", "float[2,8,4] float[2,8,4]"),
            ("aten::addmm", "float[9] float[16,4] float[4,9]"),
        ),
        (  # products of activations that share no scores
            ("aten::bmm", "float[4,8,16] float[4,16,8]"),
            ("aten::bmm", "float[4,8,8] float[4,8,16]"),
            ("aten::add", "float[2,8,4] float[2,8,4]"),
            ("aten::_softmax", "float[2,8,4]"),
            ("aten::bmm", "float[2,8,4] float[2,4,4]"),
        ),
        (  # similarities
            ("aten::bmm", "float[4,8,16] float[4,16,8]"),
            ("aten::_softmax", "float[4,8,8]"),
            ("aten::mm", "float[32,8] float[8,16]"),
        ),
    ],
    ids=["router", "no scores", "no values"],
)
def test_a_softmax_that_is_not_between_products_of_activations_is_no_attention(operations):
    """Products with weights before or behind it stay outside of its chain."""
    chains = _chains(*operations)
    products = [n for n, (name, _) in enumerate(operations) if name.endswith("mm")]
    assert not [chain for chain in chains if chain.is_attention]
    assert not {member for chain in chains for member in chain.members} & {*products}


def test_probabilities_whose_mask_is_made_beside_them():
    """torch's own attention with a bias: the chain of the scores goes on, not that of what finds
    rows without any, and a copy may read what it gave."""
    scores = "float[1,8,10,10]"
    (found,) = _chains(
        ("aten::bmm", "float[8,10,16] float[8,16,10]"),
        ("aten::add_", f"{scores} {scores}"),
        ("aten::_softmax", scores),
        ("aten::all", "bool[1,8,10,10]"),
        ("aten::where", f"bool[1,8,10,1] {scores} {scores}"),
        ("aten::to", scores),
        ("aten::bmm", "float[8,10,10] float[8,10,16]"),
    )
    assert found.is_attention
    assert found.members == [0, 1, 2, 4, 6]


def test_a_convolution_between_ends_the_chain():
    """What the second activation reads was made last by the convolution, not by the first."""
    conv = ("Conv", "float[1,4,8,8] float[4,4,3,3] -> float[1,4,8,8]")
    relu = ("Relu", "float[1,4,8,8] -> float[1,4,8,8]")
    assert _chains(relu, conv, relu) == []


def test_what_something_else_reads_is_still_written():
    """The convolution reads the first activation as well as the chain: its writing stays."""
    image = "float[1,4,8,8]"  # 1024 bytes
    (found,) = _chains(
        ("Add", f"{image} {image} -> {image}"),
        ("Cast", f"{image} -> float16[1,4,8,8]"),
        ("Conv", f"{image} float[4,4,3,3] -> float[1,4,6,6]"),
        ("Tanh", "float16[1,4,8,8] -> float16[1,4,8,8]"),
    )
    assert found.members == [0, 1, 3]
    assert found.saved_bytes == 1024 + 2 * 512


def test_a_chain_ends_where_something_else_reads():
    """The second activation follows a product of what it reads: a residual."""
    assert (
        _chains(
            ("Cast", "float[9] -> float16[9]"),
            ("MatMul", "float16[9] -> float16[3]"),
            ("Tanh", "float16[9] -> float16[9]"),
        )
        == []
    )


def test_biases_of_several_products_are_no_chain():
    """q, k and v: each bias is added to its own product, reshaped by a view that no GPU ran."""
    product = ("aten::mm", "float[16,4] float[4,4]")
    bias = ("aten::add_", "float[2,8,4] float[4]")
    assert _chains(product, bias, product, bias, product, bias) == []


def test_streams_that_alternate_are_two_chains():
    """Image and context of a joint block: shapes keep them apart."""
    image, text = "float[2,8,4]", "float[2,3,4]"
    chains = _chains(
        ("Tanh", f"{image} -> {image}"),
        ("Tanh", f"{text} -> {text}"),
        ("Relu", f"{image} -> {image}"),
        ("Relu", f"{text} -> {text}"),
    )
    assert [chain.members for chain in chains] == [[0, 2], [1, 3]]


def test_what_is_far_apart_is_no_chain():
    """A tensor that was made more than a few commands ago is another one."""
    between = [("Relu", f"float[{i + 20}] -> float[{i + 20}]") for i in range(9)]
    assert _chains(("Tanh", f"{X} -> {X}"), *between, ("Tanh", f"{X} -> {X}")) == []


def test_arithmetic_on_shapes_is_passed():
    """Exported graphs compute shapes between operations; they neither join nor count."""
    shapes = [("Add", "int64[1] int64[] -> int64[1]")] * 12
    (chain,) = _chains(("Tanh", f"{X} -> {X}"), *shapes, ("Tanh", f"{X} -> {X}"))
    assert chain.members == [0, 13]


def test_parts_of_an_operator_are_one_member():
    """A norm of two kernels hands nothing over that fusing saves twice."""
    (row,) = _rows(
        ("aten::layer_norm", f"{X} part 1/2"),
        ("aten::layer_norm", f"{X} part 2/2"),
        ("aten::silu", X),
    )
    assert row["op_types"] == "aten::layer_norm → aten::silu"
    assert (row["total_ns"], row["saved_bytes"]) == (3000, 512)


_OPERATIONS = st.sampled_from(
    [
        ("Tanh", f"{X} -> {X}"),
        ("Add", f"{X} {X} -> {X}"),
        ("Mul", f"{X} {ROW} -> {X}"),
        ("ReduceMean", f"{X} -> {ROW}"),
        ("aten::mean", X),
        ("Softmax", f"{X} -> {X}"),
        ("MatMul", f"{X} -> {X}"),
        ("MatMul", f"{X} float[2,4,8] -> float[2,8,8]"),
        ("Reshape", f"{X} -> float[64]"),
        ("Relu", "float[64] -> float[64]"),
        ("none", None),
        ("LayerNormalization", f"{X} -> {X} part 1/2"),
        ("LayerNormalization", f"{X} -> {X} part 2/2"),
        ("Transpose", f"{X} -> {X}"),
    ]
)


@given(st.lists(_OPERATIONS, max_size=40))
def test_no_more_is_saved_than_is_moved(operations):
    """A command is in one chain at most, and no chain saves more bytes than its commands move."""
    works = [work_of(name, parse_shapes(shapes)) for name, shapes in operations]
    chains = find_chains(works, [name for name, _ in operations])
    members = [member for chain in chains for member in chain.members]
    assert len(members) == len(set(members))
    for chain in chains:
        own = [works[i] for i in chain.members if works[i].part == 1]
        moved = sum(work.bytes_read + (work.bytes_written or 64) for work in own)
        assert 0 < chain.saved_bytes <= moved


@given(st.lists(_OPERATIONS, min_size=1, max_size=20), st.integers(1, 2000))
def test_no_more_time_is_saved_than_was_spent(operations, duration):
    """`saved_ns` lies between nothing and the chain's busy time, where it is known."""
    for row in _rows(*operations, duration=duration):
        assert row["saved_ns"] is None or 0 <= row["saved_ns"] <= row["total_ns"]


def test_the_sum_that_a_norm_reads_is_written_for_the_next_block():
    """A residual stream: fused, the norm need not read the sum. Followed by an activation, the sum
    is read by nothing else."""
    add, norm = ("aten::add", f"{X} {X}"), ("aten::native_layer_norm", f"{X} float[4] float[4]")
    assert [chain.saved_bytes for chain in _chains(add, norm)] == [256]
    assert [chain.saved_bytes for chain in _chains(add, ("aten::relu", X))] == [2 * 256]
    by_hand = [
        ("aten::pow", X),
        ("aten::mean", X),
        ("aten::rsqrt", ROW),
        ("aten::mul", f"{X} {ROW}"),
    ]
    (alone,), (after,) = _chains(*by_hand), _chains(add, *by_hand)
    # two commands read the sum, none of which is left, and of a norm alone the first one is
    assert after.saved_bytes - alone.saved_bytes == 2 * 256 - 256


@pytest.mark.parametrize("layers", [1, 2, 7])
def test_what_fusing_the_norms_of_a_transformer_saves(layers):
    """As a kernel that adds and normalizes moves: it reads two tensors and writes two, where two
    kernels read three and write two."""
    layer = [
        ("aten::add", f"{X} {X}"),
        ("aten::native_layer_norm", f"{X} float[4] float[4]"),
        ("aten::mm", "float[16,4] float[4,4]"),
    ]
    moved, fused = 0, 0
    for _ in range(layers):
        moved += 256 * (2 + 1) + 256 * (1 + 1)
        fused += 256 * 2 + 256 * 2
    assert sum(chain.saved_bytes for chain in _chains(*layer * layers)) == moved - fused


_LAYER = ("aten::native_layer_norm", f"{X} float[4] float[4]")
_PLANE = ("aten::native_layer_norm", f"{X} float[8,4] float[8,4]")
_BATCH = ("aten::native_batch_norm", f"{X} float[8] float[8]")


@pytest.mark.parametrize(
    ("first", "second", "chains"),
    [
        (_LAYER, ("aten::rms_norm", f"{X} float[4]"), 1),
        (_LAYER, _BATCH, 0),
        (_LAYER, _PLANE, 0),
        (_LAYER, ("aten::native_group_norm", f"{X} float[8] float[8]"), 0),
        (("aten::instance_norm", X), _BATCH, 0),
        (_LAYER, ("ReduceMean", f"{X} -> {ROW}"), 1),
        (_LAYER, ("ReduceMean", f"{X} -> {VECTOR}"), 0),
    ],
)
def test_norms_over_other_axes_are_no_chain(first, second, chains):
    """One needs all of the tensor before it that the other gives."""
    assert len(_chains(first, second)) == chains


def test_what_fusing_leaves_takes_as_long_as_the_shortest_command():
    """No maker publishes what a launch takes. Commands of 4 bytes that take 2000 ns show it: of
    three one remains, of a chain with more to do what that takes at the roofline, if it is more."""
    published = replace(UNIT, launch_ns=None, measured=False)
    few = [("Tanh", "float[] -> float[]")] * 3
    runs = {
        "few": in_order(*few, duration=2000),
        "none": in_order(("Tanh", f"{X} -> {X}"), ("Tanh", f"{X} -> {X}"), duration=2000),
    }
    saved = {
        name: Shaped(rows).found(cuda=published)["fusions"]["saved_ns"].to_list()
        for name, rows in runs.items()
    }
    assert saved == {"few": [3 * 2000 - 2000], "none": [2 * 2000 - 2 * 256]}
