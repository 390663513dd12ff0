"""The accounting identity on runs whose every nanosecond is known."""

from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.accounting.account import account
from profiler.analysis.accounting.identity import StageAccount
from profiler.events import DropKind, Loss
from profiler.report.sentences.worded import why_not
from tests.runs import TINY_CALLS, Command, make_call, make_run, make_span, tiny_run

PIPELINE = make_span("pipeline", "P", 0, 100)


def _host(start, duration, stage):
    return Command(-1, "cpu:0", "Host", "host", "work", start, duration, stage=stage)


def _stages(run):
    return account(run)[0].stages


def test_stages_split_into_calls_host_work_and_idle():
    """The tiny run adds up to its 1000 ns with nothing left."""
    accounting, table, _ = account(tiny_run())
    assert accounting.stages == (
        StageAccount("encode", 200, 90, 10, 100),
        StageAccount("denoise", 700, 500, 80, 120),
        StageAccount("decode", 100, 80, 0, 20),
    )
    assert (accounting.end_to_end_ns, accounting.residual_ns) == (1000, 0)
    assert (accounting.pipelines, accounting.steps) == (1, 2)
    assert table["calls"].to_list() == [1, 2, 1]
    assert table["share"].to_list() == [0.2, 0.7, 0.1]


def test_submodules_have_their_wall_time():
    """Longest first, as a share of the end-to-end time."""
    times = account(tiny_run())[0].submodules
    assert [(t.submodule, t.wall_ns, t.share) for t in times] == [
        ("transformer", 500, 0.5),
        ("text_encoder", 90, 0.09),
        ("vae", 80, 0.08),
    ]


def test_gap_between_stages_is_residual():
    """10 ns between encode and denoise belong to no stage."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 40), make_span("stage", "denoise", 50, 100)]
    accounting, _, _ = account(make_run([make_call(0, "t", 50, 100)], (), spans))
    assert (accounting.residual_ns, accounting.gap_ns) == (10, 10)
    assert accounting.residual_share == 0.1


def test_call_over_the_end_of_its_stage_is_residual():
    """A call of encode that lasts 15 ns into denoise is counted there a second time."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 40), make_span("stage", "denoise", 40, 100)]
    calls = [make_call(0, "t", 30, 55, stage="encode"), make_call(1, "d", 55, 100)]
    accounting, _, _ = account(make_run(calls, (), spans))
    assert accounting.stages == (
        StageAccount("encode", 40, 25, 0, 30),
        StageAccount("denoise", 60, 45, 0, 15),
    )
    assert (accounting.residual_ns, accounting.outside_ns) == (-15, 15)


def test_errors_of_opposite_sign_do_not_cancel():
    """A call that fills the gap behind its stage leaves residual 0, but its share tells."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 40), make_span("stage", "denoise", 50, 100)]
    calls = [make_call(0, "t", 30, 50, stage="encode")]
    accounting, _, _ = account(make_run(calls, (), spans))
    assert accounting.residual_ns == 0
    assert (accounting.gap_ns, accounting.outside_ns) == (10, 10)
    assert accounting.residual_share == 0.2


def test_overlapping_stages_are_residual():
    """20 ns that two stages claim are accounted for twice."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 60), make_span("stage", "denoise", 40, 100)]
    accounting, _, _ = account(make_run([make_call(0, "t", 60, 70)], (), spans))
    assert (accounting.residual_ns, accounting.overlap_ns) == (-20, 20)


def test_concurrent_calls_on_two_devices_count_once():
    """Two encoders that run side by side for 20 ns occupy the stage for 50, not 70."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 100)]
    calls = [
        make_call(0, "a", 10, 40, stage="encode"),
        make_call(1, "b", 20, 60, stage="encode", device="rbln:1"),
    ]
    accounting, table, _ = account(make_run(calls, (), spans))
    assert accounting.stages == (StageAccount("encode", 100, 50, 0, 50),)
    assert accounting.residual_ns == 0
    assert table["calls"].to_list() == [2]


def test_host_work_under_a_call_is_the_calls():
    """Host work from 30 to 60 beside a call from 40 to 50 adds 20 ns."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 100)]
    run = make_run([make_call(0, "a", 40, 50, stage="encode")], [_host(30, 30, "encode")], spans)
    assert _stages(run) == (StageAccount("encode", 100, 10, 20, 70),)


def test_host_work_of_no_stage_is_no_stages():
    """It leaves the stage idle rather than being guessed into it."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 100)]
    run = make_run([make_call(0, "a", 40, 50, stage="encode")], [_host(60, 30, "")], spans)
    assert _stages(run) == (StageAccount("encode", 100, 10, 0, 90),)


def test_several_pipeline_calls_add_up():
    """Two pipeline calls of 100 ns, 50 ns apart: 200 ns end to end."""
    spans = [PIPELINE, make_span("stage", "denoise", 0, 100)]
    spans += [make_span("pipeline", "P", 150, 250), make_span("stage", "denoise", 150, 250)]
    calls = [make_call(0, "t", 0, 80), make_call(1, "t", 150, 240)]
    accounting, _, _ = account(make_run(calls, (), spans))
    assert (accounting.end_to_end_ns, accounting.pipelines) == (200, 2)
    assert accounting.stages == (StageAccount("denoise", 200, 170, 0, 30),)
    assert accounting.residual_ns == 0


def test_stage_without_a_span_is_residual():
    """A call of a stage that nobody spanned lies outside every stage."""
    spans = [PIPELINE, make_span("stage", "denoise", 0, 100)]
    calls = [make_call(0, "t", 0, 100), make_call(1, "vae", 90, 120, stage="decode")]
    accounting, table, _ = account(make_run(calls, (), spans))
    assert accounting.stages[1] == StageAccount("decode", 0, 30, 0, 0)
    assert (accounting.residual_ns, accounting.outside_ns) == (-30, 30)
    assert table["stage"].to_list() == ["denoise", "decode"]


def test_run_without_spans_has_no_accounting():
    """A run that was killed has calls but no spans: nothing is invented."""
    loss = Loss(DropKind.MISSING_FILE, "host.pb", 1, "files", "the run ended before it was written")
    accounting, table, _ = account(make_run(TINY_CALLS, losses=(loss,)))
    assert not accounting.possible
    assert why_not(accounting.why_not) == (
        "the trace holds no pipeline and no stage span, host.pb is missing"
    )
    assert (accounting.stages, accounting.end_to_end_ns, accounting.residual_ns) == ((), 0, 0)
    assert table["calls_ns"].to_list() == [90, 500, 80]
    assert table["duration_ns"].null_count() == table["idle_ns"].null_count() == 3


def test_pipeline_without_stages_keeps_its_end_to_end_time():
    """Shares need no stages."""
    accounting, _, _ = account(make_run(TINY_CALLS, spans=[make_span("pipeline", "P", 0, 1000)]))
    assert not accounting.possible
    assert why_not(accounting.why_not) == "the trace holds no stage span"
    assert accounting.submodules[0].share == 0.5


def test_empty_run():
    """A run with nothing in it has no stages and no submodules."""
    accounting, table, _ = account(make_run())
    assert not accounting.possible
    assert (accounting.submodules, len(table)) == ((), 0)


_STAGE = st.sampled_from(["encode", "denoise", "decode"])
_PIECES = st.lists(st.tuples(_STAGE, st.integers(0, 120), st.integers(0, 60)), max_size=12)


@settings(deadline=None, max_examples=40)
@given(spans=_PIECES, calls=_PIECES, host=_PIECES)
def test_residual_is_explained_whatever_happens(spans, calls, host):
    """For any spans, calls and host work: no part is negative, and the identity holds."""
    run = make_run(
        [make_call(i, "t", a, a + n, stage=stage) for i, (stage, a, n) in enumerate(calls)],
        [_host(start, length, stage) for stage, start, length in host],
        [PIPELINE, make_span("stage", "encode", 0, 1)]
        + [make_span("stage", stage, a, a + n) for stage, a, n in spans],
    )
    accounting, _, _ = account(run)
    parts = [n for s in accounting.stages for n in (s.calls_ns, s.host_ns, s.idle_ns)]
    explained = accounting.gap_ns - accounting.outside_ns - accounting.overlap_ns
    assert accounting.residual_ns == 100 - sum(parts) == explained
    assert min([*parts, accounting.gap_ns, accounting.outside_ns, accounting.overlap_ns]) >= 0
