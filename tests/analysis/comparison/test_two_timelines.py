"""Two runs side by side: timelines, which call is which, the tree and the reasons."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.compare.align import aligned_calls
from profiler.compare.compare import compare, reasons, repeats_of
from profiler.compare.measure import measure
from profiler.compare.tables import (
    KERNELS,
    SHAPES,
    STRETCHES,
    TIMED_CALLS,
    WATERFALL,
    DifferenceReason,
)
from profiler.compare.tree import Timeline
from profiler.run import schema
from profiler.tools.sources import load
from tests.analysis.comparison.small import BASE, HOST, NORM, SLOWER, compared, steps_run
from tests.corpus import CORPUS, needs_corpus


def timeline(*calls):
    """One of calls (submodule, step, start, elapsed), without work."""
    rows = [("denoise", name, None, step, "cuda:0", start, ns) for name, step, start, ns in calls]
    frame = pl.DataFrame(rows, schema=schema(TIMED_CALLS), orient="row")
    end = max((start + ns for _, _, start, ns in calls), default=0)
    return Timeline("run", 0, end, frame, pl.DataFrame(schema=schema(STRETCHES)))


def pairs(*calls):
    """What is said of each pair: base call, new call, where both begin."""
    return aligned_calls(*calls).select("base_call", "new_call", "at_ns").rows()


def test_a_run_s_timeline_begins_at_zero():
    """The calls of the pipeline call in the middle, in ns from its begin, and two stretches of work
    in each: the norm for 20 ns, the rest behind it."""
    found = measure(steps_run(BASE, BASE, BASE), timeline=True).timeline
    assert found.calls["start_ns"][0] == 0
    assert found.calls["step"].to_list() == list(range(len(BASE)))
    assert found.span_ns == sum(BASE) - HOST
    first = found.stretches.filter(pl.col("call") == 1)
    assert first.select("start_ns", "duration_ns").rows() == [
        (BASE[0], NORM),
        (BASE[0] + NORM, BASE[1] - HOST - NORM),
    ]


def test_nothing_is_drawn_unless_it_is_asked_for():
    """A measurement without a timeline has none, and neither has its comparison."""
    assert measure(steps_run(BASE)).timeline is None
    assert compared(steps_run(BASE), steps_run(SLOWER)).timelines is None


def test_the_same_calls_begin_together():
    """Step 1 of the faster side waits for that of the slower one; the gap before it stays."""
    base = timeline(("unet", 0, 0, 100), ("unet", 1, 110, 100))
    new = timeline(("unet", 0, 0, 130), ("unet", 1, 150, 90))
    assert pairs(base, new) == [(0, 0, 0), (1, 1, 150)]


def test_a_call_of_one_side_stands_alone():
    """A second encoder of the new side lies between the calls around it, and has no partner."""
    base = timeline(("text", -1, 0, 10), ("unet", 0, 10, 100))
    new = timeline(("text", -1, 0, 10), ("image", -1, 10, 40), ("unet", 0, 50, 100))
    assert pairs(base, new) == [(0, 0, 0), (None, 1, 10), (1, 2, 50)]


def test_without_a_common_submodule_steps_decide():
    """The same model under two names: calls are found by their step."""
    base = timeline(("unet", 0, 0, 100), ("unet", 1, 100, 100))
    new = timeline(("Model", 0, 0, 50), ("Model", 1, 50, 50))
    assert pairs(base, new) == [(0, 0, 0), (1, 1, 100)]


def test_calls_of_unnamed_submodules_pair_in_order():
    """A replayed graph knows no step: its calls are those of the submodule at the same place."""
    base = timeline(("text", -1, 0, 10), ("unet", 0, 10, 100), ("unet", 1, 110, 100))
    new = timeline(("graph 1", -1, 0, 5), ("graph 2", -1, 5, 90), ("graph 2", -1, 95, 90))
    assert pairs(base, new) == [(0, 0, 0), (1, 1, 10), (2, 2, 110)]


_SIDES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-1, 2), st.integers(0, 9), st.integers(1, 50)),
    max_size=12,
)


@given(_SIDES, _SIDES)
def test_every_call_stands_once_and_no_gap_shrinks(base, new):
    """Each call of either side is in one row; where it begins never comes before its own time, and
    the distance of two calls of a side is at least that in its run."""
    sides = []
    for side in (base, new):
        at, calls = 0, []
        for name, step, gap, ns in side:
            calls.append((name, step, at + gap, ns))
            at += gap + ns
        sides.append(timeline(*calls))
    found = aligned_calls(*sides)
    for name, own in zip(("base", "new"), sides, strict=True):
        placed = found.drop_nulls(f"{name}_call").sort(f"{name}_call")
        assert placed[f"{name}_call"].to_list() == list(range(len(own.calls)))
        assert (placed["at_ns"] >= placed[f"{name}_start_ns"]).all()
    assert found["at_ns"].is_sorted()
    in_order = found.drop_nulls("base_call")
    for before, after in pairwise(in_order.iter_rows(named=True)):
        apart = after["base_start_ns"] - before["base_start_ns"]
        assert after["at_ns"] - before["at_ns"] >= apart


def test_the_tree_adds_up():
    """What lies in a node adds up to it, on both sides; the submodule is the waterfall's."""
    found = compared(steps_run(BASE), steps_run(SLOWER))
    rows = found.tree.to_dicts()
    whole = found.waterfall.filter(pl.col("level") == "submodule")
    assert (rows[0]["base_ns"], rows[0]["new_ns"]) == whole.select("base_ns", "new_ns").row(0)
    assert {"blocks", "*", "norm1", "ff"} <= {row["name"] for row in rows}
    for side in ("base_ns", "new_ns"):
        check_sums(rows, side)


def check_sums(rows, side):
    for at, row in enumerate(rows):
        inner = []
        for other in rows[at + 1 :]:
            if other["depth"] <= row["depth"]:
                break
            inner += [other[side]] if other["depth"] == row["depth"] + 1 else []
        assert not inner or sum(inner) == pytest.approx(row[side], abs=len(rows))


def _shape(what, base, new, kernels, executions=(1.0, 1.0), rates=(None, None)):
    change = (new - base) / base
    values = ("unet", what, base, new, new - base, change, *executions, *rates, *kernels, 1, 1)
    return dict(zip(schema(SHAPES), values, strict=True))


def test_reasons_say_what_differs():
    """Another kernel, the same one, more executions, tokens of attention, gaps; by the size of the
    difference, and nothing below 2 % of the whole."""
    line = ("run", "unet", None)
    waterfall = pl.DataFrame(
        [
            ("end_to_end", None, None, None, 1000, 1500, 500),
            ("idle", *line, 100, 180, 80),
            ("between", None, None, None, 40, 0, -40),
        ],
        schema=schema(WATERFALL),
        orient="row",
    )
    shapes = pl.DataFrame(
        [
            _shape("matmul 8×8×8", 100, 250, ("a", "b"), rates=(600.0, 250.0)),
            _shape("attention B1 H8 S4250 D64", 100, 210, ("c", "c")),
            _shape("add 8", 50, 150, ("d", "d"), (2.0, 6.0)),
            _shape("copy 8", 50, 60, ("e", "f")),
        ],
        schema=schema(SHAPES),
    )
    found = reasons(waterfall, shapes, pl.DataFrame(schema=schema(KERNELS)), {})
    assert [(note.code, note.values["difference_ns"]) for note in found] == [
        (DifferenceReason.OTHER_KERNEL, 150),
        (DifferenceReason.SAME_KERNEL, 110),
        (DifferenceReason.MORE_EXECUTIONS, 100),
        (DifferenceReason.MORE_GAPS, 80),
        (DifferenceReason.LESS_BETWEEN, -40),
    ]
    assert found[0].values["rates"].values == {"base": 600.0, "new": 250.0}
    assert found[1].values["at"].values == {"tokens": 4250}
    assert found[1].values["time_ratio"] == 2.1


def test_reasons_are_of_a_pipeline_call():
    """A shape that takes 15 ns less in each of 28 steps is 420 ns of 1,000, though 15 are less than
    2 %; where the other side has half of the steps, the same time in each is half of it."""
    whole = pl.DataFrame(
        [("end_to_end", None, None, None, 1000, 580, -420)], schema=schema(WATERFALL), orient="row"
    )
    nothing = pl.DataFrame(schema=schema(KERNELS))
    for new, repeats, expected in ((5, (28, 28), [-420]), (20, (28, 14), [-280]), (5, (1, 1), [])):
        shapes = pl.DataFrame([_shape("add 8", 20, new, ("a", "a"))], schema=schema(SHAPES))
        found = reasons(whole, shapes, nothing, {"unet": repeats})
        assert [note.values["difference_ns"] for note in found] == expected


def test_how_often_a_pipeline_call_has_a_submodule():
    """Seven steps in each of two pipeline calls against three in one; single calls of no pipeline
    are one each."""
    base, new = measure(steps_run(BASE, BASE)), measure(steps_run(BASE[:3]))
    assert repeats_of([base], [new]) == {"transformer": (7.0, 3.0)}
    alone = replace(
        base, calls=base.calls.with_columns(pipeline=-1 - pl.col("call").cast(pl.Int64))
    )
    assert repeats_of([alone], [new]) == {"transformer": (1.0, 3.0)}


@needs_corpus
def test_two_cards():
    """Qwen1.5 on an H100 and on an MI300X: attention over 559 tokens and the products take longer
    with another kernel, gaps are more; the tree of both adds up, and stretches stay few."""
    sides = [
        measure(load(min(CORPUS.glob(f"torch_pairs/*{card}.json.gz"))), timeline=True)
        for card in ("h100", "mi300")
    ]
    found = compare(sides[:1], sides[1:])
    told = {note.code: note for note in reversed(found.reasons)}
    assert told[DifferenceReason.OTHER_KERNEL].values["what"] == "matmul 8944×1024×2816 bf16"
    assert told[DifferenceReason.MORE_GAPS].values["submodule"] == "Qwen2Model"
    attention = [note for note in found.reasons if note.values.get("at")]
    assert attention[0].values["at"].values == {"tokens": 559}
    check_sums(found.tree.to_dicts(), "base_ns")
    check_sums(found.tree.to_dicts(), "new_ns")
    for side in found.timelines:
        assert 100 < len(side.stretches) < 2000
        assert side.stretches["start_ns"].max() <= side.span_ns
