"""What the time of submodules and blocks is for."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import Selection, with_roles
from profiler.analysis.roles import block_roles
from tests.analysis.asked import asked
from tests.examples import examples
from tests.runs import Command, make_call, make_info, make_run, tiny_run

CLASSES = {
    "": "SD3Transformer2DModel",
    "blocks.0": "JointTransformerBlock",
    "blocks.0.norm1": "AdaLayerNormZero",
    "blocks.0.norm1.linear": "Linear",
    "blocks.0.norm1.norm": "LayerNorm",
    "blocks.0.ff_context": "FeedForward",
    "blocks.0.ff": "FeedForward",
    "blocks.1.ff": "FeedForward",
}


def _run(overhead_ratio=None):
    calls = [make_call(0, "transformer", 0, 200, step=0, device="cuda:0")]
    made = [
        ("blocks.0.norm1.linear", "aten::linear", 10),
        ("blocks.0.norm1.norm", "aten::layer_norm", 30),
        ("blocks.0.ff_context", "aten::gelu", 20),
        ("blocks.0.ff", "aten::gelu", 40),
        ("blocks.1.ff", "aten::gelu", 60),
    ]
    commands, at = [Command(0, "cpu:0", "launches", "host", "cudaLaunchKernel", 0, 99)], 0
    for layer, op_type, duration in made:
        commands.append(Command(0, "cuda:0", "stream 7", "compute", layer, at, duration, op_type))
        at += duration
    known = {"modules": CLASSES} | (
        {"overhead_ratio": {"factor": overhead_ratio}} if overhead_ratio else {}
    )
    return make_run(calls, commands, info=make_info("capture", submodules={"transformer": known}))


def test_roles_of_a_submodule():
    """Sums and shares of device time by hand: mlp 120 of 160 ns; launches have no role."""
    rows = asked(_run(overhead_ratio=0.5)).roles.rows(named=True)
    assert [row["role"] for row in rows] == ["mlp", "norm", "modulation"]
    mlp, norm, modulation = rows
    assert (mlp["submodule"], mlp["commands"], mlp["total_ns"], mlp["share"]) == (
        "transformer",
        3,
        120,
        0.75,
    )
    assert (mlp["corrected_ns"], mlp["limited_by"], mlp["norm_kinds"]) == (60, "class", "")
    assert (mlp["image_stream_ns"], mlp["text_stream_ns"]) == (100, 20)
    assert (norm["total_ns"], norm["norm_kinds"]) == (30, "AdaLayerNormZero")
    assert (modulation["total_ns"], modulation["share"]) == (10, 10 / 160)


def test_norm_and_modulation_of_blocks():
    """Block 0: 30 and 10 of 100 ns; block 1 has neither."""
    rows = asked(_run()).blocks.rows(named=True)
    assert [row["block"] for row in rows] == ["blocks.0", "blocks.1"]
    assert (rows[0]["total_ns"], rows[0]["norm_share"], rows[0]["modulation_share"]) == (
        100,
        pytest.approx(0.3),
        pytest.approx(0.1),
    )
    assert (rows[1]["norm_ns"], rows[1]["modulation_ns"]) == (0, 0)


def test_blocks_in_the_order_of_their_numbers():
    """blocks.10 comes after blocks.9."""
    calls = [make_call(0, "transformer", 0, 100)]
    commands = [
        Command(0, "cuda:0", "s", "compute", f"blocks.{n}.ff", n, 1, "aten::gelu") for n in (10, 9)
    ]
    blocks = asked(make_run(calls, commands)).blocks
    assert blocks["block"].to_list() == ["blocks.9", "blocks.10"]


def test_run_without_device_commands_has_no_roles():
    """Nothing was traced: empty tables with their columns."""
    found = asked(make_run([make_call(0, "vae", 0, 10)]))
    assert found.roles.is_empty()
    assert found.blocks.is_empty()


def test_roles_reach_the_commands():
    """`with_roles` fills the column; host work stays without, and what a producer gave is kept."""
    run = _run()
    found = asked(run)
    assert with_roles(run, found.kinds, found.kind_roles).commands["role"].to_list() == [
        None,
        "modulation",
        "norm",
        "mlp",
        "mlp",
        "mlp",
    ]
    given_roles = [None, None, None, "attention", None, None]
    column = pl.Series("role", given_roles, dtype=run.commands["role"].dtype)
    produced = replace(run, commands=run.commands.with_columns(column))
    assert with_roles(produced).commands["role"].to_list()[2:4] == ["norm", "attention"]


def test_roles_of_a_selection_do_not_stand_for_the_run():
    """With the kinds of a part of the run the roles are found anew."""
    run = tiny_run()
    part = asked(run, Selection(submodule=("vae",)))
    assert set(part.roles["submodule"]) == {"vae"}
    filled = with_roles(run, part.kinds, part.kind_roles)
    assert filled.commands.equals(with_roles(run).commands)


_layers = ["blocks.0.attn.to_q", "blocks.0.norm1", "vae.conv_in", "node_3", "aten::mm"]
_commands = st.lists(
    st.builds(
        Command,
        st.integers(-1, 1),
        st.just("cuda:0"),
        st.just("t"),
        st.sampled_from(["host", "compute", "dma", "copy", "sync", "other"]),
        st.sampled_from(_layers),
        st.integers(0, 1000),
        st.integers(-1, 50),
        st.sampled_from(["", "MatMul", "aten::add", "Softmax", "Conv"]),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=examples(60))
@given(_commands)
def test_shares_add_up(commands):
    """Roles divide the device time of each submodule; blocks hold no more than all roles."""
    calls = [make_call(0, "a", 0, 10), make_call(1, "b", 10, 20)]
    run = make_run(calls, commands)
    found = asked(run)
    work = run.commands.filter(~pl.col("category").cast(pl.String).is_in(["host", "sync"]))
    assert found.roles["total_ns"].sum() == work["duration_ns"].clip(0).sum()
    assert found.roles["commands"].sum() == len(work)
    shares = found.roles.drop_nulls("share").group_by("submodule").agg(pl.col("share").sum())
    assert shares["share"].to_list() == pytest.approx([1.0] * len(shares))
    blocks = found.blocks
    assert (blocks["norm_ns"] + blocks["modulation_ns"] <= blocks["total_ns"]).all()
    assert blocks["total_ns"].sum() <= found.roles["total_ns"].sum()
    filled = with_roles(run, found.kinds, found.kind_roles).commands
    assert filled["role"].null_count() == len(run.commands) - len(work)


def test_roles_of_blocks():
    """Block 0 has norm 30, modulation 10 and mlp 60 ns, block 1 mlp alone; they add up to the
    blocks."""
    found = asked(_run())
    rows = block_roles(found.kinds, found.kind_roles)
    assert rows.select("block", "role", "total_ns").rows() == [
        ("blocks.0", "mlp", 60),
        ("blocks.0", "modulation", 10),
        ("blocks.0", "norm", 30),
        ("blocks.1", "mlp", 60),
    ]
    sums = rows.group_by("block").agg(pl.col("total_ns").sum()).sort("block")
    assert sums["total_ns"].to_list() == found.blocks["total_ns"].to_list()
