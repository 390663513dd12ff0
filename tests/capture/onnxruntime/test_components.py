"""Raw `InferenceSession`s in hand-written pipelines: submodules, and what coverage names."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

import profiler
from tests.capture.onnx_pipelines import gathering

FEEDS = {"x": np.ones((2, 3), np.float32), "i": np.array([0])}


def session(path):
    onnx.save(gathering(), str(path))
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


class Scheduler:
    timesteps = (2, 1, 0)

    def set_timesteps(self, steps):
        pass

    def step(self, x):
        return x


class Drawing:
    """Two sessions that a loop of somebody's own runs; a third that it does not hold."""

    def __init__(self, folder, other=None):
        self.reader = session(folder / "read.onnx")
        self.painter = session(folder / "paint.onnx")
        self.scheduler = Scheduler()
        self._others = SimpleNamespace(third=other)

    def __call__(self):
        self.reader.run(None, FEEDS)
        self.scheduler.set_timesteps(3)
        for _ in self.scheduler.timesteps:
            out = self.painter.run(["y"], FEEDS)
            self.scheduler.step(out)
        if self._others.third is not None:
            self._others.third.run(None, FEEDS)
        return out


@pytest.mark.parametrize("ops", ["none", "all"])
def test_sessions_of_a_pipeline(tmp_path, ops):
    """Each is a submodule under its attribute, its stage found by the scheduler; with operators
    each call has its own. Outputs are the same, and the sessions as they were."""
    pipeline = Drawing(tmp_path)
    without = pipeline()
    with profiler.profile(pipeline, out=tmp_path / "runs", ops=ops) as profiled:
        given = pipeline()
    run = profiler.load(profiled.path)
    assert np.array_equal(without, given)
    assert run.calls.select("submodule", "stage", "step").rows() == [
        ("reader", "encode", -1),
        *(("painter", "denoise", step) for step in range(3)),
    ]
    assert run.drops == ()
    assert set(run.calls["ops_traced"]) == {ops == "all"}
    assert run.calls["input_shapes"][0] == "x: float32[2,3]; i: int64[1]"
    if ops == "all":
        names = Counter(run.commands.filter(run.commands["call"] >= 0)["call"].to_list())
        assert set(names) == {0, 1, 2, 3}
        assert len(set(names.values())) == 1
    assert type(pipeline.reader) is type(pipeline.painter) is onnxruntime.InferenceSession
    assert not {"run", "session"} & vars(pipeline.reader).keys()


def test_a_session_alone(tmp_path):
    """`profile(session)` and a dict of sessions: recorded under the names that they have there."""
    read = session(tmp_path / "read.onnx")
    with profiler.profile({"reading": read}, out=tmp_path / "runs") as profiled:
        read.run(None, FEEDS)
    run = profiler.load(profiled.path)
    assert run.calls["submodule"].to_list() == ["reading"]
    assert run.calls["ops_traced"].to_list() == [True]


def test_coverage_names_a_session_that_is_not_captured(tmp_path):
    """What the pipeline runs and does not hold: under the script's name for it, else its model's
    file. Without such a session all of the time is captured."""
    pipelines = Drawing(tmp_path), Drawing(tmp_path, session(tmp_path / "upscale.onnx"))
    found = []
    for pipeline in pipelines:
        with profiler.profile(pipeline, out=tmp_path / "runs", ops="none") as profiled:
            pipeline()
        found.append(profiler.load(profiled.path).info.coverage)
    whole, part = found
    assert (whole.share, whole.uncaptured) == (1.0, ())
    assert [(one.name, one.calls) for one in part.uncaptured] == [("upscale", 1)]
    assert 0 < part.share < 1
