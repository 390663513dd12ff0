"""Runs for the rules about redundant work."""

from profiler.analysis.redundant_work import RedundancyKind
from tests.analysis.findings.cases import analyzed, command, gpu_call, misses, triggers

MODULES = {
    "context_embedder": "Linear",
    "transformer_blocks.0.norm1": "AdaLayerNormZero",
    "time_text_embed.text_embedder": "PixArt",
    "": "SD3Transformer2DModel",
}


def _again(layer, shapes, duration, steps=2, traced=2, first=None):
    calls = [gpu_call(i, 100 * i, 100 * i + 100, traced=i < traced) for i in range(steps)]
    durations = [first if first and not i else duration for i in range(steps)]
    commands = [
        command(i, 100 * i, 100 * i + durations[i], layer=layer, op_type="aten::linear")
        for i in range(traced)
    ]
    known = {"transformer": {"modules": MODULES}}
    return analyzed(calls, commands, shapes=[shapes] * traced, submodules=known)


TEXT = ("context_embedder", "float[2,333,32] float[32,32]")
TIMESTEP = ("transformer_blocks.0.norm1.linear", "float[2,32] float[192,32]")


@triggers(
    "recomputed", saved_ns=10, saved_share=0.01, operators=1, what=(RedundancyKind.CONDITIONING,)
)
def text_projected_twice():
    return _again(*TEXT, 10)


@triggers("recomputed", saved_ns=10)
def text_projected_in_four_calls_of_which_two_were_traced():
    """Twice 5 ns that were saved."""
    return _again(*TEXT, 5, steps=4)


@misses("recomputed")
def text_projected_slowly_once():
    """The second of two executions takes 90 ns, the first 2."""
    return _again(*TEXT, 90, first=2)


@misses("recomputed")
def text_projected_fast():
    return _again(*TEXT, 9)


@misses("recomputed")
def timesteps_are_known_ahead_not_the_same():
    return _again(*TIMESTEP, 90)


@triggers("known_ahead", saved_ns=20, what=(RedundancyKind.MODULATION,))
def modulation_in_each_step():
    return _again(*TIMESTEP, 20)


@misses("known_ahead")
def fast_modulation_in_each_step():
    return _again(*TIMESTEP, 19)
