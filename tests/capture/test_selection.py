"""Which calls are traced: the text of `--ops`, and what it chooses."""

from __future__ import annotations

import pytest

from profiler.capture import Invocation, Options, PipelineCall, SourceSummary
from profiler.capture.operator_source import SelectedCalls
from profiler.capture.settings import Position, check_names, parse_config, parse_ops
from profiler.errors import InputError


def chosen_steps(text, submodule="transformer", steps=10, begin=0):
    """The steps of a schedule of `steps` that are traced, where the loop starts at `begin`."""
    selection = parse_ops(text).of(submodule)
    return [
        step
        for ordinal, step in enumerate(range(begin, steps))
        if selection.selects(Position(ordinal, step, begin, steps - 1))
    ]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("all", list(range(10))),
        ("none", []),
        ("first", [0]),
        ("last", [9]),
        ("first,last", [0, 9]),
        ("every:7", [0, 7]),
        ("every:4,last", [0, 4, 8, 9]),
        ("every:3,every:4", [0, 3, 4, 6, 8, 9]),
        ("steps:2-4", [2, 3, 4]),
        ("steps:8", [8]),
        ("steps:8-99", [8, 9]),
        ("first steps:5", [0, 5]),
        ("measure-overhead", [0, 1, 2, 4, 5, 6, 8, 9]),
        ("all measure-overhead", [0, 1, 2, 4, 5, 6, 8, 9]),
        ("steps:2-4,measure-overhead", [2, 4]),
        ("none measure-overhead", []),
        ("vae=none", list(range(10))),
        ("none transformer=every:5", [0, 5]),
        ("transformer=steps:1-3 measure-overhead", [1, 2]),
        ("transformer=first transformer=last", [0, 9]),
    ],
)
def test_steps_of_the_loop(text, steps):
    """Each text chooses these of ten steps of the transformer."""
    assert chosen_steps(text) == steps


def test_a_loop_that_begins_late():
    """Image-to-image begins with a later step: that is its first; the others keep their numbers."""
    assert chosen_steps("first,last", begin=6) == [6, 9]
    assert chosen_steps("every:4", begin=6) == [8]


def test_calls_outside_the_loop_go_by_their_ordinal():
    """Encoders and VAE have no steps: first and every:N count their calls, last and steps choose
    none of them."""
    calls = [Position(ordinal) for ordinal in range(4)]
    for text, chosen in [
        ("first,last", [True, False, False, False]),
        ("every:2", [True, False, True, False]),
        ("last", [False] * 4),
        ("steps:0-3", [False] * 4),
        ("measure-overhead", [True, True, True, False]),
    ]:
        assert [parse_ops(text).default.selects(call) for call in calls] == chosen


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "some", "every", "every:0", "every:-1", "every:x", "every:1.5", "first,"],
        *["steps:", "steps:3-1", "steps:-1", "steps:1-", "none,all", "none first", "all:1"],
        *["vae=", "=all", "a/b=all", "vae=x=all"],
    ],
)
def test_what_is_no_selection_is_one_sentence(text):
    """Anything else is refused with one sentence that says what to write."""
    with pytest.raises(InputError) as caught:
        parse_ops(text)
    message = str(caught.value)
    assert message.startswith("ops")
    assert ": use " in message or ": write " in message
    assert "\n" not in message


def test_options_join_ops_and_config():
    """activate_profiler false wins over ops; names in ops are checked on request alone, for a
    process may run several pipelines."""
    config = {"vae": {"activate_profiler": False}}
    options = parse_config(config, "every:2 unet=none", ["vae", "transformer"])
    assert options.selection("vae").nothing
    assert not options.traces_operators("unet")
    assert options.selection("transformer").every == (2,)
    with pytest.raises(InputError, match="'unet' is not a submodule"):
        check_names(options, ["vae", "transformer"])
    with pytest.raises(InputError, match="ops is 3: give a text"):
        parse_config(None, 3, [])
    assert Options().traces_operators("vae")


class Listening:
    """An operator source that notes what it is told and traces all that it hears of."""

    def __init__(self):
        self.heard = []

    def begin_pipeline(self, pipeline):
        self.heard.append("begin pipeline")

    def end_pipeline(self, pipeline):
        self.heard.append("end pipeline")

    def before(self, invocation):
        self.heard.append(f"traced {invocation.step}")
        invocation.ops_traced = invocation.recorded

    def leave_out(self, invocation):
        self.heard.append(f"plain {invocation.step}")

    def after(self, invocation):
        self.heard.append(f"after {invocation.step}")

    def summary(self):
        return SourceSummary(events=7)


def called(source, pipeline, steps, *, recorded=True):
    calls = []
    for step in steps:
        call = Invocation("transformer", "denoise", "batched", step, "cpu:0", {}, pipeline=pipeline)
        call.last_step, call.recorded = max(steps), recorded
        source.before(call)
        call.start_ns, call.end_ns = 0, 100 + step
        source.after(call)
        calls.append(call)
    return calls


def selected(text):
    listening = Listening()
    selection = parse_ops(text).default
    return listening, SelectedCalls(listening, selection)


def test_the_source_hears_of_the_selected_calls_alone():
    """The other calls are announced as left out; the summary holds how long both kinds took."""
    listening, source = selected("every:2")
    calls = called(source, None, range(3))
    assert [call.left_out for call in calls] == [False, True, False]
    assert listening.heard == ["traced 0", "after 0", "plain 1", "traced 2", "after 2"]
    summary = source.summary()
    assert summary.events == 7
    assert [(c.duration_ns, c.traced) for c in summary.timed] == [
        (100, True),
        (101, False),
        (102, True),
    ]


@pytest.mark.parametrize(("noted", "took"), [(250, [250, 250, 250]), (60, [100, 101, 102])])
def test_calls_took_as_long_as_their_device(noted, took):
    """The host was in them for about 100 ns, which launches and goes on. Of the untraced one the
    device noted 250, and no traced one takes it less: tracing costs nothing there."""
    _, source = selected("every:2")
    calls = called(source, None, range(3))
    calls[1].device_lag_ns, calls[1].device_duration_ns = 40, noted
    assert [each.duration_ns for each in source.summary().timed] == took


def test_every_pipeline_call_begins_anew():
    """`first` is the first step of each pipeline call, not of the run."""
    listening, source = selected("first")
    for _ in range(2):
        pipeline = PipelineCall("Toy", 0)
        source.begin_pipeline(pipeline)
        called(source, pipeline, range(4, 6))
        source.end_pipeline(pipeline)
    one = ["begin pipeline", "traced 4", "after 4", "plain 5", "end pipeline"]
    assert listening.heard == one * 2


def test_warm_up_warms_both_kinds():
    """Calls in warm-up take turns, whatever is selected, and are not among those timed."""
    listening, source = selected("first,last")
    pipeline = PipelineCall("Toy", 0)
    source.begin_pipeline(pipeline)
    called(source, pipeline, range(2), recorded=False)
    assert [entry for entry in listening.heard if entry.startswith(("traced", "plain"))] == [
        "traced 0",
        "plain 1",
    ]
    assert source.summary().timed == ()


def test_a_selected_call_without_operators_is_of_neither_kind():
    """What was to be traced and was lost says nothing about the profiling overhead."""
    listening, source = selected("every:2")
    listening.before = lambda invocation: None
    called(source, None, range(3))
    assert [(c.duration_ns, c.traced) for c in source.summary().timed] == [(101, False)]
