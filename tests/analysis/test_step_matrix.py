"""How parts of steps change from step to step, and why some stand out."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import Selection, step_matrix
from profiler.report import document
from tests.analysis.asked import asked
from tests.examples import examples
from tests.runs import Command, make_call, make_run, make_span, tiny_run

STEP = 1000  # ns
NPU = "rbln:0"


def _steps(times, *, layer="mlp", extra=(), spans=True, traced=lambda step: True):
    """A call a step, `times[step]` ns of `layer` and 100 ns of `norm` in it."""
    calls, commands, steps = [], [*extra], []
    for step, duration in enumerate(times):
        at = step * STEP
        calls.append(make_call(step, "transformer", at, at + 900, step=step, traced=traced(step)))
        steps.append(make_span("step", f"step {step}", at, at + STEP, step))
        if traced(step):
            commands.append(Command(step, NPU, "C0", "compute", "norm", at, 100, "Norm"))
            commands.append(Command(step, NPU, "C0", "compute", layer, at + 100, duration, "Gemm"))
    return make_run(calls, commands, steps if spans else ())


def _row(analysis, layer, level="operator"):
    rows = analysis.step_operators.filter(pl.col("level") == level)
    if layer is not None:
        rows = rows.filter(pl.col("layer") == layer)
    assert len(rows) == 1
    return rows.row(0, named=True)


def test_times_of_each_part_in_each_step():
    """Steps, the submodule and its two operators of the tiny run, by hand."""
    found = asked(tiny_run())
    rows = found.step_times.select("level", "layer", "step", "commands", "total_ns").rows()
    assert ("step", None, 0, 1, 300) in rows
    assert ("submodule", None, 0, 3, 310) in rows
    assert ("operator", "blocks.0.attn", 0, 2, 160) in rows
    assert ("operator", "blocks.0.mlp", 1, 1, 80) in rows
    assert len(rows) == 2 * 4
    levels = found.step_operators["level"].to_list()
    assert levels == ["step", "submodule", "operator", "operator"]
    assert _row(found, None, "submodule")["median_ns"] == 265


def test_warm_up():
    """Two first steps of 500 and 300 ns before ten of 200: 300 and 100 ns of warm-up."""
    row = _row(asked(_steps([500, 300, *[200] * 10])), "mlp")
    assert (row["warmup_steps"], row["warmup_ns"], row["median_ns"]) == (2, 400, 200)
    norm = _row(asked(_steps([500, 300, *[200] * 10])), "norm")
    assert (norm["warmup_steps"], norm["outliers"]) == (0, 0)


def test_a_first_step_above_the_later_half_and_below_the_median():
    """250 ns before 200 stand out from the later half, four of whose six take 200; the median of
    all is 325, beside which the warm-up would have cost -75."""
    later = [200, 200, 400, 200, 400, 200]
    row = _row(asked(_steps([250, 200, 400, 400, 400, 400, *later])), "mlp")
    assert (row["warmup_steps"], row["warmup_ns"], row["median_ns"]) == (1, 50, 325)


def test_drift_of_a_step():
    """10 ns more each step; the other operator does not drift."""
    found = asked(_steps([200 + 10 * step for step in range(12)]))
    row = _row(found, "mlp")
    assert row["drift_ns"] == pytest.approx(10)
    assert row["drift_low_ns"] > 0
    assert _row(found, "norm")["drift_ns"] == 0


def test_the_costliest_outliers_are_listed_and_all_are_counted():
    """40 of 300 steps took 300 ns longer: mlp and transformer stand out in each, 50 rows stay."""
    found = asked(_steps([500 if step % 7 == 6 and step < 280 else 200 for step in range(300)]))
    assert len(found.step_outliers) == 50
    assert found.step_operators["outliers"].sum() == 80
    assert document(found)["step_outliers_total"] == 80


def test_outlier_that_a_transfer_explains():
    """Step 7 took 300 ns longer while a copy of 250 ns ran on another track."""
    copy = Command(7, NPU, "Task DMA", "dma", "weights", 7 * STEP + 150, 250)
    times = [200] * 12
    times[7] = 500
    found = asked(_steps(times, extra=[copy])).step_outliers
    row = found.filter(pl.col("layer") == "mlp").row(0, named=True)
    assert (row["step"], row["total_ns"], row["excess_ns"]) == (7, 500, 300)
    assert (row["cause"], row["cause_ns"]) == ("overlap", 250)
    assert (row["cause_device"], row["cause_track"]) == (NPU, "Task DMA")
    assert row["cause_layer"] == "weights"


def test_track_that_is_always_busy_explains_nothing():
    """A host thread that launches all the time overlaps a long operator for longer, too."""
    host = [Command(i, "cpu:0", "python", "host", "launch", i * STEP, 900) for i in range(12)]
    times = [200] * 12
    times[7] = 500
    found = asked(_steps(times, extra=host)).step_outliers
    assert found.filter(pl.col("layer") == "mlp")["cause"].to_list() == [None]


def test_host_work_in_no_call_explains():
    """A tokenizer thread ran beside step 7 alone."""
    work = Command(-1, "cpu:0", "Host", "host", "tokenizer", 7 * STEP + 100, 400, "", "denoise", 7)
    times = [200] * 12
    times[7] = 500
    row = asked(_steps(times, extra=[work])).step_outliers.filter(pl.col("layer") == "mlp")
    assert row["cause"].to_list() == ["overlap"]
    assert row["cause_layer"].to_list() == ["tokenizer"]


def test_call_of_another_pipeline_explains():
    """A request that ran beside it has no commands, but a call."""
    times = [200] * 12
    times[7] = 500
    run = _steps(times)
    other = make_call(12, "vae", 7 * STEP, 8 * STEP, stage="decode", device=NPU, traced=False)
    both = make_run([other])
    calls = pl.concat([run.calls, both.calls])
    object.__setattr__(run, "calls", calls)
    row = asked(run).step_outliers.filter(pl.col("layer") == "mlp").row(0, named=True)
    assert (row["cause"], row["cause_track"], row["cause_layer"]) == ("overlap", "Calls", "vae")


def test_step_with_other_commands_is_compared_but_no_usual_one():
    """Step 7 ran mlp twice: its cause is the number of commands, its time in no median."""
    again = Command(7, NPU, "C0", "compute", "mlp", 7 * STEP + 400, 200, "Gemm")
    found = asked(_steps([200] * 12, extra=[again]))
    row = found.step_outliers.filter(pl.col("layer") == "mlp").row(0, named=True)
    assert (row["cause"], row["excess_ns"]) == ("commands", 200)
    assert _row(found, "mlp")["median_ns"] == 200


def test_whole_step_that_waited():
    """Between the two calls of step 7 nothing ran for 80 ns more than in others: idle."""
    calls = []
    for step in range(12):
        begin = step * STEP
        late = begin + (490 if step == 7 else 410)
        calls.append(make_call(2 * step, "t", begin, begin + 400, step=step, branch="cond"))
        calls.append(make_call(2 * step + 1, "t", late, late + 400, step=step, branch="uncond"))
    found = asked(make_run(calls)).step_outliers
    row = found.filter(pl.col("level") == "step").row(0, named=True)
    assert (row["step"], row["excess_ns"], row["cause"], row["cause_ns"]) == (7, 80, "idle", 80)


def test_steps_that_were_not_traced_are_no_zeros():
    """Every other step traced: six of twelve count."""
    found = asked(_steps([200] * 12, traced=lambda step: step % 2 == 0))
    row = _row(found, "mlp")
    assert (row["steps"], row["median_ns"], row["total_ns"]) == (6, 200, 1200)


def test_blocks_and_roles_where_operators_are_too_many(monkeypatch):
    """Two operators of one block and role are one part; then roles alone."""
    monkeypatch.setattr(step_matrix, "_MAX_PARTS", 1)
    found = asked(_steps([200] * 12)).step_operators
    assert set(found["level"]) == {"step", "submodule", "role"}
    assert found.filter(pl.col("level") == "role")["role"].null_count() == 0


def test_selection_of_a_device_still_finds_causes():
    """The commands that explain may be on a device that was not selected."""
    copy = Command(7, "rbln:1", "Task DMA", "dma", "weights", 7 * STEP + 150, 250)
    times = [200] * 12
    times[7] = 500
    run = _steps(times, extra=[copy])
    row = asked(run, Selection(device=(NPU,))).step_outliers.filter(pl.col("layer") == "mlp")
    assert row["cause_device"].to_list() == ["rbln:1"]


@given(st.lists(st.integers(0, 800), min_size=1, max_size=12), st.integers(0, 3))
@settings(deadline=None, max_examples=examples(40))
def test_operators_add_up_to_their_submodule(times, untraced):
    """In every step; and medians lie between what was measured."""
    found = asked(_steps(times, traced=lambda step: step != untraced))
    cells = found.step_times
    sums = (
        cells.filter(pl.col("level") == "operator").group_by("step").agg(pl.col("total_ns").sum())
    )
    whole = cells.filter(pl.col("level") == "submodule").select("step", "total_ns")
    assert sums.sort("step").rows() == whole.sort("step").rows()
    for row in found.step_operators.filter(pl.col("level") == "operator").iter_rows(named=True):
        of_part = cells.filter(pl.col("layer") == row["layer"])["total_ns"]
        assert of_part.min() <= row["median_ns"] <= of_part.max()
        assert row["total_ns"] == of_part.sum()
