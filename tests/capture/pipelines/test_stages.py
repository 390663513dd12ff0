"""Stages of calls whose component does not tell, by what happens around them."""

from __future__ import annotations

from profiler.capture import Invocation
from profiler.capture.pipelines.steps import Stages


class Told:
    """A pipeline call as the hooks tell of it, and what becomes of its calls."""

    def __init__(self, denoisers=None):
        self.stages = Stages(self.place, denoisers)
        self.calls = []
        self.step = 0

    def place(self, invocation, place):
        invocation.stage, invocation.step = place.stage, place.step
        invocation.iteration = place.iteration

    def call(self, *names, shape="[1]", stage=""):
        for name in names:
            found, moves = self.stages.begin(name, stage)
            step = self.step if found == "denoise" else -1
            call = Invocation(name, found, "", step, "cpu:0", {"x": shape})
            self.stages.opened(call, moves=moves, passes=found != "denoise")
            self.calls.append(call)
        return self

    def end_step(self, last=1_000):
        self.stages.step_begins(self.step, last)
        self.stages.step_ended(last=self.step == last)
        self.step += 1
        return self

    def schedule(self):
        self.stages.schedule_set()
        self.step = 0
        return self

    def finish(self):
        self.stages.finish()
        return [(call.submodule, call.stage, call.step) for call in self.calls]


ENCODED = [("brain", "encode", -1), ("prior", "encode", -1)]


def test_the_second_step_tells_what_the_first_has_called():
    """Two components a step, each called once before the loop as well: four are of the loop."""
    told = Told().call("brain", "prior", "guide").schedule().call("guide", "dreamer").end_step()
    assert told.call("guide", "dreamer").end_step().call("maker").finish() == [
        *ENCODED,
        ("guide", "encode", -1),
        ("guide", "denoise", 0),
        ("dreamer", "denoise", 0),
        ("guide", "denoise", 1),
        ("dreamer", "denoise", 1),
        ("maker", "decode", -1),
    ]


def test_one_step_is_what_was_called_last_before_it():
    """Also where that is called twice, for both prompts."""
    told = Told().call("brain", "prior").schedule().call("dreamer", "dreamer").end_step(0)
    assert told.call("maker").finish() == [
        *ENCODED,
        ("dreamer", "denoise", 0),
        ("dreamer", "denoise", 0),
        ("maker", "decode", -1),
    ]


def test_a_known_denoiser_keeps_others_out_of_a_single_step():
    """What tells that it denoises is what the step calls; what came before it encodes."""
    told = Told().call("brain").call("unet", stage="denoise").end_step(0)
    assert told.finish() == [("brain", "encode", -1), ("unet", "denoise", 0)]


def test_what_follows_a_known_denoiser_is_of_its_step():
    """Between its calls in the first step, however often later ones call it."""
    told = (
        Told().call("brain").schedule().call("unet", stage="denoise").call("smoothing", "smoothing")
    )
    told.call("unet", stage="denoise").end_step(1).call("unet", stage="denoise").end_step(1)
    assert told.finish() == [
        ("brain", "encode", -1),
        *((name, "denoise", 0) for name in ("unet", "smoothing", "smoothing", "unet")),
        ("unet", "denoise", 1),
    ]


def test_two_loops_have_their_own_steps():
    """What is called between them encodes for the second, also ahead of its schedule."""
    told = Told().schedule()
    for _ in range(2):
        told.call("prior").end_step(1)
    told.call("brain").schedule()
    for _ in range(2):
        told.call("dreamer").end_step(1)
    assert told.call("maker").finish() == [
        ("prior", "denoise", 0),
        ("prior", "denoise", 1),
        ("brain", "encode", -1),
        ("dreamer", "denoise", 0),
        ("dreamer", "denoise", 1),
        ("maker", "decode", -1),
    ]


def test_an_earlier_pipeline_call_tells_who_denoises():
    """From the first call on, so that a selection of steps is right from then on."""
    denoisers = set()
    Told(denoisers).call("brain").schedule().call("dreamer").end_step(0).finish()
    assert denoisers == {"dreamer"}
    told = Told(denoisers).call("brain").schedule().call("dreamer")
    assert [(call.stage, call.provisional) for call in told.calls] == [
        ("encode", True),
        ("denoise", False),
    ]


def test_without_a_step_the_stage_is_run():
    """Unless something tells of a stage: then what does not is that as well."""
    assert Told().call("ear", "mouth").finish() == [("ear", "run", -1), ("mouth", "run", -1)]
    told = Told().call("text_encoder", stage="encode").call("prior")
    assert told.finish() == [("text_encoder", "encode", -1), ("prior", "encode", -1)]


def test_three_calls_with_equal_shapes_are_a_loop():
    """The first of another shape (the prompt, ahead of its tokens) is none of its passes."""
    told = Told().call("decoder", shape="[1,7]").call("decoder", "decoder", "decoder")
    told.call("ear", "ear")
    told.finish()
    assert [call.iteration for call in told.calls] == [-1, 0, 1, 2, -1, -1]


def test_the_loops_of_a_script_are_requests():
    """What is called after the last loop, and not before the first, decodes after each of them."""
    told = Told()
    told.stages = Stages(told.place, repeated=True)
    for _ in range(2):
        told.call("brain").schedule().call("dreamer").end_step(1).call("dreamer").end_step(1)
        told.call("maker")
    request = [
        ("brain", "encode", -1),
        ("dreamer", "denoise", 0),
        ("dreamer", "denoise", 1),
        ("maker", "decode", -1),
    ]
    assert told.finish() == 2 * request


def test_the_first_step_of_a_scheduler_that_was_found_in_it():
    """Its end was not seen: of the calls since the scheduler was found, half are of that step."""
    told = Told().call("brain")
    told.stages.scheduler_found(counts=False)
    told.call("guide", "dreamer", "guide", "dreamer")
    assert told.stages.may_have_missed_one()
    told.stages.step_begins(1, 2, missed=True)
    told.stages.step_ended(last=False)
    told.step = 2
    assert told.call("guide", "dreamer").end_step(2).call("maker").finish() == [
        ("brain", "encode", -1),
        *((name, "denoise", step) for step in range(3) for name in ("guide", "dreamer")),
        ("maker", "decode", -1),
    ]
