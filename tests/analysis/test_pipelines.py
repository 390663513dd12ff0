"""What belongs to which pipeline call: one after another, in each other, at the same time.

`two_at_once` is two pipeline calls of 100 ns in two threads, the second 30 ns later:

    pipeline 0     0 ───────────────────────────────────── 100
    stages         0 encode 20 ──────────── denoise ────── 100
    step 0                  20 ──────────────────── 80
    calls           5-15         25-70
    host                                 70-80 scheduler.step

    pipeline 1            30 ───────────────────────────────────── 130
    stages                30 encode 50 ──────────── denoise ────── 130
    step 0                          50 ─────────────────── 110
    calls                  35-45       55-100
    host                                       100-110 scheduler.step
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import PipelineCalls, account
from profiler.analysis.result import StageAccount
from profiler.analysis.timeline import step_keys
from tests.analysis.asked import asked
from tests.examples import examples
from tests.runs import Command, make_call, make_run, make_span

_TIMES = ("elapsed_ns", "calls_ns", "host_ns", "idle_ns", "unaccounted_ns")


def _pipeline_call(number, at):
    """Spans, calls and host work of one pipeline call that begins at `at`."""

    def span(kind, name, start, end, step=-1):
        return make_span(kind, name, at + start, at + end, step, pipeline=number)

    spans = [
        span("pipeline", f"P{number}", 0, 100),
        span("stage", "encode", 0, 20),
        span("stage", "denoise", 20, 100),
        span("step", "step 0", 20, 80, 0),
    ]
    encoder = make_call(2 * number, "t", at + 5, at + 15, stage="encode", pipeline=number)
    denoiser = make_call(2 * number + 1, "d", at + 25, at + 70, step=0, pipeline=number)
    step = ("cpu:0", "Host", "host", "scheduler.step")
    host = Command(-1, *step, at + 70, 10, stage="denoise", step=0, pipeline=number)
    return spans, [encoder, denoiser], [host]


def _run(*begins, known=True):
    """A run of pipeline calls that begin at `begins`; without their numbers, if not `known`."""
    parts = [_pipeline_call(number if known else -1, at) for number, at in enumerate(begins)]
    spans, calls, host = ([piece for part in parts for piece in part[kind]] for kind in range(3))
    if not known:
        for index, call in enumerate(calls):
            object.__setattr__(call, "index", index)
    return make_run(calls, host, spans)


def two_at_once():
    """The run of this module's docstring."""
    return _run(0, 30)


def test_a_call_beneath_anothers_does_not_prolong_its_pipeline_call():
    """The first pipeline call's decoder, 70 to 90, runs beneath the second's, 65 to 99: its tile is
    empty, and its pipeline call of 95 ns ends where it did, not at 99. One that worked on after
    that, until 97, makes it 97."""
    spans = [make_span("pipeline", "P", 0, 95, pipeline=0)]
    spans += [make_span("pipeline", "Q", 10, 100, pipeline=1)]
    calls = [make_call(0, "v", 65, 99, pipeline=1), make_call(1, "v", 70, 90, pipeline=0)]
    assert asked(make_run(calls, (), spans)).pipelines["elapsed_ns"].to_list() == [95, 90]
    late = Command(1, "cpu:0", "ALU", "compute", "late", 80, 17, pipeline=0)
    held = Command(0, "cpu:0", "ALU", "compute", "held", 65, 34, pipeline=1)
    worked = make_run(calls, (held, late), spans)
    assert asked(worked).pipelines["elapsed_ns"].to_list() == [97, 90]


def test_pipeline_calls_at_once_are_accounted_for_one_by_one():
    """Each has its 100 ns. The first has 10 and 45 in calls. The second's encoder is beneath the
    first's denoiser, and its own denoiser has the device from 70 on: 30 in calls, while the host
    was in them for 25 more."""
    table = asked(two_at_once()).pipelines
    assert table.select("pipeline", "name", *_TIMES).rows() == [
        (0, "P0", 100, 55, 10, 35, 0),
        (1, "P1", 100, 30, 35, 35, 0),
    ]
    assert table.select("concurrent", "steps", "calls").rows() == [(True, 1, 2)] * 2
    assert table["residual_share"].to_list() == [0.0, 0.0]


def test_the_account_of_the_run_is_their_sum():
    """130 ns passed, 200 ns are accounted for."""
    analysis = asked(two_at_once())
    accounting = analysis.accounting
    assert (accounting.end_to_end_ns, accounting.wall_ns) == (200, 130)
    assert (accounting.pipelines, accounting.overlapping, accounting.told_apart) == (2, 2, True)
    assert (accounting.unaccounted_ns, accounting.residual_share) == (0, 0.0)
    assert accounting.stages == (
        StageAccount("encode", 15, 10, 0, 5),
        StageAccount("denoise", 185, 75, 45, 65),
    )
    assert [(t.submodule, t.wall_ns, t.share) for t in accounting.submodules] == [
        ("d", 75, 0.375),
        ("t", 10, 0.05),
    ]
    assert analysis.stages.select("start_ns").to_series().diff().to_list()[1:] == [20]


def test_steps_belong_to_their_pipeline_call():
    """Step 0 of each is its own call's tile."""
    steps = asked(two_at_once()).steps
    columns = ("pipeline", "step", "elapsed_ns", "calls", "calls_ns", "host_ns", "idle_ns")
    assert steps.select(columns).rows() == [(0, 0, 45, 1, 45, 0, 0), (1, 0, 30, 1, 30, 0, 0)]


def test_pipeline_calls_one_after_another_add_up_as_they_always_did():
    """Apart in time, what the run tells changes nothing in what is found without."""
    told, untold = asked(_run(0, 150)), asked(_run(0, 150, known=False))
    assert told.accounting.wall_ns == told.accounting.end_to_end_ns == 200
    assert told.accounting.overlapping == 0
    assert not untold.accounting.told_apart
    for name in ("stages", "unaccounted_ns", "residual_share", "end_to_end_ns", "submodules"):
        assert getattr(told.accounting, name) == getattr(untold.accounting, name)
    assert told.stages.equals(untold.stages)
    assert told.steps.equals(untold.steps)
    assert told.pipelines.drop("name").equals(untold.pipelines.drop("name"))


def test_a_run_that_does_not_tell_is_accounted_for_as_one():
    """Two pipeline calls at once without numbers: one of 130 ns."""
    accounting, _, pipelines = account(_run(0, 30, known=False))
    assert (accounting.end_to_end_ns, accounting.wall_ns) == (130, 130)
    assert (accounting.overlapping, accounting.told_apart) == (2, False)
    assert accounting.residual_share == 0.0
    assert pipelines["pipeline"].to_list() == [0, 1]


def test_what_runs_in_a_pipeline_call_has_its_number():
    """An outer pipeline call of two inner ones is one, however its stages follow each other."""
    spans = [
        make_span("pipeline", "Outer", 0, 100, pipeline=0),
        make_span("stage", "denoise", 0, 50, pipeline=0),
        make_span("stage", "denoise", 50, 90, pipeline=0),
        make_span("stage", "decode", 90, 100, pipeline=0),
    ]
    calls = [make_call(i, "d", 50 * i, 50 * i + 40, step=0, pipeline=0) for i in range(2)]
    accounting, _, pipelines = account(make_run(calls, (), spans))
    assert pipelines.select(_TIMES).rows() == [(100, 80, 0, 20, 0)]
    assert (accounting.pipelines, accounting.overlapping) == (1, 0)


def test_calls_outside_every_pipeline_call_are_in_no_account():
    """An encoder that the script calls itself, while a pipeline runs, is counted apart."""
    spans, calls, host = _pipeline_call(0, 0)
    own = make_call(2, "t", 40, 60, stage="encode")
    accounting, stages, _ = account(make_run([*calls, own], host, spans))
    assert (accounting.end_to_end_ns, accounting.unaccounted_ns) == (100, 0)
    assert (accounting.calls_outside, accounting.calls_outside_ns) == (1, 20)
    assert stages["calls"].to_list() == [1, 1]


def test_host_work_outside_every_pipeline_call_is_in_no_account():
    """What a script computes beside its pipeline call is not that one's."""
    spans, calls, host = _pipeline_call(0, 0)
    other = Command(-1, "cpu:0", "Host", "host", "mine", 82, 10, stage="denoise")
    accounting, _, _ = account(make_run(calls, [*host, other], spans))
    assert accounting.stages[1] == StageAccount("denoise", 85, 45, 10, 30)


def test_run_without_host_file_keeps_the_steps_of_its_pipeline_calls_apart():
    """The calls of a killed run still say which pipeline call they belong to."""
    calls = [
        make_call(i, "d", 10 * i, 10 * i + 8, step=i // 2, pipeline=i % 2, branch="cond")
        for i in range(4)
    ]
    analysis = asked(make_run(calls))
    assert analysis.steps.select("pipeline", "step", "calls", "branches").rows() == [
        (0, 0, 1, "cond"),
        (1, 0, 1, "cond"),
        (0, 1, 1, "cond"),
        (1, 1, 1, "cond"),
    ]
    assert analysis.pipelines.is_empty()
    assert not analysis.accounting.possible


def test_host_work_is_folded_by_pipeline_call():
    """The scheduler of two pipeline calls at once took 10 ns in each, in two steps."""
    rows = asked(_run(0, 5)).operators.filter(layer="scheduler.step")
    assert rows.select("calls", "commands", "wall_ns").rows() == [(2, 2, 20)]


@pytest.mark.parametrize(
    ("begins", "expected"),
    [((0,), [0]), ((0, 100), [0, 0]), ((0, 99), [1, 1]), ((0, 50, 120, 300), [1, 1, 1, 0])],
)
def test_which_pipeline_calls_overlap(begins, expected):
    """They overlap where one begins before another has ended; touching is none."""
    assert PipelineCalls.of(_run(*begins)).overlapping().tolist() == [bool(e) for e in expected]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=6))
def test_overlap_is_that_of_all_pairs(windows):
    """The sorted search finds what comparing every two finds."""
    spans = [make_span("pipeline", "P", a, a + n, pipeline=i) for i, (a, n) in enumerate(windows)]
    expected = [
        any(a < b + m and b < a + n for j, (b, m) in enumerate(windows) if j != i)
        for i, (a, n) in enumerate(windows)
    ]
    assert PipelineCalls.of(make_run((), (), spans)).overlapping().tolist() == expected


_PIECES = st.lists(
    st.tuples(st.sampled_from(["call", "host", "idle"]), st.integers(1, 30)), min_size=1, max_size=5
)
_STAGES = st.lists(_PIECES, min_size=1, max_size=3)


@settings(deadline=None, max_examples=examples(60))
@given(runs=st.lists(st.tuples(st.integers(0, 80), _STAGES), min_size=1, max_size=4))
def test_what_tiles_a_pipeline_call_leaves_nothing(runs):
    """Pieces that tile their pipeline call: residual 0 for each, and every part is the sum of its
    pieces, however the pipeline calls lie in time, as long as each has a device of its own."""
    spans, calls, host, expected = [], [], [], []
    for number, (begin, stages) in enumerate(runs):
        now, sums = begin, {"call": 0, "host": 0, "idle": 0}
        for stage, pieces in zip(("encode", "denoise", "decode"), stages, strict=False):
            start = now
            for kind, length in pieces:
                if kind == "call":
                    index = len(calls)
                    calls.append(
                        make_call(
                            index,
                            "t",
                            now,
                            now + length,
                            stage=stage,
                            pipeline=number,
                            device=f"rbln:{number}",
                        )
                    )
                elif kind == "host":
                    work = ("cpu:0", "Host", "host", "work", now, length)
                    host.append(Command(-1, *work, stage=stage, pipeline=number))
                sums[kind] += length
                now += length
            spans.append(make_span("stage", stage, start, now, pipeline=number))
        spans.append(make_span("pipeline", "P", begin, now, pipeline=number))
        expected.append((number, now - begin, *sums.values(), 0, 0.0))
    accounting, stage_rows, pipelines = account(make_run(calls, host, spans))
    found = pipelines.select("pipeline", *_TIMES, "residual_share").sort("pipeline")
    assert found.rows() == expected
    assert accounting.unaccounted_ns == 0
    assert accounting.end_to_end_ns == sum(row[1] for row in expected)
    assert np.array(stage_rows["elapsed_ns"]).sum() == accounting.end_to_end_ns


def test_first_calls_are_told_from_steady_ones_in_threads():
    """The call that began first, and the one that began beside it, are no steady calls; of these
    the last is beneath the other."""
    calls = [
        make_call(0, "d", 5, 60, pipeline=1),
        make_call(1, "d", 0, 90, pipeline=0),
        make_call(2, "d", 60, 100, pipeline=1),
        make_call(3, "d", 90, 120, pipeline=0),
        make_call(4, "d", 100, 120, pipeline=1),
    ]
    analysis = asked(make_run(calls))
    assert analysis.calls["first"].to_list() == [True, True, True, False, False]
    row = analysis.submodules.select("first_ns", "min_ns", "max_ns").row(0)
    assert row == (90, 0, 20)


def test_calls_that_all_ran_beside_the_first_are_their_own_measure():
    """Two calls at once, and no other: both count, the second beneath the first."""
    calls = [make_call(0, "d", 0, 50), make_call(1, "d", 10, 40)]
    row = asked(make_run(calls)).submodules.select("first_ns", "min_ns", "max_ns").row(0)
    assert row == (50, 0, 50)


def test_branches_of_a_denoiser():
    """Two steps of cond, uncond and skip_layers: a row each. Without the first step one call is
    left of each, which is no median, so that all count."""
    lengths = {"uncond": (50, 20), "cond": (30, 22), "skip_layers": (15, 14)}
    calls, now = [make_call(0, "t", 0, 10, stage="encode", branch="prompt")], 10
    for step in range(2):
        for branch, length in lengths.items():
            end = now + length[step]
            calls.append(make_call(len(calls), "d", now, end, step=step, branch=branch))
            now = end
    spans = [make_span("pipeline", "P", 0, now, pipeline=0)]
    analysis = asked(make_run(calls, (), spans))
    columns = ("submodule", "branch", "calls", "duration_ns", "first_ns", "min_ns", "max_ns")
    assert analysis.branches.select(columns).rows() == [
        ("t", "prompt", 1, 10, 10, 10, 10),
        ("d", "uncond", 2, 70, 50, 20, 50),
        ("d", "cond", 2, 52, 30, 22, 30),
        ("d", "skip_layers", 2, 29, 15, 14, 15),
    ]
    assert analysis.steps["branches"].to_list() == ["uncond, cond, skip_layers"] * 2


def test_step_keys():
    """In order of pipeline call, then step; what is in no step comes before the call's first."""
    pipeline = np.repeat(np.array([-1, 0, 1], dtype=np.int32), 3)
    step = np.tile(np.array([-1, 0, 5], dtype=np.int32), 3)
    keys = step_keys(pipeline, step)
    assert (np.diff(keys) > 0).all()
    assert (keys[step >= 0] >> 32).tolist() == [-1, -1, 0, 0, 1, 1]


def test_pipeline_calls_that_begin_at_once_and_have_no_number_are_two_requests():
    """A foreign trace of two spans from the same moment on: each has its own length."""
    spans = [make_span("pipeline", name, 0, end, pipeline=-1) for name, end in (("a", 5), ("b", 9))]
    calls = [make_call(i, "vae", 1 + i, 2 + i, pipeline=-1) for i in (0, 1)]
    requests = asked(make_run(calls, [], spans)).requests
    assert sorted(requests["latency_ns"]) == [5, 9]


@pytest.mark.parametrize(("work", "under_way"), [(50, 2), (10, 1)])
def test_a_request_is_under_way_until_its_last_work_has_ended(work, under_way):
    """The first returns after 20 ns and its device works for `work`: the second, from 30 on, finds
    it under way only if that is longer, as its latency says."""
    calls = [make_call(0, "vae", 0, 20), make_call(1, "vae", 30, 90)]
    commands = [
        Command(0, "cuda:0", "stream 7", "compute", "a", 0, work),
        Command(1, "cuda:0", "stream 7", "compute", "a", 60, 20),
    ]
    spans = [make_span("pipeline", "P", 0, 20), make_span("pipeline", "P", 30, 90)]
    requests = asked(make_run(calls, commands, spans)).requests.sort("begin_ns")
    assert requests["latency_ns"].to_list() == [max(20, work), 60]
    assert requests["in_flight"].to_list() == [1, under_way]
