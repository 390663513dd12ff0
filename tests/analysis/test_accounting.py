"""The accounting identity on runs whose every nanosecond is known."""

from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import account
from profiler.analysis.result import StageAccount
from profiler.analysis.table_text import why_not
from profiler.trace import Drop, DropKind
from tests.analysis.linked_runs import gpu, host, linked, wait
from tests.examples import examples
from tests.runs import TINY_CALLS, Command, make_call, make_run, make_span, tiny_run, why

PIPELINE = make_span("pipeline", "P", 0, 100)


def _host(start, duration, stage):
    return Command(-1, "cpu:0", "Host", "host", "work", start, duration, stage=stage)


def _stages(run):
    return account(run)[0].stages


def test_stages_split_into_calls_host_work_and_idle():
    """The tiny run adds up to its 1000 ns with nothing left."""
    accounting, table, _ = account(tiny_run())
    assert accounting.stages == (
        StageAccount("encode", 100, 90, 10, 0),
        StageAccount("denoise", 660, 500, 40, 120),
        StageAccount("decode", 240, 80, 40, 120),
    )
    assert (accounting.end_to_end_ns, accounting.unaccounted_ns) == (1000, 0)
    assert (accounting.pipelines, accounting.steps) == (1, 2)
    assert table["calls"].to_list() == [1, 2, 1]
    assert table["share"].to_list() == [0.1, 0.66, 0.24]


def test_submodules_have_their_wall_time():
    """Longest first, as a share of the end-to-end time."""
    times = account(tiny_run())[0].submodules
    assert [(t.submodule, t.wall_ns, t.share) for t in times] == [
        ("transformer", 500, 0.5),
        ("text_encoder", 90, 0.09),
        ("vae", 80, 0.08),
    ]


def test_stages_partition_the_pipeline_call():
    """Each lasts from the end of the one before to the end of its last tile, whatever their spans
    say; what precedes the first tile is the first one's, what follows the last the last one's."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 40), make_span("stage", "denoise", 50, 90)]
    calls = [make_call(0, "t", 30, 55, stage="encode"), make_call(1, "d", 60, 80)]
    accounting, table, _ = account(make_run(calls, (), spans))
    assert accounting.stages == (
        StageAccount("encode", 55, 25, 0, 30),
        StageAccount("denoise", 45, 20, 0, 25),
    )
    assert (accounting.unaccounted_ns, accounting.residual_share) == (0, 0.0)
    assert table["duration_ns"].to_list() == [40, 40]


def test_stages_that_take_turns_have_several_parts():
    """An image that is encoded between two steps: each stage has the time up to its tiles' ends."""
    spans = [PIPELINE, make_span("stage", "denoise", 0, 100)]
    calls = [
        make_call(0, "d", 10, 20),
        make_call(1, "t", 30, 35, stage="encode"),
        make_call(2, "d", 40, 90),
    ]
    assert set(_stages(make_run(calls, (), spans))) == {
        StageAccount("denoise", 20 + 65, 60, 0, 25),
        StageAccount("encode", 15, 5, 0, 10),
    }


def test_a_tile_before_its_pipeline_call_is_residual():
    """20 ns that no stage accounts for."""
    spans = [make_span("pipeline", "P", 20, 120), make_span("stage", "denoise", 20, 120)]
    accounting, _, _ = account(make_run([make_call(0, "t", 0, 70)], (), spans))
    assert (accounting.end_to_end_ns, accounting.unaccounted_ns, accounting.before_after_ns) == (
        100,
        0,
        20,
    )
    assert accounting.residual_share == 0.2


def test_the_profilers_own_work_is_not_the_programs():
    """20 ns before a call and 10 between two count nowhere, host work at the same time included;
    what lies in a tile, or behind the pipeline call, or is of no pipeline call, takes nothing."""
    spans = [
        make_span("pipeline", "P", 0, 100, pipeline=0),
        make_span("stage", "denoise", 0, 100, pipeline=0),
        make_span("profiler", "start_session", 0, 20, pipeline=0),
        make_span("profiler", "renew_session", 45, 60, pipeline=0),
        make_span("profiler", "convert", 92, 96),
        make_span("profiler", "stop_session", 100, 130, pipeline=0),
    ]
    calls = [make_call(0, "d", 20, 50, pipeline=0), make_call(1, "d", 60, 90, pipeline=0)]
    work = Command(-1, "cpu:0", "Host", "host", "w", 15, 10, stage="denoise", pipeline=0)
    accounting, _, pipelines = account(make_run(calls, [work], spans))
    assert (accounting.end_to_end_ns, accounting.profiler_ns) == (70, 30)
    assert accounting.stages == (StageAccount("denoise", 70, 60, 0, 10),)
    assert (accounting.unaccounted_ns, accounting.unrecorded_ns) == (0, 0)
    assert pipelines["elapsed_ns"].to_list() == [70]


def _decoded(*more):
    """A pipeline call whose decoder returns after 10 ns while its kernels run for 60."""
    spans = [PIPELINE, make_span("stage", "denoise", 0, 40), make_span("stage", "decode", 40, 100)]
    calls = [
        make_call(0, "d", 0, 40, device="cuda:0"),
        make_call(1, "vae", 50, 60, stage="decode", device="cuda:0"),
    ]
    commands = [host(0, 0, 1), gpu(0, 2, 40), host(1, 50, 52), gpu(1, 55, 115), *more]
    return linked(make_run(calls, commands, spans), (0, 1), (2, 3))


def test_the_pipeline_call_lasts_to_its_last_command():
    """The decoder's kernels run until 115: 65 ns of decode are in its tile, none are left over."""
    accounting, table, _ = account(_decoded())
    assert accounting.stages == (
        StageAccount("denoise", 40, 40, 0, 0),
        StageAccount("decode", 75, 65, 0, 10),
    )
    assert (accounting.end_to_end_ns, accounting.unaccounted_ns) == (115, 0)
    assert table["duration_ns"].to_list() == [40, 60]


def test_waiting_for_a_device_is_no_host_work():
    """Of the 9 ns of a host frame before the decoder 3 were work: 6 waited for the device."""
    frame = Command(-1, "cpu:0", "Host", "host", "postprocess", 41, 9, stage="decode")
    accounting, _, _ = account(_decoded(frame, wait(-1, 42, 48)))
    assert accounting.stages[1] == StageAccount("decode", 75, 65, 3, 7)


def test_concurrent_calls_on_two_devices_count_once():
    """Two encoders that run side by side for 20 ns occupy the stage for 50, not 70."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 100)]
    calls = [
        make_call(0, "a", 10, 40, stage="encode"),
        make_call(1, "b", 20, 60, stage="encode", device="rbln:1"),
    ]
    accounting, table, _ = account(make_run(calls, (), spans))
    assert accounting.stages == (StageAccount("encode", 100, 50, 0, 50),)
    assert accounting.unaccounted_ns == 0
    assert table["calls"].to_list() == [2]


def test_host_work_under_a_call_is_the_calls():
    """Host work from 30 to 60 beside a call from 40 to 50 adds 20 ns."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 100)]
    run = make_run([make_call(0, "a", 40, 50, stage="encode")], [_host(30, 30, "encode")], spans)
    assert _stages(run) == (StageAccount("encode", 100, 10, 20, 70),)


def test_host_work_is_of_the_stage_in_whose_time_it_is():
    """A label that it lacks, or has, does not count."""
    spans = [PIPELINE, make_span("stage", "encode", 0, 100)]
    run = make_run([make_call(0, "a", 40, 50, stage="encode")], [_host(60, 30, "")], spans)
    assert _stages(run) == (StageAccount("encode", 100, 10, 30, 60),)


def test_several_pipeline_calls_add_up():
    """Two pipeline calls of 100 ns, 50 ns apart: 200 ns end to end."""
    spans = [PIPELINE, make_span("stage", "denoise", 0, 100)]
    spans += [make_span("pipeline", "P", 150, 250), make_span("stage", "denoise", 150, 250)]
    calls = [make_call(0, "t", 0, 80), make_call(1, "t", 150, 240)]
    accounting, _, _ = account(make_run(calls, (), spans))
    assert (accounting.end_to_end_ns, accounting.pipelines) == (200, 2)
    assert accounting.stages == (StageAccount("denoise", 200, 170, 0, 30),)
    assert accounting.unaccounted_ns == 0


def test_a_stage_needs_no_span_of_its_own():
    """A call of a stage that nobody spanned, beneath another for 10 ns, prolongs the pipeline."""
    spans = [PIPELINE, make_span("stage", "denoise", 0, 100)]
    calls = [make_call(0, "t", 0, 100), make_call(1, "vae", 90, 120, stage="decode")]
    accounting, table, _ = account(make_run(calls, (), spans))
    assert accounting.stages[1] == StageAccount("decode", 20, 20, 0, 0)
    assert (accounting.end_to_end_ns, accounting.unaccounted_ns) == (120, 0)
    assert table["stage"].to_list() == ["denoise", "decode"]
    assert table["duration_ns"].to_list() == [100, None]


def test_run_without_spans_has_no_accounting():
    """A run that was killed has calls but no spans: nothing is invented."""
    drop = Drop(DropKind.MISSING_FILE, "host.pb", 1, "files", why("it was killed"))
    accounting, table, _ = account(make_run(TINY_CALLS, drops=(drop,)))
    assert not accounting.possible
    assert why_not(accounting.why_not) == (
        "the trace holds no pipeline and no stage span, host.pb is missing"
    )
    assert (accounting.stages, accounting.unaccounted_ns) == ((), 0)
    assert accounting.end_to_end_ns == 980  # from the first tile to the last
    assert table["calls_ns"].to_list() == [90, 500, 80]
    assert table["elapsed_ns"].null_count() == table["idle_ns"].null_count() == 3


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


@settings(deadline=None, max_examples=examples(40))
@given(spans=_PIECES, calls=_PIECES, host=_PIECES)
def test_stages_account_for_everything_whatever_happens(spans, calls, host):
    """For any spans, calls and host work: no part is negative, and the identity holds."""
    run = make_run(
        [make_call(i, "t", a, a + n, stage=stage) for i, (stage, a, n) in enumerate(calls)],
        [_host(start, length, stage) for stage, start, length in host],
        [PIPELINE, make_span("stage", "encode", 0, 1)]
        + [make_span("stage", stage, a, a + n) for stage, a, n in spans],
    )
    accounting, _, _ = account(run)
    parts = [n for s in accounting.stages for n in (s.calls_ns, s.host_ns, s.idle_ns)]
    end = max([100, *(a + n for _, a, n in calls)])
    assert accounting.end_to_end_ns == sum(parts) == end
    assert accounting.unaccounted_ns == 0
    assert all(s.elapsed_ns == s.calls_ns + s.host_ns + s.idle_ns for s in accounting.stages)
    assert min([*parts, accounting.before_after_ns]) >= 0
