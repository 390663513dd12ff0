"""What a process that is profiled for long holds, counted in objects: `benchmarks/long_runs.py` has
the memory."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import onnxruntime
import pytest

import profiler
from profiler.capture import Invocation
from profiler.capture.onnxruntime.operators import NotedCall
from tests.capture.onnx_pipelines import Part, Pipeline, gathering, opened, ways

STEPS = 10  # of a pipeline call
CAP = 20  # events of a session; a step has four
PER_SESSION = 5  # steps at most


@pytest.fixture
def without_collector():
    """Garbage that only the collector would find counts as held."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> Counter[type]:
    """How many sessions of ONNX Runtime are alive, and how many notes of calls."""
    counted = {onnxruntime.InferenceSession, NotedCall, Invocation}
    return Counter(type(one) for one in gc.get_objects() if type(one) in counted)


@pytest.mark.usefixtures("without_collector")
def test_150_steps_hold_what_50_hold(tmp_path: Path) -> None:
    """Some thirty sessions on, there are two as before: the pipeline's own and the one that is
    profiled. Calls noted for a profile went with it; one note a call stays."""
    found, others = [], held()  # of tests before this one
    run_on = ways()["run"]
    pipeline = Pipeline(transformer=Part(opened(gathering())))
    with profiler.profile(pipeline, out=tmp_path, event_cap=CAP) as run:
        (((_, source),),) = [run._session._attached.sources()]
        for steps in (50, 100):
            for _ in range(steps // STEPS):
                pipeline(*[("transformer", 2, run_on)] * STEPS)
            source._converter._conversions.drain()
            found.append(held() - others)
        sessions = len(source._segments)
    first, later = found
    assert sessions >= 150 // PER_SESSION
    assert first[onnxruntime.InferenceSession] == later[onnxruntime.InferenceSession] == 2
    assert max(first[NotedCall], later[NotedCall]) <= PER_SESSION
    assert later[Invocation] - first[Invocation] <= 100
    loaded = profiler.load(run.path)
    assert (len(loaded.calls), loaded.drops) == (150, ())
    assert loaded.calls["ops_traced"].all()
