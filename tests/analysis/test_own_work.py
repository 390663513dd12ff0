"""The profiler's own work is nobody's: what analyses say of a run with much of it and without."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.commands import first_calls
from profiler.prediction import Scenario
from profiler.prediction.predict import predict
from tests.analysis.asked import asked
from tests.runs import Command, make_call, make_run, make_span

MS = 1_000_000
STEPS = 6


def run_with(own_ms, name="renew_session"):
    """Six steps of 8 ms with 2 ms between them, a call and four commands each; between the second
    and the third the profiler works for so long, and all that follows is later by it."""

    def at(ms):
        return (ms if ms < 22 else ms + own_ms) * MS

    end = at(62)
    spans = [
        make_span("pipeline", "P", 0, end, pipeline=0),
        make_span("stage", "denoise", 0, end, pipeline=0),
    ]
    calls, commands = [], []
    for step in range(STEPS):
        begin = at(step * 10 + 2)
        spans.append(make_span("step", f"step {step}", begin, begin + 8 * MS, step, pipeline=0))
        own = {"step": step, "pipeline": 0}
        calls.append(make_call(step, "transformer", begin, begin + 8 * MS, device="cpu:0", **own))
        for layer in range(4):
            start = begin + layer * 2 * MS
            place = ("cpu:0", "Host", "compute", f"layer{layer}")
            commands.append(Command(step, *place, start, 2 * MS, "MatMul", "denoise", **own))
    if own_ms:
        spans.append(make_span("profiler", name, 21 * MS, (21 + own_ms) * MS, pipeline=0))
    return make_run(calls, commands, spans)


def lasting(frame):
    """A table without moments."""
    moments = [name for name in frame.columns if name in {"start_ns", "end_ns", "begin_ns"}]
    return frame.drop(moments)


@pytest.fixture(scope="module", params=["start_session", "stop_session", "renew_session"])
def pair(request):
    """The run without own work and with a second of it, which is sixteen times the program."""
    return run_with(0), run_with(1_000, request.param)


def test_accounting_subtracts_it(pair):
    """End to end, stages and calls are the same; what was subtracted is told."""
    plain, own = (asked(run).accounting for run in pair)
    assert (plain.end_to_end_ns, plain.profiler_ns) == (62 * MS, 0)
    assert (own.end_to_end_ns, own.profiler_ns) == (62 * MS, 1_000 * MS)
    assert own.stages == plain.stages
    assert own.submodules == plain.submodules


def test_findings_do_not_touch_it(pair):
    """The same rules, with the same values."""
    plain, own = (list(asked(run).findings) for run in pair)
    assert own == plain
    assert plain


def test_the_critical_path_does_not_touch_it(pair):
    """Nothing of it lies on it, nor between what does."""
    plain, own = (lasting(asked(run).critical_path) for run in pair)
    assert own.equals(plain)


def test_gaps_do_not_touch_it(pair):
    """The device's own span, its idle time and its long gaps."""
    plain, own = (asked(run).idle for run in pair)
    assert own.equals(plain)
    assert plain["span_ns"].item() == 58 * MS


def test_devices_do_not_touch_it(pair):
    """Each device's span, what of it was idle, and how busy it was."""
    plain, own = (asked(run).devices for run in pair)
    assert own.equals(plain)
    assert plain["utilization"].item() == pytest.approx(48 / 62)


@pytest.mark.parametrize(
    ("name", "span_ms"), [("stop_session", 40), ("start_session", 40), ("convert", 1_040)]
)
def test_between_two_pipeline_calls(name, span_ms):
    """Two calls of 10 ms, 1,020 ms from each other, a second of it the profiler's. A session that
    the caller waited for is no part of the device's span; converting, which waits until nobody
    waits for it, is: the program rested anyway."""
    calls, commands, spans = [], [], []
    for number, begin in enumerate((0, 1_030 * MS)):
        of = {"step": -1, "pipeline": number}
        spans.append(make_span("pipeline", "P", begin, begin + 10 * MS, pipeline=number))
        calls.append(make_call(number, "vae", begin, begin + 10 * MS, device="cpu:0", **of))
        place = ("cpu:0", "Host", "compute", "layer")
        commands.append(Command(number, *place, begin, 10 * MS, "MatMul", "decode", **of))
    spans.append(make_span("profiler", name, 11 * MS, 1_011 * MS))
    found = asked(make_run(calls, commands, spans))
    assert found.devices["span_ns"].item() == found.idle["span_ns"].item() == span_ms * MS
    assert found.devices["utilization"].item() == 1.0  # of the pipeline calls
    assert found.devices["idle_ns"].item() == found.idle["idle_ns"].item() == (span_ms - 20) * MS
    assert found.idle["before_after_ns"].item() == (span_ms - 20) * MS


def test_predictions_do_not_touch_it(pair):
    """As recorded, and with twice the steps."""
    for scenario in (Scenario(), Scenario(steps=2 * STEPS)):
        plain, own = (predict(run, asked(run), scenario) for run in pair)
        assert own.measured == plain.measured
        assert own.request == plain.request
        assert (own.stages, own.submodules) == (plain.stages, plain.submodules)


def test_the_first_call_of_either_kind_is_cold():
    """Of a submodule some of whose calls are traced: the first traced and the first untraced."""
    calls = run_with(0).calls
    assert first_calls(calls).to_list() == [0]
    mixed = calls.with_columns(pl.col("call").is_in([2, 4]).alias("ops_traced"))
    assert first_calls(mixed).to_list() == [0, 2]
