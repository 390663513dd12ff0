"""What profiling cost calls that belong to no pipeline call, and runs that did not end."""

from __future__ import annotations

import shutil

import onnx
import pytest

import profiler
from profiler.analysis import key_facts
from profiler.analysis.analyze import analyze
from profiler.capture import FakeClock, Options, Session
from profiler.trace import JOURNAL_NAME, Overhead, merge_bundle
from tests.capture.onnx_pipelines import gathering
from tests.capture.switched_on import Environment

from .toy import ToyPipeline

START = 1_790_000_000_000_000_000


def cost_of(run):
    """What a report says of the profiling overhead: value and note."""
    return next(
        (fact.value, fact.note)
        for fact in key_facts(analyze(run), 0)
        if fact.label == "Profiling overhead"
    )


def test_parts_that_a_script_calls_itself(tmp_path):
    """Our own code around them counts, as a share of the time in them."""
    clock = FakeClock(START, step_ns=3)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as profiled:
        for _ in range(4):
            pipeline.vae.decode(1)
    run = profiler.load(profiled.path)
    overhead = run.info.overhead
    assert len(run.calls) == 4
    assert overhead.hooks_ns > 0
    assert overhead.traced_ns == overhead.hooks_ns + run.calls["duration_ns"].sum()
    assert overhead.untraced_ns == run.calls["duration_ns"].sum()
    assert overhead.share == overhead.hooks_ns / overhead.traced_ns
    assert cost_of(run)[1] == "of calls' time, estimated"


def test_calls_beside_those_of_the_pipeline(tmp_path):
    """Both count; the share is of both."""
    clock = FakeClock(START, step_ns=3)
    pipeline = ToyPipeline(clock)
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as profiled:
        pipeline(num_inference_steps=2)
        alone = profiled._session.recorder.hooks_ns
        pipeline.vae.decode(1)
    overhead = profiler.load(profiled.path).info.overhead
    assert overhead.hooks_ns > alone > 0
    assert overhead.share_of == "end_to_end_and_calls"


def test_bare_sessions(tmp_path):
    """Runs of ONNX Runtime that a script makes itself."""
    onnx.save(gathering(), str(tmp_path / "gather.onnx"))
    scripts = Environment(tmp_path).at(tmp_path)
    script = """
    import numpy as np
    import onnxruntime
    session = onnxruntime.InferenceSession("gather.onnx", providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, {"x": np.ones((1, 3), np.float32), "i": np.array([0])})
    """
    run = profiler.load(scripts.run(script, RBLN_PROFILER_CONFIG='{"ops": "none"}').bundle)
    overhead = run.info.overhead
    assert len(run.calls) == 3
    assert overhead.hooks_ns > 0
    assert overhead.untraced_ns == run.calls["duration_ns"].sum()
    assert overhead.share == overhead.hooks_ns / overhead.traced_ns
    assert overhead.share_of == "calls"


def test_a_run_that_did_not_end(tmp_path):
    """Nobody knows what it cost: that is not 0 %. Its calls are in its journal, files are not."""
    clock = FakeClock(START)
    session = Session.open(Options("none"), tmp_path, "toy", clock=clock)
    pipeline = ToyPipeline(clock)
    session.attach(pipeline)
    pipeline(num_inference_steps=2)
    copy = tmp_path / "killed"
    copy.mkdir()
    for name in ("manifest.json", JOURNAL_NAME):
        shutil.copyfile(tmp_path / "toy" / name, copy / name)
    session.close()
    merge_bundle(copy)
    run = profiler.load(copy)
    assert len(run.calls) == 9
    assert run.info.overhead == Overhead()
    assert cost_of(run)[0] == "not measured"


@pytest.mark.parametrize("calls", [0, 1])
def test_nothing_that_ran_has_no_share(tmp_path, calls):
    """Without any time there is nothing of which it could be a share."""
    clock = FakeClock(START)
    pipeline = ToyPipeline(clock)
    pipeline.vae.decoder.duration_ns = 0
    with profiler.profile(pipeline, out=tmp_path, ops="none", clock=clock) as profiled:
        for _ in range(calls):
            pipeline.vae.decode(1)
    run = profiler.load(profiled.path)
    assert run.info.overhead.share is None
    if calls:
        assert cost_of(run)[0] == "not known"
