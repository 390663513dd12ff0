"""Runs for the rule about step caches."""

from tests.analysis.findings.cases import analyzed, gpu_call, misses, triggers


def _calls():
    return [gpu_call(n, 100 * n, 100 * n + (10 if n % 2 else 90)) for n in range(5)]


def _cached(count):
    told = {"cache": "MagCache", "blocks": 2}
    return [
        {**told, "call": call, "skipped": ["b.0", "b.1"] if call % 2 else []}
        for call in range(count)
    ]


@triggers(
    "step_cache",
    calls=5,
    skipping_calls=2,
    skipped_blocks_share=0.4,
    full_median_ns=90,
    skipping_median_ns=10,
)
def every_second_call_skips():
    return analyzed(_calls(), cached_calls=_cached(5))


@misses("step_cache")
def one_call_mixes_nothing():
    return analyzed(_calls(), cached_calls=_cached(1))


@misses("step_cache")
def no_cache():
    return analyzed(_calls())
