"""Whatever the times in a trace, the import ends in a sound bundle or in an InputError."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.trace.manifest_fields import HealthAction
from tests.examples import examples

from .traces import DECODE, ENCODE_PROMPT, PIPELINE, STEP, Trace

FRAMES = (
    PIPELINE,
    ENCODE_PROMPT,
    STEP,
    DECODE,
    "nn.Module: OptimizedModule_0",
    "nn.Module: T5EncoderModel_0",
    "nn.Module: FluxTransformer2DModel_0",
    "nn.Module: Linear_0",
    "torch/_dynamo/eval_frame.py(791): compile_wrapper",
    "somewhere.py(1): helper",
)
TIME = st.integers(0, 40)
RANGE = st.tuples(st.integers(1, 2), TIME, st.integers(1, 40))


@settings(max_examples=examples(60), deadline=None)
@given(
    frames=st.lists(st.tuples(st.sampled_from(FRAMES), RANGE), max_size=14),
    kernels=st.lists(st.tuples(RANGE, st.one_of(st.none(), TIME)), max_size=6),
)
def test_any_arrangement_of_frames_is_imported_or_refused(frames, kernels):
    """Stages tile their pipeline, calls of one thread lie in their stages, and no kernel is lost
    but those that cannot be: they are counted."""
    trace = Trace()
    for name, (tid, start, length) in frames:
        trace.frame(name, start, length, tid)
    for (tid, start, length), launched in kernels:
        trace.kernel("k", start, length, launched=launched, tid=tid)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = trace.imported(Path(folder))
        except InputError:
            return
    impossible = [one for one in run.info.health if one.action is HealthAction.SET_ASIDE]
    aside = sum(one.count for one in impossible if one.device != "cpu:0")
    assert (run.commands["device"] == "cuda:0").sum() + aside == len(kernels)
    spans = run.spans.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    pipelines = spans.filter(pl.col("kind") == "pipeline")
    if len(pipelines) == 1 and len({tid for _, (tid, _, _) in frames}) == 1:
        stages = spans.filter(pl.col("kind") == "stage")
        assert stages["duration_ns"].sum() == pipelines["duration_ns"].item()
        for stage, start in run.calls.select("stage", "start_ns").iter_rows():
            around = stages.filter((pl.col("start_ns") <= start) & (pl.col("end_ns") >= start))
            assert stage in around["stage"].to_list()
