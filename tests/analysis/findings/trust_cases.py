"""Runs for the rules about the trace itself."""

from profiler.trace import Drop, DropKind
from tests.analysis.findings.cases import analyzed, command, gpu_call, misses, triggers
from tests.runs import make_call, make_span, why

LOST = Drop(DropKind.DROPPED_EVENTS, "vae.pb", 7, "events", why("the buffer was full"))
UNTRACED = Drop(DropKind.UNTRACED_CALL, "vae", -1, "calls", why("nobody knows"))


@triggers(
    "incomplete_trace",
    drops=2,
    kinds="untraced_call, dropped_events",
    lost_events=7,
    worst=LOST.detail,
)
def lost_events():
    return analyzed(drops=(UNTRACED, LOST))


@misses("incomplete_trace")
def whole_trace():
    return analyzed()


@triggers("graph_capture", calls=1, wall_ns=100)
def a_capture_alone():
    calls = [make_call(0, "Model", 0, 100, stage="run")]
    return analyzed(calls, capabilities=["graph_capture", "timeline"])


@triggers("graph_capture", calls=1, captured=12, replays=3)
def a_capture_and_its_replays():
    calls = [make_call(0, "Model", 0, 100, stage="run")]
    recording = {"graphs": {"replays": 3, "captured": 12}}
    return analyzed(calls, capabilities=["launches", "timeline"], recording=recording)


@misses("graph_capture")
def replays_alone():
    calls = [make_call(0, "Model", 0, 100, stage="run")]
    return analyzed(calls, recording={"graphs": {"replays": 3}})


@misses("graph_capture")
def serving():
    calls = [make_call(0, "Model", 0, 100, stage="run")]
    return analyzed(calls, capabilities=["launches", "timeline"])


@triggers("tracing_overhead", overhead_share=0.1, overhead_low_share=0.1, operators_ns=80)
def a_tenth_of_the_run():
    return analyzed(overhead={"share": 0.1, "operators_ns": 80, "hooks_ns": 20})


def _timed_by_its_device(flows):
    """A kernel whose launch was recorded, or was not."""
    commands = [command(0, 0, 10, device="cpu:0", category="host"), command(0, 10, 900)]
    return analyzed(
        [gpu_call(0, 0, 1000)], commands, overhead={"share": 0.2, "operators_ns": 200}, flows=flows
    )


@triggers("tracing_overhead", timed_by="device")
def kernels_that_their_device_timed():
    return _timed_by_its_device([(0, 1)])


@triggers("tracing_overhead", timed_by=None)
def commands_without_launches():
    return _timed_by_its_device([])


@misses("tracing_overhead")
def less_than_a_tenth():
    return analyzed(overhead={"share": 0.0999, "operators_ns": 99})


@misses("tracing_overhead")
def an_interval_that_begins_below_5_percent():
    """20 % of 1000 ns, of which 160 ns are in doubt: at least 4 %."""
    return analyzed(overhead={"share": 0.2, "operators_ns": 200, "operators_low_ns": 40})


@misses("tracing_overhead")
def an_estimate_that_may_be_half():
    """10 events of 11 ns, or of 5 ns: at least 5 ns less than 5 %."""
    return analyzed(
        overhead={
            "share": 0.11,
            "operators_ns": 110,
            "estimated_events": 10,
            "operator_event_ns": 11,
            "operator_event_low_ns": 4.9,
        }
    )


@misses("tracing_overhead")
def overhead_not_measured():
    return analyzed(overhead={"unknown": [{"why": "not_told"}]})


UNCAPTURED = [{"name": "image_encoder", "calls": 2, "duration_ns": 10}]


@triggers("uncaptured_modules", uncaptured_share=0.01, uncaptured_ns=10, uncaptured_calls=2)
def a_hundredth_in_no_call():
    measured = {"pipelines": 1, "captured_ns": 990, "uncaptured_ns": 10, "share": 0.99}
    return analyzed(coverage={**measured, "uncaptured": UNCAPTURED})


@misses("uncaptured_modules")
def less_than_a_hundredth():
    measured = {"pipelines": 1, "captured_ns": 991, "uncaptured_ns": 9, "share": 0.991}
    return analyzed(coverage={**measured, "uncaptured": UNCAPTURED})


def _begun_before_its_pipeline_call(early):
    calls = [make_call(0, "text_encoder", -early, 100, stage="encode")]
    return analyzed(calls, spans=[make_span("stage", "encode", 0, 1000)])


@triggers("unaccounted_time", outside_pipeline_ns=11, residual_share=0.011)
def eleven_in_no_pipeline_call():
    return _begun_before_its_pipeline_call(11)


@misses("unaccounted_time")
def ten_in_no_stage():
    return _begun_before_its_pipeline_call(10)
