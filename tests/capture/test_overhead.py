"""The profiling overhead, from tables of durations."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from profiler.analysis.profiling_overhead import how_known, method
from profiler.capture import (
    EventCost,
    FakeClock,
    Gaps,
    Invocation,
    Recorder,
    SourceSummary,
    overhead,
)
from profiler.capture.operator_source import NewSessions, TimedCall
from profiler.capture.overhead import call_cost, measured_costs, noise_ns, tracing_cost, whole_of
from profiler.trace.manifest_fields import CallCounts, stated
from tests.runs import make_info

START = 1_790_000_000_000_000_000


def told(costs):
    """What stands for the measurement of a backend's cost, however far its events lie
    apart."""
    return lambda backend, _: costs.get(backend)


@pytest.fixture(autouse=True)
def known_estimate(monkeypatch):
    """Measured once per run for real; here 10 ns an event of ONNX Runtime, 20 of torch, while
    nobody knows of others."""
    known = {"onnxruntime": EventCost(10.0), "torch": EventCost(20.0)}
    monkeypatch.setattr(overhead, "event_cost", told(known))


def calls(traced, untraced, **shapes):
    """Calls of both kinds in turn, with these durations."""
    return [
        TimedCall(duration, kind, shapes)
        for kind, durations in ((True, traced), (False, untraced))
        for duration in durations
    ]


def test_calls_on_a_new_session_cost_nothing_twice():
    """A session's second call is slow, too, and counted as that of a new session: it is not among
    the traced calls that are compared."""
    known = calls([900, 120, 121, 119], [99, 100, 101, 100])
    second = TimedCall(600, traced=True, input_shapes={}, on_new_session=True)
    assert call_cost([*known, second]) == call_cost(known)


def test_difference_of_medians():
    """The first of either kind stands apart; the cost is the difference of the others' medians,
    the factor their ratio, and both lie in their intervals."""
    cost = call_cost(calls([900, 110, 120, 130, 120, 119], [700, 99, 100, 101, 100, 102]))
    assert (cost.traced, cost.untraced) == (5, 5)
    assert (cost.traced_median_ns, cost.untraced_median_ns) == (120, 100)
    assert cost.call_ns == 20
    assert cost.factor == pytest.approx(100 / 120)
    low, high = cost.call_interval_ns
    assert 7 <= low <= 20 <= high <= 33
    low, high = cost.factor_interval
    assert 98 / 131 <= low <= cost.factor <= high <= 103 / 109


def test_equal_durations_have_an_interval():
    """Durations that do not vary do not tell their noise: it is taken to be 0.5 %, wider for three
    values, some 2 % of the difference of both sides."""
    cost = call_cost(calls([50] * 4, [40] * 4))
    low, high = cost.call_interval_ns
    assert (low, high) == (pytest.approx(9, abs=0.5), pytest.approx(11, abs=0.5))
    low, high = cost.factor_interval
    assert (low, high) == (pytest.approx(0.78, abs=0.01), pytest.approx(0.82, abs=0.01))


def test_the_interval_is_the_same_every_time():
    """The bootstrap is seeded: one table, one interval."""
    table = calls([5, 110, 120, 135, 90], [5, 99, 107, 101, 100])
    assert call_cost(table).call_interval_ns == call_cost(table).call_interval_ns


def test_noise_may_exceed_the_cost():
    """Traced calls that were no slower give a cost below 0, and an interval that says so."""
    cost = call_cost(calls([1, 90, 100, 110], [1, 95, 105, 115]))
    assert cost.call_ns == -5
    assert cost.call_interval_ns[0] < 0 < cost.call_interval_ns[1]


@pytest.mark.parametrize(
    ("traced", "untraced"), [([], [1, 2]), ([5], [3, 3]), ([5] * 9, [3] * 3), ([5] * 3, [3] * 9)]
)
def test_few_calls_measure_nothing(traced, untraced):
    """A kind of which there are fewer than three calls but its first has no median to compare."""
    assert call_cost(calls(traced, untraced)) is None


def test_it_is_said_how_few_calls_there_were():
    """Two steady calls of a kind are too few: the estimate stands, and says so; calls of one kind
    alone were never to be compared."""
    few = source(calls([9] * 6, [9] * 3), events=8)
    sources = [("transformer", few), ("vae", source(calls([9] * 6, []), events=2))]
    found = tracing_cost(sources, measured_costs(sources), 0, 1_000)
    assert found.too_few == {"transformer": CallCounts(traced_calls=5, untraced_calls=2)}
    assert found.measured == {}
    assert (found.operators_ns, found.share) == (100, 0.1)
    assert how_known(found) == (
        "estimated, too few calls to measure it (transformer 5 traced and 2 untraced)"
    )


def test_too_few_calls_where_nothing_is_estimated():
    """RBLN's runtimes have no estimate: no share is stated, and why."""
    sources = [("transformer", source(calls([9] * 6, [9] * 3), events=8, backend="rbln"))]
    found = tracing_cost(sources, measured_costs(sources), 0, 1_000)
    assert found.share is None
    assert how_known(found, stated=False) == (
        "too few calls to measure it (transformer 5 traced and 2 untraced)"
    )


def test_only_calls_of_equal_shapes_are_compared():
    """A batch twice as large takes twice as long, traced or not: it is left out where fewer of it
    can be compared."""
    table = [
        *calls([1, 120, 120, 120], [1, 100, 100, 100], x="float32[1]"),
        *calls([240, 240, 240, 240], [], x="float32[2]"),
    ]
    assert call_cost(table).call_ns == 20


def source(timed=(), events=0, backend="onnxruntime"):
    return SourceSummary(events=events, timed=tuple(timed), backend=backend)


MIXED = calls([500, 120, 120, 120], [500, 100, 100, 100])


def test_measured_where_it_can_be_and_estimated_elsewhere():
    """The transformer's 4 traced calls cost 20 ns each; the encoder's 6 events 10 ns by the
    estimate, which has no quartiles: they may have cost nothing, and four times as much."""
    sources = [("transformer", source(MIXED, events=8)), ("text_encoder", source(events=6))]
    found = tracing_cost(sources, measured_costs(sources), 60, 1_000)
    assert str(method(found)).startswith("measured: ")
    assert stated(found) == {
        "traced_ns": 1_000,
        "untraced_ns": 800,
        "untraced_low_ns": round(940 / (1 + (90 + 240) / 800)),
        "untraced_high_ns": 1_000 - 60 - 70,
        "method": "both",
        "hooks_ns": 60,
        "operator_events": 14,
        "measured": {
            "transformer": {
                "traced_calls": 3,
                "untraced_calls": 3,
                "traced_median_ns": 120,
                "untraced_median_ns": 100,
                "call_ns": 20,
                "call_low_ns": pytest.approx(17.5, abs=0.5),
                "call_high_ns": pytest.approx(22.5, abs=0.5),
                "event_ns": 10,
            }
        },
        "estimated_by": ("onnxruntime",),
        "estimated_events": 6,
        "operator_event_ns": 10,
        "operators_ns": 140,
        "share": 0.2,
        "share_of": "end_to_end",
    }


def test_all_measured_has_an_interval():
    """Where every traced submodule is measured the sum has an interval, whatever the backend."""
    sources = [("transformer", source(MIXED, events=8, backend=""))]
    found = tracing_cost(sources, measured_costs(sources), 0, 1_000)
    assert (found.operators_low_ns, found.operators_ns, found.operators_high_ns) == (70, 80, 90)
    assert found.estimated_by == ()


def test_without_untraced_calls_it_is_an_estimate():
    """No call of the other kind: events times the cost of one, and called estimated."""
    sources = [("transformer", source(events=8))]
    found = tracing_cost(sources, measured_costs(sources), 20, 1_000)
    assert (found.operators_ns, found.share) == (80, 0.1)
    assert str(method(found)).startswith("estimated: ")
    assert found.measured == {}


def test_each_backend_has_its_own_estimate():
    """Events of torch cost 20 ns, those of ONNX Runtime 10; their mean stands in the manifest."""
    sources = [("text_encoder", source(events=4, backend="torch")), ("vae", source(events=4))]
    found = tracing_cost(sources, measured_costs(sources), 0, 1_200)
    assert (found.operators_ns, found.operator_event_ns, found.share) == (120, 15, 0.1)
    assert found.estimated_by == ("torch", "onnxruntime")
    assert "torch.profiler's cost" in method(found)
    assert "cost ONNX Runtime" in method(found)


def test_events_of_host_work_cost_too():
    """They lie between the calls, so that no comparison of calls covers them."""
    summary = replace(source(MIXED, events=8, backend="torch"), host_events=3)
    sources = [("transformer", summary)]
    found = tracing_cost(sources, measured_costs(sources), 0, 1_000)
    assert (found.operator_events, found.estimated_events) == (11, 3)
    assert found.operators_ns == 4 * 20 + 3 * 20
    assert found.operators_low_ns is None


@pytest.mark.parametrize(
    ("backend", "words"),
    [("rbln", "operators of rbln cost was not measured"), ("", "not measured")],
)
def test_an_unknown_cost_is_never_shown_as_free(backend, words):
    """Without untraced calls nobody knows what such an event costs: no sum, no share."""
    sources = [("transformer", source(events=8, backend=backend)), ("vae", source(events=5))]
    found = tracing_cost(sources, measured_costs(sources), 20, 1_000)
    assert found.share is None
    assert found.operators_ns is None
    assert "torch" not in method(found)
    assert words in method(found)


def test_no_events_cost_nothing():
    """A run of calls alone costs what the hooks cost."""
    assert tracing_cost([], {}, 20, 1_000).share == 0.02


@pytest.mark.parametrize(
    ("inside", "outside", "share", "of"),
    [
        ([1_000], [], 0.02, "end_to_end"),
        ([], [400], 0.05, "calls"),
        ([300, 300], [400], 0.02, "end_to_end_and_calls"),
        ([], [], None, None),
    ],
)
def test_what_the_share_is_of(inside, outside, share, of):
    """Calls outside every pipeline call count; where nothing ran there is no share, not 0 %. What
    the callers saw is all of it, and without us it would have been as much less."""
    clock = FakeClock(START)
    recorder = Recorder(clock)
    for duration_ns in inside:
        pipeline = recorder.begin_pipeline("P")
        clock.advance(duration_ns - 5)
        recorder.end_pipeline(pipeline)
        pipeline.around_ns = 5  # behind its end
    for duration_ns in outside:
        invocation = Invocation("vae", "decode", "", -1, "cpu:0", {})
        recorder.begin_call(invocation)
        clock.advance(duration_ns - 5)
        recorder.end_call(invocation)
        invocation.hooks_ns = 5
    found = tracing_cost([], {}, 20, recorder.traced_ns, whole_of(recorder))
    assert (found.share and round(found.share, 9), found.share_of) == (share, of)
    assert found.traced_ns == sum(inside) + sum(outside)
    if share is not None:
        assert found.untraced_ns == found.traced_ns - 20
        assert found.method == "measured"


def test_the_interval_knows_how_much_calls_vary():
    """A twentieth of all where there are too few to tell; else by how far they lie apart, the first
    aside, and never less."""
    clock = FakeClock(START)
    recorder = Recorder(clock)
    for duration_ns in (9_000, 1_000, 1_000):
        pipeline = recorder.begin_pipeline("P")
        clock.advance(duration_ns)
        recorder.end_pipeline(pipeline)
    assert noise_ns(recorder) == 825
    for duration_ns in (3_000, 3_000):
        pipeline = recorder.begin_pipeline("P")
        clock.advance(duration_ns)
        recorder.end_pipeline(pipeline)
    assert noise_ns(recorder) == pytest.approx(3.19 * 1154.7 * 10**0.5, rel=1e-4)
    found = tracing_cost([], {}, 20, recorder.traced_ns, noise_ns=500)
    varies = 1 + 500 / 17_000
    assert found.untraced_low_ns == round(16_980 / varies)
    assert found.untraced_high_ns == round(16_980 * varies)


def recorded(durations_ns):
    """A run of pipeline calls that took so long."""
    clock = FakeClock(START)
    recorder = Recorder(clock)
    for duration_ns in durations_ns:
        pipeline = recorder.begin_pipeline("P")
        clock.advance(duration_ns)
        recorder.end_pipeline(pipeline)
    return recorder


@pytest.mark.parametrize("calls", [4, 5, 8, 20])
def test_the_interval_holds_another_run_nine_times_in_ten(calls):
    """Of calls that vary by a fifth, in 400 pairs of runs: where a few calls' own deviation stood
    for that of all, two of the intervals in ten did not."""
    random = Random(calls)
    held = 0
    for _ in range(400):
        one, other = ([round(random.gauss(1e9, 2e8)) for _ in range(calls)] for _ in range(2))
        held += abs(sum(one) - sum(other)) <= noise_ns(recorded(one))
    assert held >= 0.9 * 400


def test_the_interval_is_wider_on_a_machine_that_is_shared():
    """One call tells nothing of how it varies. Where eight threads want each core the call may take
    eight times as much longer or shorter as on one of its own, and no less where cores rest."""
    recorder = recorded([1_000])
    assert [noise_ns(recorder, crowding) for crowding in (0.1, 1.0, 8.0)] == [75, 75, 600]


def test_an_estimate_has_the_quartiles_of_its_pairs(monkeypatch):
    """Pairs of runs of 200 events: median and quartiles an event; half of them lie further apart
    than the cost, so it is called noisy."""
    cost = EventCost.of_pairs([1e-6, 2e-6, 3e-6, 4e-6, 9e-6, 9e-6, 9e-6], 200)
    assert cost == EventCost(pytest.approx(20), pytest.approx(12.5), pytest.approx(45))
    assert cost.noisy
    assert not EventCost(20, 15, 25).noisy
    monkeypatch.setattr(overhead, "event_cost", told({"onnxruntime": cost}))
    found = tracing_cost([("encoder", source(events=10))], {}, 0, 4_000)
    assert (found.operator_event_low_ns, found.operator_event_high_ns) == (12.5, 45.0)
    plain = how_known(found).replace("\N{NO-BREAK SPACE}", " ")
    assert plain == "estimated (noisy: 12.5 ns to 45 ns an event)"
    assert found.untraced_low_ns < found.untraced_ns < found.untraced_high_ns
    assert found.untraced_ns == 4_000 - 10 * 20


def test_an_estimate_of_one_pair_has_an_interval(monkeypatch):
    """A machine that was too busy for a second pair: between nothing and four times as much."""
    monkeypatch.setattr(overhead, "event_cost", told({"onnxruntime": EventCost(20)}))
    found = tracing_cost([("encoder", source(events=10))], {}, 0, 4_000, noise_ns=100)
    assert found.untraced_ns == 3_800
    assert found.untraced_low_ns == round(3_800 / (1 + math.hypot(600 / 4_000, 100 / 4_000)))
    assert found.untraced_high_ns == round(3_800 * (1 + math.hypot(200 / 3_800, 100 / 4_000)))


@pytest.mark.parametrize("events", [0, 1, 50, 99])
@pytest.mark.parametrize("noise", [0, 1_000, 100_000])
def test_every_interval_is_possible(monkeypatch, events, noise):
    """A program takes time without us, whatever recording took of it and however it varies."""
    monkeypatch.setattr(overhead, "event_cost", told({"onnxruntime": EventCost(90, 10, 500)}))
    sources = [("encoder", source(events=events))]
    found = tracing_cost(sources, {}, 1_000, 10_000, noise_ns=noise)
    assert 0 < found.untraced_low_ns <= found.untraced_ns <= found.untraced_high_ns


def test_noise_that_exceeds_the_cost_is_no_estimate():
    """A median below 0 is not stated as free."""
    assert EventCost.of_pairs([-3e-6, -1e-6, 2e-6], 200) is None


def test_an_estimate_above_all_that_ran_is_not_stated():
    """2,400 events at 38.1 µs cannot have cost 91.4 ms where all calls took 57 ms together."""
    overhead_of = {"onnxruntime": EventCost(38_100.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overhead, "event_cost", told(overhead_of))
        found = tracing_cost([("encoder", source(events=2_400))], {}, 50, 57_000_000)
    assert found.share is None
    assert found.operators_ns is None
    assert "38.1 µs an event, is more than all that ran took" in str(method(found)).replace(
        "\N{NO-BREAK SPACE}", " "
    )


@pytest.mark.torch
def test_the_cost_of_torchs_events_is_measured(monkeypatch):
    """On the torch that is installed; not while a profiler of the script runs."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from profiler.capture.torch import operators as cost

    for limit in ("_BUSY_S", "_LONGEST_S"):  # a busy machine decides nothing here
        monkeypatch.setattr(cost, limit, math.inf)
    torch_event_cost = cost.torch_event_cost
    measured = (torch_event_cost() for _ in range(20))  # noise may exceed the cost in some
    assert next(found for found in measured if found is not None).ns > 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        assert torch_event_cost() is None
        torch.ones(2).relu()
    assert "aten::relu" in {event.name for event in theirs.events()}


@pytest.mark.parametrize(
    ("overhead", "words"),
    [
        ({"share": 0.1, "operator_event_ns": 5.0}, "estimated"),
        ({"measured": {"vae": {"call_ns": 5_000_000.0}}}, "measured: vae 5.00 ms a call"),
        (
            {
                "measured": {"vae": {"call_ns": 5e6, "call_low_ns": -1e6, "call_high_ns": 6e6}},
                "estimated_events": 3,
            },
            "measured: vae 5.00 ms a call (-1.00 ms to 6.00 ms), else estimated",
        ),
    ],
)
def test_reports_say_how_the_cost_is_known(overhead, words):
    """What was measured is stated with its interval, what was not is called an estimate."""
    known = make_info(overhead=overhead).overhead
    plain = how_known(known).replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")
    assert plain == words


def test_new_sessions_are_part_of_the_cost():
    """First calls on new sessions took 300 ns longer (200 to 500): what remains is as much less,
    and its interval as much wider; what recording operators cost is apart."""
    new = NewSessions(300, 200, 500)
    plain = tracing_cost([("encoder", source(events=10))], {}, 50, 4_000)
    found = tracing_cost([("encoder", replace(source(events=10), new_sessions=new))], {}, 50, 4_000)
    assert (plain.new_sessions_ns, found.new_sessions_ns) == (None, 300)
    assert found.operators_ns == plain.operators_ns == 100
    assert (plain.untraced_ns, found.untraced_ns) == (3_850, 3_550)
    assert found.share == pytest.approx(1 - 3_550 / 4_000)
    assert found.untraced_low_ns == round(3_950 / (1 + (10 * 40 + 500) / 3_550))
    assert found.untraced_high_ns == plain.untraced_high_ns - 200


def test_a_backend_hears_how_far_events_lie_apart(monkeypatch):
    """Those of submodules that untraced calls measure are left out."""
    told = []
    monkeypatch.setattr(overhead, "event_cost", lambda *args: told.append(args) or EventCost(10.0))
    sources = [
        ("encoder", replace(source(events=3), gaps=Gaps(2, 9_000))),
        ("decoder", replace(source(events=4), gaps=Gaps(3, 6_000))),
    ]
    tracing_cost(sources, {}, 0, 4_000)
    assert told == [("onnxruntime", Gaps(5, 15_000))]
