"""Operators that were split, and their parts, by hand."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.asked import asked
from tests.examples import examples
from tests.runs import Command, make_call, make_run, tiny_run

CALL = make_call(0, "transformer", 0, 1000)


def _command(device, track, category, start, duration, layer="mlp", call=0):
    return Command(call, device, track, category, layer, start, duration)


def _parts(*commands, calls=(CALL,)):
    table = asked(make_run(calls, commands)).partitioning
    return {(row["part"], row["device"]): row for row in table.iter_rows(named=True)}


def test_gap_between_commands():
    """100-200 and 250-300 in one call, 0-10 in another: 50 ns in which none ran."""
    commands = [
        _command("rbln:0", "C0", "compute", 100, 100),
        _command("rbln:0", "C0", "compute", 250, 50),
        _command("rbln:0", "C0", "compute", 1000, 10, call=1),
    ]
    run = make_run([CALL, make_call(1, "transformer", 1000, 1100)], commands)
    found = asked(run)
    assert found.operators["gap_ns"].to_list() == [50]
    assert found.operators["track_names"].to_list() == ["C0"]
    assert found.partitioning.is_empty()


def test_over_tracks():
    """attn of the tiny run ran on two clusters: one row, no gaps; others were not split."""
    table = asked(tiny_run()).partitioning
    rows = table.filter(pl.col("layer") == "blocks.0.attn").rows(named=True)
    assert [(r["part"], r["tracks"], r["gap_ns"]) for r in rows] == [("whole", 2, 0)]
    assert rows[0]["parallel_utilization"] == pytest.approx(300 / 360)
    assert set(table["layer"]) == {"blocks.0.attn", "conv"}


def test_computing_and_moving_data():
    """Two transfers around a computation: 20 + 30 ns on two queues, 100 ns between them."""
    parts = _parts(
        _command("rbln:0", "DMA 0", "dma", 0, 20),
        _command("rbln:0", "C0", "compute", 20, 100),
        _command("rbln:0", "DMA 1", "copy", 120, 30),
    )
    assert set(parts) == {("whole", None), ("compute", None), ("movement", None)}
    move = parts["movement", None]
    assert (move["commands"], move["wall_ns"], move["total_ns"]) == (2, 50, 50)
    assert (move["tracks"], move["gap_ns"]) == (2, 100)
    assert move["imbalance"] == pytest.approx(30 / 25)
    assert move["parallel_utilization"] == pytest.approx(0.5)
    assert parts["compute", None]["total_ns"] == 100
    whole = parts["whole", None]
    assert (whole["gap_ns"], whole["tracks"], whole["imbalance"]) == (0, 3, 1.0)
    assert whole["parallel_utilization"] == pytest.approx(100 / 150)


def test_over_devices():
    """Two devices of 100 and 50 ns, side by side: the busier has 4/3 of the mean."""
    parts = _parts(
        _command("rbln:0", "C0", "compute", 0, 100),
        _command("rbln:1", "C0", "compute", 0, 30),
        _command("rbln:1", "C0", "compute", 60, 20),
    )
    whole = parts["whole", None]
    assert whole["device_imbalance"] == pytest.approx(100 / 75)
    assert (whole["wall_ns"], whole["total_ns"], whole["tracks"]) == (100, 150, 2)
    assert (parts["device", "rbln:1"]["total_ns"], parts["device", "rbln:1"]["gap_ns"]) == (
        50,
        30,
    )
    assert parts["device", "rbln:0"]["gap_ns"] == 0
    assert parts["device", "rbln:0"]["device_imbalance"] is None


def test_launches_are_no_part():
    """Host commands on two threads were not split over tracks of a device."""
    assert not _parts(
        _command("cpu:0", "t1", "host", 0, 10), _command("cpu:0", "t2", "host", 0, 10)
    )


_COMMANDS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["rbln:0", "rbln:1"]),
        st.sampled_from(["C0", "C1"]),
        st.sampled_from(["compute", "dma", "copy"]),
        st.integers(0, 90),
        st.integers(0, 30),
        st.sampled_from(["a", "b"]),
    ),
    max_size=20,
)


@given(_COMMANDS)
@settings(deadline=None, max_examples=examples(60))
def test_parts_add_up_to_the_whole(values):
    """Busy sums and commands of devices, and of computing and moving, are the whole's."""
    calls = [make_call(0, "t", 0, 100), make_call(1, "t", 200, 300)]
    commands = [
        Command(call, device, track, category, layer, call * 200 + start, duration)
        for call, device, track, category, start, duration, layer in values
    ]
    table = asked(make_run(calls, commands)).partitioning
    sums = ("total_ns", "commands")
    for layer in table["layer"].unique():
        of = table.filter(pl.col("layer") == layer)
        whole = of.filter(pl.col("part") == "whole").select(sums).row(0)
        for names in (("compute", "movement"), ("device",)):
            some = of.filter(pl.col("part").is_in(names))
            assert some.is_empty() or some.select(sums).sum().row(0) == whole
        assert (of["wall_ns"] <= of["total_ns"]).all()
        assert (of["gap_ns"] >= 0).all()


def test_a_fill_on_the_stream_of_a_kernel_is_no_split():
    """cuBLAS fills its workspace before it multiplies: one stream does both, one after the other.
    On another stream it is a split operator."""
    kernel = _command("cuda:0", "stream 7", "compute", 10, 80)
    assert _parts(_command("cuda:0", "stream 7 copy", "copy", 0, 10), kernel) == {}
    parts = _parts(_command("cuda:0", "stream 8 copy", "copy", 0, 10), kernel)
    assert {part for part, _ in parts} == {"whole", "compute", "movement"}
