"""Kinds: the distinct tuples behind the commands of a run."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import commands as distinct_commands
from profiler.analysis import kinds_of
from profiler.analysis.commands import KIND
from profiler.run import intervals
from tests.analysis.identities import of_the_host
from tests.examples import examples
from tests.runs import Command, make_call, make_run, tiny_run

_COLUMNS = ("submodule", "layer", "op_type", "category", "shapes", "host")


def _joined(run):
    calls = run.calls.select("call", "submodule")
    return run.commands.join(calls, on="call", how="left", maintain_order="left").with_columns(
        pl.col("submodule", "layer", "op_type", "shapes").cast(pl.String), host=of_the_host(run)
    )


def _checked(run):
    """The kinds of a run, held against the plain way to find them."""
    found, joined = kinds_of(run.calls, run.commands), _joined(run)
    assert found.table.schema == KIND
    expected = (
        joined.group_by(_COLUMNS)
        .agg(
            commands=pl.len().cast(pl.Int64),
            total_ns=pl.col("duration_ns").clip(0).sum(),
        )
        .sort(_COLUMNS, nulls_last=True)
    )
    assert found.table.drop("kind", "place", "module", "kernel").equals(expected)
    assert found.table["kind"].to_list() == [*range(len(found))]
    assert found.table[found.of_command].select(_COLUMNS).equals(joined.select(_COLUMNS))
    return found


def test_kinds_of_a_small_run():
    """The two steps share their kinds; host work of no call has no submodule and comes last."""
    found = _checked(tiny_run())
    rows = found.table.select("submodule", "layer", "op_type", "commands", "total_ns").rows()
    assert rows[:3] == [
        ("text_encoder", "layers.0", "Gemm", 1, 70),
        ("transformer", "blocks.0.attn", "MatMul", 2, 160),
        ("transformer", "blocks.0.attn", "Softmax", 2, 140),
    ]
    assert rows[-2:] == [
        (None, "scheduler.step", None, 2, 80),
        (None, "tokenizer", None, 1, 10),
    ]


def test_run_without_commands_has_no_kinds():
    """Nothing was traced: an empty table with the declared columns."""
    found = _checked(make_run([make_call(0, "vae", 0, 10)]))
    assert len(found) == 0
    assert len(found.of_command) == 0


def test_command_that_never_closed_adds_no_time():
    """Its duration is -1 in the trace and 0 in the sum."""
    call = make_call(0, "vae", 0, 100)
    commands = [Command(0, "rbln:0", "t", "compute", "conv", at, d) for at, d in ((0, 10), (9, -1))]
    assert _checked(make_run([call], commands)).table["total_ns"].to_list() == [10]


def test_values_by_kind_reach_the_commands():
    """`spread` gives each command its kind's value."""
    run = tiny_run()
    found = kinds_of(run.calls, run.commands)
    layers = found.spread(found.table["layer"])
    assert layers.to_list() == run.commands["layer"].cast(pl.String).to_list()


_commands = st.lists(
    st.builds(
        Command,
        st.integers(-1, 2),
        st.sampled_from(["cpu:0", "cuda:0"]),
        st.just("t"),
        st.sampled_from(["host", "sync", "compute", "dma"]),
        st.sampled_from(["a", "b", "c.d"]),
        st.integers(0, 1000),
        st.integers(-1, 50),
        st.sampled_from(["", "MatMul", "Add"]),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=examples(60))
@given(_commands, st.sampled_from([1, 4, 1 << 18]), st.booleans(), st.booleans())
def test_kinds_are_those_of_a_plain_group_by(commands, batch, colliding, renumbered):
    """Whatever the batches, where all keys fall into one slot of the table, and where Polars'
    codes are too large to make keys of."""
    calls = [make_call(0, "a", 0, 10), make_call(1, "b", 10, 20), make_call(2, "a", 20, 30)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_BATCH", batch)
        if colliding:
            patch.setattr(distinct_commands, "_MULTIPLIER", np.int64(0))
        if renumbered:
            patch.setattr(distinct_commands, "_KEYS", 0)
        _checked(make_run(calls, commands))


def test_many_kinds_grow_the_table():
    """20,000 layers, each its own kind."""
    call = make_call(0, "a", 0, 10)
    commands = [Command(0, "cpu:0", "t", "compute", f"l{i:05}", i, 1) for i in range(20_000)]
    assert len(_checked(make_run([call], commands))) == 20_000
