"""Redundant work: by rules, with evidence, and the time that is saved, by hand."""

import dataclasses
import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.asked import asked
from tests.examples import examples
from tests.runs import Command, make_call, make_info, make_run

TOKENS, TEXT, VECTOR = "float[2,1024,32]", "float[2,77,64]", "float[2,32]"


def _run(rows, branches=("batched",), steps=3, modules=None, submodule="transformer"):
    """`steps` steps of a call a branch; `rows` are layer, op type, shapes, duration."""
    calls, commands, shapes, at = [], [], [], 0
    for step in range(steps):
        for branch in branches:
            number = len(calls)
            calls.append(
                make_call(
                    number, submodule, at, at + 1000, step=step, branch=branch, device="cuda:0"
                )
            )
            for place, (layer, op_type, shape, duration) in enumerate(rows):
                start = at + place * 100
                commands.append(
                    Command(number, "cuda:0", "s", "compute", layer, start, duration, op_type)
                )
                shapes.append(shape)
            at += 1000
    known = {submodule: {"modules": modules or {}}}
    run = make_run(calls, commands, info=make_info("capture", submodules=known))
    column = pl.Series("shapes", shapes, dtype=pl.Categorical())
    return dataclasses.replace(run, commands=run.commands.with_columns(column))


def _found(*rows, **more):
    return asked(_run(rows, **more)).redundant_work.rows(named=True)


def test_text_projection_is_needed_once():
    """Three steps of 10 ns: two of them could be spared."""
    linear = ("context_embedder", "aten::linear", "float[2,333,32] float[32,32]", 10)
    (row,) = _found(linear, modules={"context_embedder": "Linear"})
    assert (row["rule"], row["constant_over"]) == ("conditioning", "steps")
    assert (row["calls"], row["minimum_executions"]) == (3, 1)
    assert (row["total_ns"], row["saved_ns"], row["estimated"]) == (30, 20, False)
    assert json.loads(row["evidence"]) == [
        {"code": "path", "name": "context_embedder"},
        {"code": "class", "name": "Linear"},
        {"code": "equal_shapes"},
    ]


def test_one_slow_execution_is_no_saving():
    """10, 90 and 10 ns: two of three can go, which take 10 ns as a rule, not 100."""
    linear = ("context_embedder", "aten::linear", "float[2,333,32] float[32,32]", 10)
    run = _run([linear])
    slow = pl.when(pl.col("call") == 1).then(90).otherwise(pl.col("duration_ns"))
    commands = run.commands.with_columns(duration_ns=slow.cast(pl.Int64))
    (row,) = asked(dataclasses.replace(run, commands=commands)).redundant_work.rows(named=True)
    assert (row["total_ns"], row["saved_ns"]) == (110, 20)


def test_each_branch_has_its_own_text():
    """cond and uncond project different texts: two of six calls are needed."""
    linear = ("context_embedder", "aten::linear", "float[1,333,32] float[32,32]", 10)
    (row,) = _found(linear, branches=("cond", "uncond"))
    assert (row["calls"], row["minimum_executions"], row["saved_ns"]) == (6, 2, 40)


def test_positions_are_the_same_in_every_branch():
    """A table of rotary positions: one of six."""
    row = _found(
        ("pos_embed", "aten::cos", "double[76,4]", 10),
        branches=("cond", "uncond"),
        modules={"pos_embed": "FluxPosEmbed"},
    )[0]
    assert (row["rule"], row["constant_over"]) == ("position", "steps_and_branches")
    assert (row["minimum_executions"], row["saved_ns"]) == (1, 50)


def test_turning_queries_is_not_computed_again():
    """Without paths, as in a compiled model: queries change in every step, and so does what turns
    them by their positions; what makes the table takes positions and frequencies alone."""
    turned = "bfloat16[2,24,4096,128] float32[4096,128] float32[4096,128]"
    fused = "triton_poi_fused_cat_cos_mul_sin_stack_3"
    assert (
        _found((fused, fused, turned, 10), ("sgl::rope", "sgl::rotary_embedding", turned, 10)) == []
    )
    assert _found((fused, fused, None, 10)) == []
    (row,) = _found((fused, fused, "float64[4096,3] float64[64]", 10))
    assert (row["rule"], row["saved_ns"]) == ("position", 20)


def test_a_path_of_100_kb_is_read_once():
    """A name that nearly is one of cross-attention: trying it from every character would take
    minutes."""
    assert not _found(("x" * 100_000 + ".to_k", "aten::linear", f"{TEXT} float[32,64]", 10))


def test_cross_attention_to_the_text():
    """Keys of 77 tokens where queries are of 1,024; SD3.5's attn2 takes the image itself."""
    block = "down_blocks.1.attentions.0.transformer_blocks.0.attn2"
    rows = [
        (f"{block}.to_q", "aten::linear", f"{TOKENS} float[32,32]", 10),
        (f"{block}.to_k", "aten::linear", f"{TEXT} float[32,64]", 10),
    ]
    (row,) = _found(*rows, submodule="unet")
    assert (row["layer"], row["rule"]) == (f"{block}.to_k", "cross_attention")
    own = [
        ("transformer_blocks.0.attn2.to_q", "aten::linear", f"{TOKENS} float[32,32]", 10),
        ("transformer_blocks.0.attn2.to_k", "aten::linear", f"{TOKENS} float[32,32]", 10),
    ]
    assert _found(*own) == []


def test_timestep_is_known_ahead_and_of_every_branch():
    """An upper bound: the three timesteps as one batch."""
    row = _found(
        (
            "time_text_embed.timestep_embedder.linear_1",
            "aten::linear",
            f"{VECTOR} float[32,32]",
            10,
        ),
        branches=("cond", "uncond"),
    )[0]
    assert (row["rule"], row["constant_over"]) == ("timestep", "known_ahead_and_branches")
    assert (row["saved_ns"], row["estimated"]) == (50, True)


def test_modulation_projects_vectors_not_tokens():
    """24 blocks are one row; shifting and scaling tokens is computed from the image."""
    modules = {"": "SD3Transformer2DModel", "time_text_embed.text_embedder": "PixArt"}
    modules |= {f"transformer_blocks.{i}.norm1": "AdaLayerNormZero" for i in range(2)}
    rows = [
        (f"transformer_blocks.{i}.norm1.linear", "aten::linear", f"{VECTOR} float[192,32]", 10)
        for i in range(2)
    ]
    rows.append(("transformer_blocks.0.norm1", "aten::mul", f"{TOKENS} float[2,1,32]", 50))
    text = ("time_text_embed.text_embedder.linear_1", "aten::linear", f"{VECTOR} float[32,32]", 1)
    found = {row["rule"]: row for row in _found(*rows, text, modules=modules)}
    assert set(found) == {"modulation", "conditioning"}
    row = found["modulation"]
    assert (row["layer"], row["layers"]) == ("transformer_blocks.*.norm1.linear", 2)
    assert (row["constant_over"], row["saved_ns"]) == ("known_ahead", 40)


def test_arithmetic_with_shapes():
    """ONNX Runtime multiplies sizes in every step."""
    row = _found(("pos_embed", "Mul", "int64[] int64[] -> int64[]", 10))[0]
    assert (row["rule"], row["saved_ns"]) == ("shape_arithmetic", 20)


@pytest.mark.parametrize(
    "row",
    [
        (
            "pos_embed.proj",
            "aten::conv2d",
            "float[2,4,32,32] float[32,4,1,1] -> float[2,32,32,32]",
            9,
        ),
        ("pos_embed", "aten::add", "float[2,1024,32] float[1,1024,32]", 9),
        ("proj_out", "aten::linear", f"{TOKENS} float[4,32]", 9),
        ("context_embedder.token_refiner.proj", "aten::linear", f"{TEXT} float[4,32]", 9),
    ],
)
def test_what_takes_the_image_is_not_the_same(row):
    """Patches, sums with them, what goes out; a refiner of the text takes the timestep."""
    assert _found(row) == []


def test_step_operators_say_what_does_not_change():
    """The part whose kinds are all the same over steps; the timestep's is not."""
    rows = [
        ("context_embedder", "aten::linear", "float[2,333,32] float[32,32]", 10),
        ("time_text_embed.time_proj", "aten::cos", "float[2,128]", 10),
    ]
    parts = asked(_run(rows)).step_operators.filter(pl.col("level") == "operator")
    assert dict(parts.select("layer", "hoistable").iter_rows()) == {
        "context_embedder": True,
        "time_text_embed.time_proj": False,
    }


def test_shapes_that_change_are_computed_anew():
    """Another height in the second pipeline call would be another kind."""
    rows = [("pos_embed", "aten::cos", "double[76,4]", 10)]
    run = _run(rows, steps=2, modules={"pos_embed": "FluxPosEmbed"})
    shapes = pl.Series("shapes", ["double[76,4]", "double[99,4]"], dtype=pl.Categorical())
    changed = dataclasses.replace(run, commands=run.commands.with_columns(shapes))
    assert asked(changed).redundant_work.is_empty()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6))
@settings(deadline=None, max_examples=examples(30))
def test_saved_is_less_than_busy(durations):
    """And what is needed is at least one call."""
    rows = [
        ("context_embedder", "aten::linear", "float[2,3,32] float[32,32]", d) for d in durations
    ]
    for row in _found(*rows):
        assert 0 < row["saved_ns"] <= row["total_ns"]
        assert 1 <= row["minimum_executions"] < row["calls"]
