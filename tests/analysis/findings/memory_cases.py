"""Runs for the rules about memory."""

from tests.analysis.findings.cases import analyzed, misses, triggers
from tests.runs import make_call

ARENA = "vae arena in use"


def _memory(needed, size, activations=1):
    """The vae needs `needed` bytes at its peak, `activations` of them only while it runs."""
    call = make_call(0, "vae", 0, 100, stage="decode", device="cpu:0")
    samples = [
        (0, "cpu:0", ARENA, 10, needed - activations),
        (0, "cpu:0", ARENA, 50, needed),
        (0, "cpu:0", ARENA, 90, needed - activations),
    ]
    known = {"vae": {"device": "cpu:0", "weight_bytes": needed - activations}}
    hardware = {"memory_bytes": size} if size else {}
    return analyzed([call], samples=samples, submodules=known, hardware=hardware)


@triggers("little_headroom", required_bytes=901, size_bytes=1000, headroom_bytes=99, peak_in="vae")
def less_than_a_tenth_is_left():
    return _memory(901, 1000)


@triggers("little_headroom", required_bytes=1100, headroom_bytes=-100)
def more_than_there_is():
    return _memory(1100, 1000)


@misses("little_headroom")
def a_tenth_is_left():
    return _memory(900, 1000)


@misses("little_headroom")
def memory_of_unknown_size():
    return _memory(900, 0)


@triggers("decode_peak", activation_bytes=300, required_bytes=1000, size_bytes=2000)
def activations_of_three_tenths():
    return _memory(1000, 2000, 300)


@triggers("decode_peak", activation_bytes=1 << 30)
def a_gibibyte_of_activations():
    return _memory(3 << 30, 0, 1 << 30)


@misses("decode_peak")
def activations_of_less_than_three_tenths():
    return _memory(1000, 2000, 299)


@misses("decode_peak")
def a_peak_that_is_less_than_half_of_the_memory():
    return _memory(1000, 2001, 300)


@misses("decode_peak")
def less_than_a_gibibyte_of_activations():
    return _memory(3 << 30, 0, (1 << 30) - 1)
