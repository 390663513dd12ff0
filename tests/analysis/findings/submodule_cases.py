"""Runs for the rules about encoders, prompts and branches."""

from tests.analysis.findings.cases import analyzed, command, gpu_call, misses, triggers
from tests.runs import make_call, make_span


def _encoder(end):
    spans = [make_span("step", "step 0", 500, 1000, 0)]
    encoder = make_call(0, "text_encoder_3", 0, end, stage="encode", branch="prompt")
    return analyzed([encoder, gpu_call(1, 500, 1000, step=0)], spans=spans)


@triggers(
    "encoder_dominates", encoder_ns=200, encoder_share=0.2, median_step_ns=500, worth_steps=0.4
)
def an_encoder_of_a_fifth():
    return _encoder(200)


@misses("encoder_dominates")
def an_encoder_of_less_than_a_fifth():
    return _encoder(199)


@misses("encoder_dominates")
def an_encoder_by_itself():
    """A trace of one call: nothing to dominate."""
    return analyzed([make_call(0, "text_encoder_3", 0, 900, stage="encode")])


def _negative(duration):
    calls = [
        make_call(0, "text_encoder", 0, 100, stage="encode", branch="prompt"),
        make_call(1, "text_encoder", 100, 100 + duration, stage="encode", branch="negative_prompt"),
    ]
    return analyzed(calls)


@triggers("negative_prompt", wall_ns=20, calls=1, encoders="text_encoder")
def a_negative_prompt_of_2_percent():
    return _negative(20)


@misses("negative_prompt")
def a_shorter_negative_prompt():
    return _negative(19)


def _guidance(begin, end=100):
    """Two calls in a step; in each, the device waits for `begin` ns and then computes."""
    calls = [gpu_call(0, 0, end, step=0, branch="cond")]
    calls.append(gpu_call(1, end, 2 * end, step=0, branch="uncond"))
    commands = [
        piece
        for i in range(2)
        for piece in (
            command(i, i * end, i * end + 1),
            command(i, i * end + 1 + begin, (i + 1) * end),
        )
    ]
    return analyzed(calls, commands)


@triggers("separate_guidance", uncond_calls=1, uncond_ns=100, not_compute_bound_share=1.0)
def branches_that_wait_for_the_host():
    return _guidance(60)


@misses("separate_guidance")
def branches_that_compute():
    return _guidance(10)


@misses("separate_guidance")
def short_branches():
    return _guidance(30, 49)
