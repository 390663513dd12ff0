"""Runs for the rule about compilations."""

from tests.analysis.findings.cases import analyzed, gpu_call, misses, triggers
from tests.runs import EPOCH


def _calls():
    return [gpu_call(0, 0, 600), gpu_call(1, 600, 700), gpu_call(2, 700, 1000)]


def _compiled(call, start, duration, **more):
    return {"call": call, "start_ns": EPOCH + start, "duration_ns": duration, **more}


@triggers(
    "compilation",
    compile_ns=380,
    compiled_in="first_call",
    compiling_call_ns=600,
    compiling_call_compile_ns=380,
    recompiles=0,
)
def first_call_compiles():
    return analyzed(_calls(), compilations=[_compiled(0, 10, 380)])


@triggers("compilation", compile_ns=2, recompiles=1, recompile_reason="size mismatch")
def compiled_anew():
    """However little of the run it took."""
    again = _compiled(2, 710, 2, recompile_reason="size mismatch")
    return analyzed(_calls(), compilations=[again])


@misses("compilation")
def compiled_for_a_moment():
    """9 of 1000 ns."""
    return analyzed(_calls(), compilations=[_compiled(0, 10, 9)])


@misses("compilation")
def nothing_compiled():
    return analyzed(_calls())


@misses("first_call")
def first_call_explained_by_compilation():
    """600 ns against 200, of which compiling 380."""
    return analyzed(_calls(), compilations=[_compiled(0, 10, 380)])
